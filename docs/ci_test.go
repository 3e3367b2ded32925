package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// TestWorkflow checks that the workflow of ci.md and that of this repository are YAML, that
// their parts have what GitHub needs, and that the directories, test functions, variables
// and ports in them exist.
func TestWorkflow(t *testing.T) {
	m := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(readFile(t, "docs/reference/ci.md"), -1)
	if len(m) != 1 {
		t.Fatalf("ci.md has %d blocks of YAML, want 1", len(m))
	}
	for name, text := range map[string]string{"ci.md": m[0][1], "ci.yml": readFile(t, ".github/workflows/ci.yml")} {
		for _, defect := range workflowDefects(t, text) {
			t.Errorf("%s: %s", name, defect)
		}
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

// workflowDefects returns what is wrong with a workflow.
func workflowDefects(t *testing.T, text string) (defects []string) {
	var top map[string]any
	if err := yaml.Unmarshal([]byte(text), &top); err != nil {
		return []string{err.Error()}
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
