package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-go/weir/conformance"
)

const guide = "../../docs/guide/operate.md"

var fenced = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

var passedLine = regexp.MustCompile(`PASSED: (\d+) checks passed, (\d+) skipped`)

// TestGuide runs the commands of the guide, in its order, and compares what they print.
// The program of the guide has served a few requests before the first of them.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var files []string
	ran := map[string]bool{}
	d := emptyDesk(t)
	t.Chdir(dir)
	for _, m := range fenced.FindAllStringSubmatch(string(text), -1) {
		if m[1] == "yaml" {
			files = append(files, m[2])
			name := []string{"limits.yaml", "new.yaml"}[len(files)-1]
			if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(files, "")), 0o600); err != nil {
				t.Fatal(err)
			}
			if name == "limits.yaml" {
				d.serve(name)
			}
			continue
		}
		for example := range strings.SplitSeq(m[2], "$ ") {
			line, out, _ := strings.Cut(example, "\n")
			args := strings.Fields(line)
			if m := passedLine.FindStringSubmatch(out); m != nil {
				passed, _ := strconv.Atoi(m[1])
				skipped, _ := strconv.Atoi(m[2])
				if all := len(conformance.Checks()); passed+skipped != all {
					t.Errorf("the page says %q, and there are %d checks", m[0], all)
				}
			}
			if len(args) < 2 || args[0] != "weir" || args[1] == "conform" || out == "" {
				continue // conform: see TestTool in conformance/integration
			}
			d.follow(args[1:], out)
			ran[args[1]] = true
		}
	}
	if got := slices.Sorted(maps.Keys(ran)); !slices.Equal(got, []string{"check", "explain", "list", "pause", "reset", "resume"}) {
		t.Errorf("the page has the output of %q", got)
	}
}

// follow runs a command of the guide. The ID in a command stands for the last pause's.
func (d *desk) follow(args []string, want string) {
	d.Helper()
	for i, arg := range args {
		if ids.MatchString(arg) {
			args[i] = d.ids[len(d.ids)-1]
		}
	}
	o := d.run(args...)
	if got, want := ids.ReplaceAllString(o.out, "ID"), ids.ReplaceAllString(want, "ID"); got != want || o.err != "" {
		d.Errorf("weir %s\n%s%s\nwant\n%s", strings.Join(args, " "), got, o.err, want)
	}
}
