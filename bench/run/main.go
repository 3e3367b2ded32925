// Command run measures everything that docs/performance.md says, and writes that page, its
// charts and a part of README.md. Run it in the directory bench:
//
//	go run ./run quick    # 10 short rounds of what the page compares: 3 minutes
//	go run ./run full     # 10 rounds of every benchmark: 15 minutes
//	go run ./run large    # memory stores with millions of keys: a few minutes and 6 GiB
//	go run ./run page     # write the page again from the results
//
// quick and full replace results.txt, except the results of large. large replaces only its
// own results. full keeps the replaced file as earlier.txt, so that the page can compare
// two runs. To try a change of a benchmark, a run can be shorter:
// go run ./run -rounds 1 quick.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-go/weir/bench/internal/page"
)

const (
	results = "results.txt"
	earlier = "earlier.txt" // results that the last full run replaced
	latest  = "latest.txt"  // results until they are complete
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
	keep  bool   // whether earlier.txt keeps the results that are replaced
}

var plans = map[string]plan{
	"quick": {
		takes: "about 3 minutes on two idle cores",
		each: []step{
			{bench: "^BenchmarkMemory$|^BenchmarkMemoryParallel$/./keys=1000$|^BenchmarkAround$", benchtime: "20ms"},
			{bench: "^Benchmark(Redis|Rueidis)$|^BenchmarkRedigo$/impl=(floor|weir-gcra|weir-gcra-clock|redisstore)$|^BenchmarkCoalesce$/./callers=64$|^BenchmarkPrefetch$/./callers=1$", benchtime: "30ms"},
			{bench: "^Benchmark(Server|Rules|SlidingLog)$|^BenchmarkAlgorithms$/././limit=100$|^BenchmarkPostgres", benchtime: "20ms"},
		},
		once: []step{
			{bench: "^BenchmarkCluster$", benchtime: "50ms", rounds: true},
			{bench: "^BenchmarkPeerBytes$|^BenchmarkBytes$/state=(gcra|tokenbucket|leakybucket|fixedwindow|slidingcounter)$|" +
				"^BenchmarkBytes$/state=(metadatawindow|slidingbuckets|slidinglog|concurrency)$/(entries=3|leases=3|used=1)$", benchtime: "1x", short: true},
		},
	},
	"full": {
		takes: "about 15 minutes on two idle cores",
		each:  []step{{bench: ".", skip: "Bytes|Cluster|Large", benchtime: "100ms"}},
		once: []step{
			{bench: "^BenchmarkCluster$", benchtime: "200ms", rounds: true},
			{bench: "Bytes", benchtime: "1x"},
		},
		keep: true,
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
	if err := write(".."); err != nil {
		log.Fatal(err)
	}
}

// measure runs a plan, and writes results.txt.
func measure(ctx context.Context, name string, p plan) error {
	start := time.Now()
	log.Printf("%s: %s", name, p.takes)
	r := &recorder{config: map[string]string{}}
	old, err := os.ReadFile(results)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if name == "large" {
		r.keepOthers(string(old))
	} else {
		r.keepLarge(string(old))
	}
	r.warn()
	if err := build(ctx); err != nil {
		return err
	}
	r.describe()
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
	if err := replace(r.text.String(), p.keep); err != nil {
		return err
	}
	for _, s := range r.skipped {
		log.Printf("left out, because %s: %s", s.reason, strings.Join(s.names, ", "))
	}
	log.Printf("%s took %.0f s", name, time.Since(start).Seconds())
	return nil
}

// replace writes new results. If keep is true, it keeps the old results as earlier.txt.
func replace(text string, keep bool) error {
	if err := os.WriteFile(latest, []byte(text), 0o644); err != nil {
		return err
	}
	if keep {
		if err := os.Rename(results, earlier); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return os.Rename(latest, results)
}

// warn notes that the machine is busy, if it is.
func (r *recorder) warn() {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return
	}
	var load float64
	if _, err := fmt.Sscan(string(text), &load); err == nil && load > 1 {
		log.Printf("the load average is %.1f: the machine is busy, so do not use the results", load)
		r.set("load", fmt.Sprintf("%.1f", load))
	}
}

// read reads a file of results.
func read(path string) (*page.Results, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	r, err := page.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// write writes the page and the part of README.md. root is the root of the repository.
func write(root string) error {
	r, err := read(results)
	if err != nil {
		return err
	}
	former, err := read(earlier)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	instructions, err := os.ReadFile("instructions.txt")
	if err != nil {
		return err
	}
	files := page.Make(r, former, string(instructions))
	readme, err := os.ReadFile(filepath.Join(root, page.Readme))
	if err != nil {
		return err
	}
	if files[page.Readme], err = page.Insert(string(readme), r); err != nil {
		return err
	}
	charts, err := filepath.Glob(filepath.Join(root, "docs", page.ChartDir, "*.svg"))
	if err != nil {
		return err
	}
	for _, path := range charts { // the page may have fewer now
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	var names []string
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
		names = append(names, name)
	}
	log.Printf("wrote %s", strings.Join(slices.Sorted(slices.Values(names)), ", "))
	return nil
}
