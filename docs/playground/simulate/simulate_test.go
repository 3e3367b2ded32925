package simulate

import (
	"encoding/json"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirfile"
)

// TestAnswers compares simulated answers with answers that follow from the definitions of
// the algorithms, for requests that wait, that hold a lease, and that two rules decide.
func TestAnswers(t *testing.T) {
	const s = int64(time.Second / time.Microsecond)
	burst := Choice{"bursts", map[string]int64{"size": 4, "every": 30}} // from 1 s and from 31 s on
	type d = Decision
	for name, test := range map[string]struct {
		traffic Choice
		rules   []Choice
		want    []Decision
	}{
		"leaky bucket": {
			burst,
			[]Choice{{"leaky-bucket", map[string]int64{"tokens": 1, "period": 1, "queue": 2, "wait": 30}}},
			[]d{
				{At: 1 * s, Allowed: true},
				{At: 1*s + s/8, Allowed: true, Delay: 7 * s / 8},
				{At: 1*s + s/4, Allowed: true, Delay: 7 * s / 4},
				{At: 1*s + 3*s/8, RetryAfter: 5 * s / 8}, // until a place in the queue is free
				{At: 31 * s, Allowed: true},
				{At: 31*s + s/8, Allowed: true, Delay: 7 * s / 8},
				{At: 31*s + s/4, Allowed: true, Delay: 7 * s / 4},
				{At: 31*s + 3*s/8, RetryAfter: 5 * s / 8},
			},
		},
		"concurrency": { // a lease is released after 1 s, and 31 s are far away
			burst,
			[]Choice{{"concurrency", map[string]int64{"limit": 3, "lease": 10, "hold": 1}}},
			[]d{
				{At: 1 * s, Allowed: true, Remaining: 2},
				{At: 1*s + s/8, Allowed: true, Remaining: 1},
				{At: 1*s + s/4, Allowed: true, Remaining: 0},
				{At: 1*s + 3*s/8, RetryAfter: 10*s - 3*s/8},
				{At: 31 * s, Allowed: true, Remaining: 2},
				{At: 31*s + s/8, Allowed: true, Remaining: 1},
				{At: 31*s + s/4, Allowed: true, Remaining: 0},
				{At: 31*s + 3*s/8, RetryAfter: 10*s - 3*s/8},
			},
		},
		"two rules": { // the second denies, and the first then consumes nothing
			Choice{"steady", map[string]int64{"rate": 1}}, // at 0 s, 10 s, …, 50 s
			[]Choice{
				{"sliding-log", map[string]int64{"limit": 2, "window": 60}},
				{"fixed-window", map[string]int64{"limit": 1, "window": 15}},
			},
			[]d{
				{At: 0 * s, Allowed: true, Rule: "second"},
				{At: 10 * s, RetryAfter: 5 * s, Rule: "second"},
				{At: 20 * s, Allowed: true, Rule: "first"},
				{At: 30 * s, RetryAfter: 30 * s, Rule: "first"},
				{At: 40 * s, RetryAfter: 20 * s, Rule: "first"},
				{At: 50 * s, RetryAfter: 10 * s, Rule: "first"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			res := Run(t.Context(), Settings{Traffic: test.traffic, Sides: [][]Choice{test.rules}})
			if res.Error != "" || res.Sides[0].Error != "" {
				t.Fatal(res.Error, res.Sides[0].Error)
			}
			for i, w := range test.want {
				w.Try = 1
				if w.Rule == "" {
					w.Rule = "limit"
				}
				test.want[i] = w
			}
			if got := res.Sides[0].Decisions; !slices.Equal(got, test.want) {
				t.Errorf("got\n%v\nwant\n%v", got, test.want)
			}
			if got := res.Sides[0].DeniedBy; name == "two rules" && !slices.Equal(got, []int{3, 2}) { // both at 30 s
				t.Errorf("the rules deny %v, want 3 and 2", got)
			}
		})
	}
}

// The callers of a storm come back after RetryAfter, or after their own time, as often as
// they are allowed to.
func TestStorm(t *testing.T) {
	rules := []Choice{{"gcra", map[string]int64{"tokens": 1, "period": 1, "burst": 1}}}
	run := func(retry int64) Answer {
		t.Helper()
		res := Run(t.Context(), Settings{
			Traffic: Choice{"storm", map[string]int64{"callers": 3, "tries": 4, "retry": retry}},
			Sides:   [][]Choice{rules},
		})
		return res.Sides[0]
	}
	a := run(0)
	if a.Allowed != 3 {
		t.Errorf("after RetryAfter, %d callers are allowed, want 3: %v", a.Allowed, a.Decisions)
	}
	for _, d := range a.Decisions {
		if d.Try == 1 && d.Allowed != (d.At == a.Decisions[0].At) {
			t.Errorf("of the first tries, only the first of all is allowed: %v", d)
		}
	}
	a = run(20)
	tries := map[int]int{}
	for _, d := range a.Decisions {
		tries[d.Try]++
		if at := time.Duration(d.At) * time.Microsecond; at < 5*time.Second+time.Duration(d.Try-1)*20*time.Second || at >= 6*time.Second+time.Duration(d.Try-1)*20*time.Second {
			t.Errorf("a try %d at %v", d.Try, at)
		}
	}
	if tries[1] != 3 || tries[2] != 2 || tries[3] != 1 || a.Allowed != 3 {
		t.Errorf("%v tries, %d allowed", tries, a.Allowed)
	}
}

// Clients have limits of their own, unless the limit is for all of them.
func TestClients(t *testing.T) {
	traffic := Choice{"clients", map[string]int64{"clients": 5, "rate": 10, "busy": 3}}
	allowed := func(by int64) map[int]int {
		t.Helper()
		res := Run(t.Context(), Settings{Traffic: traffic, Sides: [][]Choice{{{"sliding-log", map[string]int64{"limit": 7, "window": 60, "by": by}}}}})
		n := map[int]int{}
		for _, d := range res.Sides[0].Decisions {
			if d.Allowed {
				n[d.Client]++
			}
		}
		return n
	}
	if n := allowed(0); !reflect.DeepEqual(n, map[int]int{0: 7, 1: 7, 2: 7, 3: 7, 4: 7}) {
		t.Errorf("limits of their own: %v", n)
	}
	sum := 0
	for _, n := range allowed(1) {
		sum += n
	}
	if sum != 7 {
		t.Errorf("one limit for all allows %d, want 7", sum)
	}
}

// A seed gives the same traffic again, and another seed gives other traffic.
func TestSeed(t *testing.T) {
	run := func(seed uint64) string {
		t.Helper()
		b, err := json.Marshal(Run(t.Context(), Settings{Seed: seed, Traffic: Choice{Kind: "clients"}, Sides: [][]Choice{{{Kind: "gcra"}}}}))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first := run(1)
	if run(1) != first {
		t.Error("the same seed gives other answers")
	}
	if run(2) == first {
		t.Error("another seed gives the same answers")
	}
}

// all returns settings for every algorithm with every traffic, for other numbers, and for
// two rules.
func all() map[string]Settings {
	kinds, m := Kinds(), map[string]Settings{}
	other := func(k Kind) Choice {
		c := Choice{k.Name, map[string]int64{}}
		for _, n := range k.Numbers {
			if c.Numbers[n.Name] = n.Max; n.Name == "tokens" {
				c.Numbers[n.Name] = 7
			}
		}
		return c
	}
	for _, tr := range kinds.Traffic {
		for i, a := range kinds.Algorithms {
			b := kinds.Algorithms[(i+1)%len(kinds.Algorithms)]
			m[tr.Name+" "+a.Name] = Settings{
				Traffic: Choice{Kind: tr.Name},
				Sides:   [][]Choice{{{Kind: a.Name}}, {other(a)}, {{Kind: "gcra"}, other(a)}, {{Kind: a.Name}, {Kind: b.Name}}},
			}
		}
	}
	return m
}

// TestAll runs each algorithm with each traffic. Each allows something, and denies
// something.
func TestAll(t *testing.T) {
	for name, s := range all() {
		res := Run(t.Context(), s)
		if res.Error != "" {
			t.Errorf("%s: %s", name, res.Error)
			continue
		}
		for i, a := range res.Sides {
			if a.Error != "" {
				t.Errorf("%s, side %d: %s", name, i, a.Error)
				continue
			}
			if a.Allowed+a.Denied != len(a.Decisions) || a.Allowed == 0 || len(a.Remaining) < 2 {
				t.Errorf("%s, side %d: %d decisions, %d allowed, %d denied, %d times of remaining", name, i, len(a.Decisions), a.Allowed, a.Denied, len(a.Remaining))
			}
			if i == 0 && a.Denied == 0 {
				t.Errorf("%s: nothing is denied", name)
			}
		}
	}
}

// Each algorithm of a policy file can be chosen, except Pause.
func TestKinds(t *testing.T) {
	text, err := os.ReadFile("../../../weirfile/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Defs struct {
			Rule struct {
				Properties struct{ Algorithm struct{ Enum []string } }
			}
		} `json:"$defs"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	got := []string{"pause"}
	for _, k := range Kinds().Algorithms {
		_, n, err := choose(algorithms, Choice{Kind: k.Name})
		if err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(weirfile.Describe(k.rule(n), nil), ",")
		got = append(got, strings.TrimPrefix(name, "algorithm: "))
	}
	want := schema.Defs.Rule.Properties.Algorithm.Enum
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the algorithms are %q, want %q", got, want)
	}
}

// Settings that are not valid, or rules that do not go together, give an error.
func TestErrors(t *testing.T) {
	good := Choice{Kind: "gcra"}
	for want, s := range map[string]Settings{
		`there is no "x"`:                      {Traffic: Choice{Kind: "x"}},
		"Steady: rate is 0: it must be from 1": {Traffic: Choice{"steady", map[string]int64{"rate": 0}}},
		"GCRA: burst is 61: it must be from 1": {Traffic: Choice{Kind: "steady"}, Sides: [][]Choice{{good, {"gcra", map[string]int64{"burst": 61}}}}},
		"weir: ":                               {Traffic: Choice{Kind: "steady"}, Sides: [][]Choice{{{Kind: "concurrency"}, {Kind: "metadata-window"}}}},
	} {
		res := Run(t.Context(), s)
		got := res.Error
		for _, a := range res.Sides {
			got += a.Error
		}
		if !strings.Contains(got, want) {
			t.Errorf("the error is %q, want %q", got, want)
		}
	}
}

// The file of each side has the rules that were simulated.
func TestFile(t *testing.T) {
	for name, s := range all() {
		for _, rules := range s.Sides {
			sd, err := newSide(rules)
			if err != nil {
				t.Fatal(err)
			}
			f, err := weirfile.Parse("limits.yaml", []byte(sd.file()), nil)
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, sd.file())
				continue
			}
			if got := f.Policies()[0].Policy; !reflect.DeepEqual(got, sd.policy) {
				t.Errorf("%s: the file has\n%+v\nsimulated was\n%+v\n%s", name, got, sd.policy, sd.file())
			}
		}
	}
}

// The code of each side compiles, is formatted, and has the rules that were simulated.
func TestCode(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/limits\n\ngo 1.25.0\n\nrequire github.com/weir-go/weir v0.0.0\n\nreplace github.com/weir-go/weir => "+root+"\n")
	var imports, prints strings.Builder
	var want []string
	seen := map[string]bool{}
	for name, s := range all() {
		for _, rules := range s.Sides {
			sd, err := newSide(rules)
			if err != nil {
				t.Fatal(err)
			}
			code := sd.code()
			if seen[code] {
				continue
			}
			seen[code] = true
			if b, err := format.Source([]byte(code)); err != nil || string(b) != code {
				t.Errorf("%s: the code is not formatted: %v\n%s", name, err, code)
			}
			p := fmt.Sprintf("p%d", len(want))
			write(p+"/limits.go", code)
			fmt.Fprintf(&imports, "\t%s \"example.com/limits/%[1]s\"\n", p)
			fmt.Fprintf(&prints, "\tshow(%s.New(memory.New(nil)))\n", p)
			lim, err := weir.NewPolicy(memory.New(nil), sd.policy, nil)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprintf("%+v", lim.Rules()))
		}
	}
	write("main.go", `package main

import (
	"fmt"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store/memory"

`+imports.String()+`)

func main() {
`+prints.String()+`}

func show(lim *weir.Limiter, err error) {
	if err != nil {
		panic(err)
	}
	fmt.Printf("%+v\n", lim.Rules())
}
`)
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("vet", "./...")
	if got := strings.Split(strings.TrimSpace(run("run", ".")), "\n"); !slices.Equal(got, want) {
		t.Errorf("the code has the rules\n%s\nsimulated were\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
