package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestWorkflow checks that the workflow of ci.md is YAML, that its parts have what GitHub
// needs, and that the directories, test functions, variables and ports in it exist.
func TestWorkflow(t *testing.T) {
	text, err := os.ReadFile("reference/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(m) != 1 {
		t.Fatalf("ci.md has %d blocks of YAML, want 1", len(m))
	}
	for _, defect := range workflowDefects(t, m[0][1]) {
		t.Errorf("ci.md: %s", defect)
	}
	// The test finds each of these mistakes.
	for old, with := range map[string]string{
		"        image: redis:8.0\n":    "        image: redis:8.0\n       name: x\n",
		"runs-on: ubuntu-latest":        "runs: ubuntu-latest",
		"actions/checkout@v4":           "actions/checkout",
		"6379:6379":                     "6379:",
		"          - 6380:6379":         "          - 6381:6379",
		"7002 7003":                     "7002",
		"WEIR_REDIS_ADDR":               "WEIR_REDIS_ADDRESS",
		"WEIR_POSTGRES_URL":             "WEIR_POSTGRES",
		"directory: store/postgres":     "directory: store/pg",
		"TestMatrix/on":                 "TestMatrices/on",
		"go-version-file: conformance/": "go-version-file: conform/",
		"      - run: go test":          "      - go test",
	} {
		if !strings.Contains(m[0][1], old) {
			t.Fatalf("the workflow has no %q", old)
		}
		if broken := strings.Replace(m[0][1], old, with, 1); len(workflowDefects(t, broken)) == 0 {
			t.Errorf("%q in place of %q is not found", with, old)
		}
	}
}

// TestOwnWorkflow checks the workflow of this repository as TestWorkflow does.
func TestOwnWorkflow(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), ".github/workflows/ci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, defect := range workflowDefects(t, string(text)) {
		t.Errorf("ci.yml: %s", defect)
	}
}

// workflowDefects returns what is wrong with a workflow.
func workflowDefects(t *testing.T, text string) (defects []string) {
	y := &yaml{lines: strings.Split(text, "\n")}
	top, _ := y.value(0).(map[string]any)
	if y.err != nil {
		return []string{y.err.Error()}
	}
	defect := func(format string, args ...any) { defects = append(defects, fmt.Sprintf(format, args...)) }
	jobs, _ := top["jobs"].(map[string]any)
	if top["name"] == nil || top["on"] == nil || len(jobs) == 0 {
		defect("it lacks name, on or jobs: %v", top)
	}
	for name, job := range jobs {
		job, _ := job.(map[string]any)
		steps, _ := job["steps"].([]any)
		if job["runs-on"] == nil || len(steps) == 0 {
			defect("job %s lacks runs-on or steps", name)
		}
		var ports []string // that something listens on
		services, _ := job["services"].(map[string]any)
		for name, service := range services {
			service, _ := service.(map[string]any)
			list, _ := service["ports"].([]any)
			if service["image"] == nil || len(list) == 0 {
				defect("service %s lacks image or ports", name)
			}
			for _, port := range list {
				if !regexp.MustCompile(`^\d+:\d+$`).MatchString(fmt.Sprint(port)) {
					defect("service %s has the port %v", name, port)
				}
				host, _, _ := strings.Cut(fmt.Sprint(port), ":")
				ports = append(ports, host)
			}
		}
		for i, step := range steps {
			step, _ := step.(map[string]any)
			run, runs := step["run"].(string)
			uses, used := step["uses"].(string)
			if runs == used || used && !regexp.MustCompile(`^[a-z]+/[a-z-]+@v\d+$`).MatchString(uses) {
				defect("step %d of %s must have either run or uses, with a version: %v", i, name, step)
			}
			if m := regexp.MustCompile(`^for port in ([\d ]+); do\n  docker run`).FindStringSubmatch(run); m != nil {
				ports = append(ports, strings.Fields(m[1])...)
			}
			if with, _ := step["with"].(map[string]any); with["go-version-file"] != nil {
				if _, err := os.Stat(filepath.Join(root(t), fmt.Sprint(with["go-version-file"]))); err != nil {
					defect("step %d of %s: %v", i, name, err)
				}
			}
			dir, tests := "", ""
			if at, ok := step["working-directory"].(string); ok {
				dir = at
			} else if name == "store" { // the repository of a store, for example the template
				dir = "examples/backend"
			}
			files, err := filepath.Glob(filepath.Join(root(t), dir, "*_test.go"))
			helpers, _ := filepath.Glob(filepath.Join(root(t), dir, "internal/*/*.go"))
			for _, file := range append(files, helpers...) {
				text, _ := os.ReadFile(file)
				tests += string(text)
			}
			if m := regexp.MustCompile(`go test .*-run '?(\w+)`).FindStringSubmatch(run); m != nil {
				if err != nil || !strings.Contains(tests, "\nfunc "+m[1]+"(t *testing.T)") {
					defect("step %d of %s: %q has no %s", i, name, dir, m[1])
				}
			} else if strings.Contains(run, "go test") {
				defect("step %d of %s names no test: %s", i, name, run)
			}
			env, _ := step["env"].(map[string]any)
			for variable, value := range env {
				if !strings.Contains(tests, `os.Getenv("`+variable+`")`) {
					defect("step %d of %s: nothing reads %s", i, name, variable)
				}
				for _, m := range regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindAllStringSubmatch(fmt.Sprint(value), -1) {
					if !slices.Contains(ports, m[1]) {
						defect("step %d of %s: nothing listens on %s", i, name, m[1])
					}
				}
			}
		}
	}
	return defects
}

// A yaml parses the part of YAML that the workflow uses: maps, lists, plain scalars, lists of
// plain scalars in brackets, and texts after "|".
type yaml struct {
	lines []string
	at    int
	err   error
}

var yamlPair = regexp.MustCompile(`^([\w-]+):(?: (.+))?$`)

// next returns the next line and its indentation, or -1 at the end. It skips empty lines.
func (y *yaml) next() (line string, indent int) {
	for ; y.at < len(y.lines); y.at++ {
		if line = strings.TrimLeft(y.lines[y.at], " "); line != "" && line[0] != '#' {
			return line, len(y.lines[y.at]) - len(line)
		}
	}
	return "", -1
}

// value parses the map or the list whose lines have that indentation.
func (y *yaml) value(indent int) any {
	var list []any
	pairs := map[string]any{}
	for y.err == nil {
		line, at := y.next()
		if at < indent {
			break
		}
		item, isItem := strings.CutPrefix(line, "- ")
		m := yamlPair.FindStringSubmatch(line)
		switch {
		case at > indent || isItem == (len(pairs) > 0) && len(list)+len(pairs) > 0 || !isItem && m == nil:
			y.err = fmt.Errorf("line %d is not what YAML or this test expects: %q", y.at+1, line)
		case isItem && yamlPair.MatchString(item):
			y.lines[y.at] = strings.Repeat(" ", indent+2) + item
			list = append(list, y.value(indent+2))
		case isItem:
			list = append(list, y.scalar(item))
			y.at++
		case pairs[m[1]] != nil:
			y.err = fmt.Errorf("line %d: %s again", y.at+1, m[1])
		default:
			y.at++
			pairs[m[1]] = y.pair(m[2], indent)
		}
	}
	if list != nil {
		return list
	}
	return pairs
}

// pair parses the value of a key with that indentation. first is what follows the key.
func (y *yaml) pair(first string, indent int) any {
	switch {
	case first == "|":
		var text strings.Builder
		_, inner := y.next()
		for ; y.at < len(y.lines); y.at++ {
			line := y.lines[y.at]
			if len(line)-len(strings.TrimLeft(line, " ")) < inner || inner <= indent {
				break
			}
			text.WriteString(line[inner:] + "\n")
		}
		return text.String()
	case first != "":
		return y.scalar(first)
	}
	if _, inner := y.next(); inner > indent {
		return y.value(inner)
	}
	return ""
}

// scalar returns a plain scalar, or a list of them in brackets. A plain scalar must not look
// like anything else in YAML.
func (y *yaml) scalar(text string) any {
	if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
		return strings.Split(strings.TrimSuffix(inner, "]"), ", ")
	}
	if strings.ContainsAny(text[:1], "[]{}&*!|>'\"%@`,?#") || strings.HasPrefix(text, "- ") || strings.Contains(text, ": ") || strings.Contains(text, " #") || strings.HasSuffix(text, ":") {
		y.err = fmt.Errorf("line %d: put %q in quotes, and teach this test to read them", y.at, text)
	}
	return text
}
