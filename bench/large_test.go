package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store/memory"
)

// large are the numbers of keys of BenchmarkLarge, and the memory that it needs for each.
var large = []struct {
	keys int
	need int64 // bytes
}{
	{1_000_000, 1 << 30},
	{10_000_000, 6 << 30}, // while a hash table grows, both tables exist
}

// hoards are the limiters in memory whose keys BenchmarkLarge counts: weir, and those that remove
// none meanwhile.
var hoards = map[string]bool{"weir-gcra": true, "xtimerate-syncmap": true, "sethvargo-memorystore": true, "throttled": true}

// BenchmarkLarge measures memory stores with many keys. It needs memory and minutes, so it
// runs only if WEIR_BENCH_LARGE is 1. It reports
//   - ns/op: a decision for a random known key,
//   - new-ns/op: a decision for a new key, while the store grows,
//   - swept-ns/op, of weir: the same, after all keys have expired: each new key removes a few,
//   - bytes/key: the growth of the heap,
//   - gc-ms: a collection, and gc-pause-µs: its longest pause while a goroutine decides.
func BenchmarkLarge(b *testing.B) {
	if os.Getenv("WEIR_BENCH_LARGE") != "1" {
		b.Skip("WEIR_BENCH_LARGE is not 1: memory stores with millions of keys are not measured")
	}
	for _, size := range large {
		for _, l := range locals {
			if !hoards[l.name] || l.name != "weir-gcra" && size.keys > 1_000_000 {
				continue
			}
			b.Run(fmt.Sprintf("impl=%s/keys=%d", l.name, size.keys), func(b *testing.B) {
				if free := availableMemory(); free > 0 && free < size.need {
					skip(b, fmt.Sprintf("it needs %d MiB, and %d MiB are available", size.need>>20, free>>20))
				}
				benchLarge(b, size.keys, l)
			})
		}
	}
}

// TestLarge runs the benchmark with few keys.
func TestLarge(t *testing.T) {
	r := testing.Benchmark(func(b *testing.B) { benchLarge(b, 20_000, local{name: "weir-gcra"}) })
	for _, unit := range []string{"new-ns/op", "swept-ns/op", "bytes/key", "gc-ms", "gc-pause-µs"} {
		if r.Extra[unit] <= 0 {
			t.Errorf("%s is %v", unit, r.Extra[unit])
		}
	}
}

func benchLarge(b *testing.B, keys int, l local) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	before, sweeps := heap(), l.name == "weir-gcra"
	if sweeps {
		l.make = func(tb testing.TB) func(string) bool {
			lim := newLimiter(tb, memory.New(&memory.Options{
				MaxKeys: 2*keys + 100_000, // room for the new keys too
				Now:     func() time.Time { return now },
			}), policy(weir.Rule{Algorithm: gcra}), nil)
			ctx := context.Background()
			return func(key string) bool {
				res, err := lim.Allow(ctx, key)
				return err == nil && res.Allowed
			}
		}
	}
	decide := l.make(b)
	allow := func(key string) {
		if !decide(key) {
			b.Fatalf("%q was denied", key)
		}
	}
	fill := func(first int) (perKey float64) {
		const part = 100_000 // keys that exist at once
		var spent time.Duration
		for from := 0; from < keys; from += part {
			names := make([]string, min(part, keys-from))
			for i := range names {
				names[i] = "user:" + strconv.Itoa(first+from+i)
			}
			start := time.Now()
			for _, name := range names {
				allow(name)
			}
			spent += time.Since(start)
		}
		return float64(spent.Nanoseconds()) / float64(keys)
	}
	const first = 100_000_000_000_000 // so that all keys have 20 bytes
	grown := fill(first)
	bytes := float64(heap()-before) / float64(keys)

	random := rand.New(rand.NewPCG(1, 2))
	draws := make(draws, drawn)
	for i := range draws {
		draws[i] = "user:" + strconv.Itoa(first+random.IntN(keys))
	}
	pause, took := collections(func(i int) { allow(draws.at(i)) })

	for i := 0; b.Loop(); i++ {
		allow(draws.at(i))
	}

	if sweeps {
		now = now.Add(2 * window)
		b.ReportMetric(fill(first+keys), "swept-ns/op")
	}
	b.ReportMetric(grown, "new-ns/op")
	b.ReportMetric(bytes, "bytes/key")
	b.ReportMetric(float64(pause)/1e3, "gc-pause-µs")
	b.ReportMetric(float64(took)/1e6, "gc-ms")
}

// heap returns the bytes of live objects.
func heap() int64 {
	runtime.GC()
	runtime.GC() // sweeps what the first has found
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// collections collects garbage five times while a goroutine calls f. It returns the longest
// pause and the median time of a collection.
func collections(f func(i int)) (pause, median time.Duration) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				f(i)
			}
		}
	})
	const times = 5
	var took []time.Duration
	for range times {
		start := time.Now()
		runtime.GC()
		took = append(took, time.Since(start))
	}
	close(stop)
	wg.Wait()
	var s debug.GCStats
	debug.ReadGCStats(&s) // the latest first, and at least one pause for each collection
	for _, p := range s.Pause[:min(times, len(s.Pause))] {
		pause = max(pause, p)
	}
	slices.Sort(took)
	return pause, took[times/2]
}

// availableMemory returns the free bytes of the machine, or 0 if they are not known.
func availableMemory() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "MemAvailable:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0
	}
	return kib << 10
}
