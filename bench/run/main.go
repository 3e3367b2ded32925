// Command run measures everything that docs/performance.md says, and writes that page and a part
// of README.md. Run it in the directory bench:
//
//	go run ./run quick    # 10 short rounds of what the page compares: 4 minutes
//	go run ./run full     # 10 rounds of every benchmark: 21 minutes
//	go run ./run large    # memory stores with millions of keys: a few minutes and 6 GiB
//	go run ./run page     # write the page again from the results
//
// Each run writes all that it measured to latest.txt, and what the page needs of that to
// results.txt, or for large, to large.txt. To try a change of a benchmark, a run can be shorter:
// go run ./run -rounds 1 quick.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	latest  = "latest.txt"  // all that the last command measured
	results = "results.txt" // what the page needs of quick or full
	large   = "large.txt"   // what the page needs of large
)

var rounds = flag.Int("rounds", 10, "how many times each benchmark runs")

// A step is a run of the test binary: the patterns of -test.bench and -test.skip, and how long
// each benchmark takes.
type step struct {
	bench, skip, time string
	count             bool // all rounds in one run
	short             bool // with -test.short
}

// plans are what the commands measure: in every round, and once after the rounds.
var plans = map[string]struct{ each, once []step }{
	"quick": {
		each: []step{
			{bench: "^BenchmarkMemory$|^BenchmarkMemoryParallel$/./keys=1000$|^BenchmarkAround$", time: "20ms"},
			{bench: "^Benchmark(Redis|Rueidis)$|^BenchmarkRedigo$/impl=(floor|weir-bucket|weir-gcra|redisstore)$|^BenchmarkCoalesce$/./callers=64$|^BenchmarkPrefetch$/./callers=1$", time: "30ms"},
			{bench: "^Benchmark(Server|Rules)$|^BenchmarkAlgorithms$/././limit=100$|^BenchmarkAlgorithms$/impl=slidinglog/decision=allowed|^Benchmark(Postgres|SQLite|NATS|Threads)", time: "20ms"},
		},
		once: []step{
			{bench: "^BenchmarkCluster$", time: "50ms", count: true},
			{bench: "^BenchmarkPeerBytes$|^BenchmarkBytes$/state=gcra$|^BenchmarkBytes$/state=slidinglog$/entries=", time: "1x", short: true},
		},
	},
	"full": {
		each: []step{{bench: ".", skip: "Bytes|Cluster|Large", time: "100ms"}},
		once: []step{{bench: "^BenchmarkCluster$", time: "200ms", count: true}, {bench: "Bytes", time: "1x"}},
	},
	"large": {once: []step{{bench: "^BenchmarkLarge$", time: "1s"}}},
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	flag.Parse()
	if err := run(ctx, flag.Arg(0)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, command string) error {
	from := map[string]string{results: results, large: large} // what to read for each file
	if _, ok := plans[command]; ok {
		if err := measure(ctx, command); err != nil {
			return err
		}
		if command == "large" {
			from[large] = latest
		} else {
			from[results] = latest
		}
	} else if command != "page" {
		return fmt.Errorf("%q is not a command: use quick, full, large or page", command)
	}
	files, err := write("..", from[results], from[large])
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join("..", filepath.FromSlash(name)), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// measure runs a plan, and writes latest.txt.
func measure(ctx context.Context, command string) error {
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", "bench.test", ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	file, err := os.Create(latest)
	if err != nil {
		return err
	}
	defer file.Close()
	fmt.Fprintf(file, "go: %s\ngomaxprocs: %d\n", runtime.Version(), runtime.GOMAXPROCS(0))
	var load float64
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		if _, err := fmt.Sscan(string(text), &load); err == nil && load > 1 {
			log.Printf("the load average is %.1f: the machine is busy, so do not use the results", load)
			fmt.Fprintf(file, "load: %.1f\n", load)
		}
	}
	skipped := map[string]bool{}
	all := func(steps []step) error {
		start := time.Now()
		for _, s := range steps {
			output, err := s.run(ctx)
			if err != nil {
				return err
			}
			if err := keep(file, output, skipped); err != nil {
				return err
			}
		}
		log.Printf("%s: %.0f s", command, time.Since(start).Seconds())
		return nil
	}
	if len(plans[command].each) > 0 {
		for range *rounds {
			if err := all(plans[command].each); err != nil {
				return err
			}
		}
	}
	return all(plans[command].once)
}

// run runs a step, and returns what it prints.
func (s step) run(ctx context.Context) ([]byte, error) {
	args := []string{"-test.run=^$", "-test.timeout=0", "-test.bench=" + s.bench, "-test.skip=" + s.skip, "-test.benchtime=" + s.time, fmt.Sprintf("-test.short=%v", s.short)}
	if s.count {
		args = append(args, fmt.Sprintf("-test.count=%d", *rounds))
	}
	cmd := exec.CommandContext(ctx, "./bench.test", args...)
	cmd.Env = append(os.Environ(), "WEIR_BENCH_LARGE=1")
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, output)
	}
	return output, nil
}

// keep writes the output of a step, without the lines that say which benchmark did not run. It
// logs each of them once.
func keep(w io.Writer, output []byte, skipped map[string]bool) error {
	for line := range bytes.Lines(output) {
		if text := strings.TrimSpace(string(line)); strings.HasPrefix(text, "skipped: ") {
			if !skipped[text] {
				log.Print(text)
			}
			skipped[text] = true
			continue
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}
