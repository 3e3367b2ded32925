// Command run measures everything that docs/performance.md says, and writes that page, its
// charts, and parts of README.md and of docs/compare.md. Run it in the directory bench:
//
//	go run ./run quick    # 10 short rounds of what the page compares: 4 minutes
//	go run ./run full     # 10 rounds of every benchmark: 21 minutes
//	go run ./run large    # memory stores with millions of keys: a few minutes and 6 GiB
//	go run ./run page     # write the page again from the results
//
// Each run writes all that it measured to latest.txt, and what the pages need of that to
// results.txt. quick and full keep the results of large there, and large keeps all others. full
// keeps the replaced results as earlier.txt, so that the page can compare two runs. To try a
// change of a benchmark, a run can be shorter: go run ./run -rounds 1 quick.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-go/weir/bench/internal/page"
)

const (
	results = "results.txt"
	earlier = "earlier.txt" // results that the last full run replaced
	latest  = "latest.txt"  // all that the last command measured, in Go's benchmark format
)

var rounds = flag.Int("rounds", 10, "how many times each benchmark runs")

// A step is a run of the test binary.
type step struct {
	bench     string // the pattern of -test.bench
	skip      string // the pattern of -test.skip
	benchtime string
	rounds    bool // all rounds in one run
	short     bool // with -test.short
}

// A plan is what a command measures.
type plan struct {
	takes string
	each  []step // in every round
	once  []step // after the rounds
}

var plans = map[string]plan{
	"quick": {
		takes: "about 4 minutes on two idle cores",
		each: []step{
			{bench: "^BenchmarkMemory$|^BenchmarkMemoryParallel$/./keys=1000$|^BenchmarkAround$", benchtime: "20ms"},
			{bench: "^Benchmark(Redis|Rueidis)$|^BenchmarkRedigo$/impl=(floor|weir-bucket|weir-gcra|redisstore)$|^BenchmarkCoalesce$/./callers=64$|^BenchmarkPrefetch$/./callers=1$", benchtime: "30ms"},
			{bench: "^Benchmark(Server|Rules|SlidingLog)$|^BenchmarkAlgorithms$/././limit=100$|^Benchmark(Postgres|SQLite|NATS|Threads)", benchtime: "20ms"},
		},
		once: []step{
			{bench: "^BenchmarkCluster$", benchtime: "50ms", rounds: true},
			{bench: "^BenchmarkPeerBytes$|^BenchmarkBytes$/state=gcra$|^BenchmarkBytes$/state=slidinglog$/entries=", benchtime: "1x", short: true},
		},
	},
	"full": {
		takes: "about 21 minutes on two idle cores",
		each:  []step{{bench: ".", skip: "Bytes|Cluster|Large", benchtime: "100ms"}},
		once: []step{
			{bench: "^BenchmarkCluster$", benchtime: "200ms", rounds: true},
			{bench: "Bytes", benchtime: "1x"},
		},
	},
	"large": {
		takes: "a few minutes on two idle cores",
		once:  []step{{bench: "^BenchmarkLarge$", benchtime: "1s"}},
	},
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	flag.Parse()
	command := flag.Arg(0)
	p, ok := plans[command]
	switch {
	case flag.NArg() == 1 && ok:
		if err := measure(ctx, command, p); err != nil {
			log.Fatal(err)
		}
	case command != "page":
		log.Fatalf("%q is not a command: use quick, full, large or page", flag.Args())
	}
	if err := write(command, ".."); err != nil {
		log.Fatal(err)
	}
}

// measure runs a plan, and writes latest.txt.
func measure(ctx context.Context, name string, p plan) error {
	start := time.Now()
	log.Printf("%s: %s", name, p.takes)
	r := &recorder{config: map[string]string{}, skipped: map[string]bool{}}
	r.warn(map[bool]string{false: "load", true: page.LargeLoad}[name == "large"])
	if err := build(ctx); err != nil {
		return err
	}
	r.set("go", runtime.Version()) // of the test binary too
	r.set("gomaxprocs", strconv.Itoa(runtime.GOMAXPROCS(0)))
	n := *rounds
	if len(p.each) == 0 {
		n = 0
	}
	for i := range n {
		from := time.Now()
		for _, s := range p.each {
			if err := r.run(ctx, s); err != nil {
				return err
			}
		}
		log.Printf("round %d of %d: %.0f s", i+1, n, time.Since(from).Seconds())
	}
	for _, s := range p.once {
		from := time.Now()
		if err := r.run(ctx, s); err != nil {
			return err
		}
		log.Printf("%.30s…: %.0f s", s.bench, time.Since(from).Seconds())
	}
	if err := os.WriteFile(latest, []byte(r.text.String()), 0o644); err != nil {
		return err
	}
	for _, line := range slices.Sorted(maps.Keys(r.skipped)) {
		log.Print(line)
	}
	log.Printf("%s took %.0f s", name, time.Since(start).Seconds())
	return nil
}

// warn notes that the machine is busy, if it is.
func (r *recorder) warn(setting string) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return
	}
	var load float64
	if _, err := fmt.Sscan(string(text), &load); err == nil && load > 1 {
		log.Printf("the load average is %.1f: the machine is busy, so do not use the results", load)
		r.set(setting, fmt.Sprintf("%.1f", load))
	}
}

// read reads a file of results. If it does not exist, there are none.
func read(path string) (*page.Results, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	r, err := page.Read(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// gather returns the results after a command, and the results to compare them with.
func gather(command string) (now, before *page.Results, err error) {
	old, errOld := read(results)
	before, errBefore := read(earlier)
	measured, errMeasured := read(latest)
	if err := errors.Join(errOld, errBefore, errMeasured); err != nil {
		return nil, nil, err
	}
	switch command {
	case "page":
		return old, before, nil
	case "large":
		return page.Merge(old, measured), before, nil
	case "full":
		before = old
	}
	return page.Merge(measured, old), before, nil
}

// write writes the results, the page and the parts of others after a command. root is the
// root of the repository.
func write(command, root string) error {
	r, former, err := gather(command)
	if err != nil {
		return err
	}
	readme, errReadme := os.ReadFile(filepath.Join(root, page.Readme))
	compare, errCompare := os.ReadFile(filepath.Join(root, page.Compare))
	if err := errors.Join(errReadme, errCompare); err != nil {
		return err
	}
	files, err := page.Make(r, former, string(readme), string(compare))
	if err != nil {
		return err
	}
	charts, err := filepath.Glob(filepath.Join(root, page.ChartDir, "*.svg"))
	if err != nil {
		return err
	}
	for _, path := range charts { // the page may have fewer now
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	log.Printf("wrote %s", strings.Join(slices.Sorted(maps.Keys(files)), ", "))
	return nil
}

// binary is the test binary.
const binary = "bench.test"

func build(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, ".")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// A recorder collects the results of runs.
type recorder struct {
	text    strings.Builder   // in Go's benchmark format
	config  map[string]string // of the last line
	skipped map[string]bool   // lines that say which benchmark did not run, and why
}

// set adds a line of configuration, unless it is the same as before.
func (r *recorder) set(name, value string) {
	if r.config[name] != value {
		r.config[name] = value
		fmt.Fprintf(&r.text, "%s: %s\n", name, value)
	}
}

// run runs a step.
func (r *recorder) run(ctx context.Context, s step) error {
	args := []string{"-test.run", "^$", "-test.timeout", "0", "-test.bench", s.bench, "-test.benchtime", s.benchtime}
	if s.rounds {
		args = append(args, "-test.count", strconv.Itoa(*rounds))
	}
	if s.skip != "" {
		args = append(args, "-test.skip", s.skip)
	}
	if s.short {
		args = append(args, "-test.short")
	}
	path, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "WEIR_BENCH_LARGE=1")
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out.Bytes())
	}
	r.read(out.String())
	return nil
}

// read adds the lines of results and of configuration, and notes which benchmarks were skipped.
func (r *recorder) read(output string) {
	for line := range strings.Lines(output) {
		fields := strings.Fields(line)
		if strings.HasPrefix(line, "Benchmark") && len(fields) > 2 {
			fmt.Fprintln(&r.text, strings.Join(fields, " "))
			continue
		}
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), ": "); name {
		case "skipped":
			r.skipped["skipped: "+value] = true
		case "goos", "goarch", "cpu", "server", "postgres", "go", "gomaxprocs", "load":
			r.set(name, value)
		}
	}
}
