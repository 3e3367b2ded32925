package weirfile

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/weirtest"
)

// try is a line of a trace, in a comment of a file.
var try = regexp.MustCompile(`^# try (?:after (\S+): )?(\w+)(?: plan (\w+))? \[(.*)\]: (\d+) requests(?: of (.*))?, (\d+) allowed$`)

// TestOthers loads limits of other services and libraries as files, and makes the requests of their
// comments. The times of a trace add up.
func TestOthers(t *testing.T) {
	t.Parallel()
	files, _ := filepath.Glob("testdata/others/*.yaml")
	if len(files) != 12 {
		t.Errorf("there are %d files", len(files))
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		clock := weirtest.NewClock()
		f := parse(t, string(text), nil)
		if err := f.Warnings(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		l, traces, lacks := limitsOver(t, f, weirtest.NewStore(clock)), 0, 0
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "# Cannot be said: ") {
				lacks++
			}
			m := try.FindStringSubmatch(line)
			if m == nil {
				if strings.HasPrefix(line, "# try") {
					t.Errorf("%s: %s has another form", name, line)
				}
				continue
			}
			traces++
			if m[1] != "" {
				after, err := ParseDuration(m[1])
				if err != nil {
					t.Fatal(err)
				}
				clock.Advance(after)
			}
			n, _ := strconv.Atoi(m[5])
			want, _ := strconv.Atoi(m[7])
			got := 0
			for i := range n {
				lim := limiter(t, l, m[2], m[3], strings.Fields(m[4])...)
				r := request(t, m[6])
				if r.Key = weir.KeyOf(strings.Fields(m[4])...); lim.LeaseTime() != weir.Never {
					r.ID = line + strconv.Itoa(i)
				}
				if weirtest.Decide(t, lim, r).Allowed {
					got++
				}
			}
			if got != want {
				t.Errorf("%s: %s: %d are", name, line, got)
			}
		}
		if traces < 2 || lacks != 1 {
			t.Errorf("%s has %d traces, and %d lines of what cannot be said", name, traces, lacks)
		}
	}
}

// request returns a request with a cost, "5", or amounts, "10 tokens 1 cents".
func request(t *testing.T, text string) (r weir.Request) {
	words, amounts := strings.Fields(text), map[string]int64{}
	for i := 0; i < len(words); i += 2 {
		n, err := strconv.ParseInt(words[i], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if i+1 == len(words) {
			r.Cost = n
		} else {
			amounts[words[i+1]] = n
		}
	}
	r.Costs = weir.CostsOf(amounts)
	return r
}
