package bench

import (
	"bufio"
	"context"
	"fmt"
	"go/version"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/bench/internal/callgrind"
	"github.com/weir-go/weir/store/memory"
)

// A localDecision is a decision in memory whose instructions are counted.
type localDecision struct {
	local

	allowed bool
	key     func(i int) string
}

func (d localDecision) String() string { return d.name + " " + decision(d.allowed) }

// localDecisions returns the decisions. The first one is the unit of the others.
func localDecisions() []localDecision {
	decisions := []localDecision{{local{"xtimerate", newXTimeRate}, true, user}}
	for _, allowed := range []bool{true, false} {
		limit := int64(1) // in a day
		if allowed {
			limit = 86_400
		}
		refill := algorithm.Every(window / time.Duration(limit))
		rules := []weir.Rule{
			{Name: "gcra", Algorithm: algorithm.GCRA{Rate: refill, Burst: limit}},
			{Name: "fixedwindow", Algorithm: algorithm.FixedWindow{Limit: limit, Window: window}},
			{Name: "slidingcounter", Algorithm: algorithm.SlidingCounter{Limit: limit, Window: window}},
			{Name: "tokenbucket", Algorithm: algorithm.TokenBucket{Capacity: limit, Refill: refill}},
			{Name: "slidinglog", Algorithm: algorithm.SlidingLog{Limit: limit, Window: window}},
		}
		add := func(name string, limiter func(testing.TB) func(string) bool) {
			decisions = append(decisions, localDecision{local{name, limiter}, allowed, user})
		}
		for _, rule := range rules {
			add(rule.Name, func(tb testing.TB) func(string) bool { return newLocal(tb, rule) })
		}
		add("four-rules", func(tb testing.TB) func(string) bool { return newLocal(tb, rules[:4]...) })
		add("gcra-pause", func(tb testing.TB) func(string) bool {
			return newLocal(tb, rules[0], weir.Rule{Name: "pause", Algorithm: algorithm.Pause{}})
		})
		add("leakybucket", func(tb testing.TB) func(string) bool {
			return newLocalQueue(tb, algorithm.LeakyBucket{Rate: refill, Queue: limit - 1})
		})
	}
	for _, k := range keyKinds {
		decisions = append(decisions,
			localDecision{local{"key-" + k.name, k.limiter}, true, k.key},
			localDecision{local{"plain-" + k.name, weirLocal(gcra)}, true, k.plain})
	}
	return decisions
}

// limiter returns a limiter whose keys have the segments of k.
func (k keyKind) limiter(tb testing.TB) func(string) bool {
	p := policy(weir.Rule{Algorithm: gcra})
	key := append(slices.Clone(k.segments), "")
	if len(key) > 1 {
		p.Segments = []string{"tenant", "user", "action"}[:len(key)]
	}
	lim := newLimiter(tb, memory.New(nil), p, nil)
	ctx := context.Background()
	return func(last string) bool {
		key[len(key)-1] = last
		res, err := lim.Allow(ctx, key...)
		return err == nil && res.Allowed
	}
}

// newLocalQueue returns a limiter whose requests can wait for a day.
func newLocalQueue(tb testing.TB, queue algorithm.LeakyBucket) func(string) bool {
	tb.Helper()
	lim := newLimiter(tb, memory.New(nil), policy(weir.Rule{Algorithm: queue}), nil)
	ctx := context.Background()
	return func(key string) bool {
		res, err := lim.Decide(ctx, weir.Request{Key: weir.KeyOf(key), MaxWait: window}, nil)
		return err == nil && res.Allowed
	}
}

const (
	deciderEnv  = "WEIR_BENCH_DECIDER" // 1 in the process that decides
	deciderStop = "paused"             // what it writes when it pauses

	decidedKeys = 1000
	decided     = 1 << 14 // how many decisions of each kind are counted
)

// TestMemoryInstructions fails if a decision in memory needs more instructions than
// memoryinstructions.txt says, by more than a twentieth. The unit is an allowed decision of
// x/time/rate in the same run.
//
// Another process makes the decisions. It runs this test too, but under callgrind.
func TestMemoryInstructions(t *testing.T) {
	if os.Getenv(deciderEnv) == "1" {
		decideAll(t)
		return
	}
	if !counted {
		t.Skip("WEIR_BENCH_CALLGRIND is not 1: instructions are not counted")
	}
	d := startDecider(t)
	got := map[string]float64{}
	var unit float64
	for i, what := range localDecisions() {
		d.await(t)
		if err := d.counter.Start(); err != nil {
			t.Fatal(err)
		}
		d.resume(t)
		d.await(t)
		n, err := d.counter.Stop()
		if err != nil {
			t.Fatal(err)
		}
		d.resume(t)
		if i == 0 {
			unit = float64(n)
			continue
		}
		got[what.String()] = float64(n) / unit
	}
	t.Logf("x/time/rate: %.0f instructions", unit/decided)
	checkRatios(t, "memoryinstructions.txt", version.Lang(runtime.Version())+" on "+runtime.GOARCH, "x/time/rate", got)
}

// A decider is the process that makes the decisions. It pauses before and after the
// decisions that are counted.
type decider struct {
	counter *callgrind.Counter
	in      io.Writer
	out     *bufio.Scanner
}

func startDecider(t *testing.T) *decider {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := callgrind.Command(dir, self, "-test.run=^TestMemoryInstructions$")
	// Without garbage collection and preemption, two runs differ less. Valgrind does not know
	// the instruction RDTSCP, which Go uses when a lock is held.
	cmd.Env = append(os.Environ(), deciderEnv+"=1", "GOGC=off", "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1,cpu.rdtscp=off")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // reports the kill
	})
	return &decider{callgrind.New(cmd, dir), in, bufio.NewScanner(out)}
}

// await returns when d pauses.
func (d *decider) await(t *testing.T) {
	t.Helper()
	if d.out.Scan() && d.out.Text() == deciderStop {
		return
	}
	text := []string{d.out.Text()}
	for d.out.Scan() {
		text = append(text, d.out.Text())
	}
	t.Fatalf("the process that decides failed:\n%s", strings.Join(text, "\n"))
}

// resume ends a pause.
func (d *decider) resume(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(d.in, "\n"); err != nil {
		t.Fatal(err)
	}
}

// decideAll makes the decisions, in the process that is a decider.
func decideAll(t *testing.T) {
	orders := bufio.NewScanner(os.Stdin)
	pause := func() {
		fmt.Println(deciderStop)
		if !orders.Scan() {
			t.Fatal("the process that counts has ended")
		}
	}
	for _, d := range localDecisions() {
		draws, allow := drawKeysOf(decided, decidedKeys, d.key), d.make(t)
		for i := range decidedKeys {
			allow(d.key(i))
		}
		pause()
		wrong := 0
		for i := range decided {
			if allow(draws.at(i)) != d.allowed {
				wrong++
			}
		}
		if wrong > 0 {
			t.Fatalf("%s: %d of %d requests got the other answer", d, wrong, decided)
		}
		pause()
	}
}
