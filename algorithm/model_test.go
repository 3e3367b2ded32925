package algorithm_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// atBounds are limits whose numbers are as large as they can be, or as uneven. Those of a line
// follow one another.
var atBounds = [][]algorithm.Algorithm{
	{algorithm.GCRA{Rate: algorithm.Rate{Count: 4503599627370, Period: 1}, Burst: 4503599627370991}, algorithm.GCRA{Rate: algorithm.PerDay(999_999_937), Burst: 100}, algorithm.GCRA{Rate: algorithm.Every(us), Burst: contract.MaxSpan}},
	{algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 9_007_199_254}, algorithm.GCRA{Rate: algorithm.PerMinute(3), Burst: 1}, algorithm.GCRA{Rate: algorithm.Rate{Count: 997_000_003, Period: 7 * time.Second}, Burst: 1}},
	{algorithm.GCRA{Rate: algorithm.Every(maxSpan), Burst: 1}, algorithm.GCRA{Rate: algorithm.Rate{Count: 4503599627370, Period: 1}, Burst: 1}},
	{algorithm.GCRA{Rate: algorithm.PerDay(1_000_003), Burst: 104_249}, algorithm.GCRA{Rate: algorithm.PerSecond(999_999_937), Burst: 90_000}},
	{algorithm.LeakyBucket{Rate: algorithm.PerDay(1_000_003), Queue: 100_000}, algorithm.LeakyBucket{Rate: algorithm.Every(us), Queue: contract.MaxSpan - 1}},
	{algorithm.TokenBucket{Refill: algorithm.PerSecond(4503599627273), Capacity: 9002199254741076, AtOnce: true}, algorithm.TokenBucket{Refill: algorithm.PerDay(104_191), Capacity: 999_999_937}},
	{algorithm.TokenBucket{Refill: algorithm.PerMinute(997), Capacity: 100}, algorithm.TokenBucket{Refill: algorithm.Rate{Count: contract.MaxSpan / 1000, Period: maxSpan}, Capacity: 1, AtOnce: true}},
	{algorithm.TokenBucket{Refill: algorithm.Every(us), Capacity: contract.MaxSpan}, algorithm.TokenBucket{Refill: algorithm.PerSecond(1_000_000_000), Capacity: algorithm.MaxTokens - 1000}},
	{algorithm.TokenBucket{Refill: algorithm.Rate{Count: 2, Period: us}, Capacity: algorithm.MaxTokens - 2, AtOnce: true}, algorithm.TokenBucket{Refill: algorithm.Rate{Count: 7, Period: maxSpan}, Capacity: 7, AtOnce: true}},
	{algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: 24 * time.Hour, Aligned: true}, algorithm.FixedWindow{Limit: 10, Window: maxSpan}},
	{algorithm.SlidingCounter{Limit: algorithm.MaxCounter, Window: time.Hour}},
	{algorithm.SlidingCounter{Limit: 1, Window: maxSpan / 4}},
	{algorithm.SlidingLog{Limit: algorithm.MaxLogTokens, Window: time.Millisecond}},
	{algorithm.SlidingLog{Limit: algorithm.MaxLogTokens / 2, Window: maxSpan}},
	{algorithm.Concurrency{Limit: 2, Lease: maxSpan}},
}

// FuzzModels compares random histories of each algorithm with its model: requests of all
// sizes that can wait or not, forced requests, refunds of a part, limits that change, and
// clocks that step back, whether or not the store removes expired keys. The first histories
// are at the bounds.
func FuzzModels(f *testing.F) {
	histories := uint64(40)
	if testing.Short() {
		histories = 8
	}
	for which := range len(model.Wide.All()) + len(atBounds) {
		for seed := range histories {
			f.Add(which, seed)
		}
	}
	f.Fuzz(func(t *testing.T, which int, seed uint64) {
		r := rand.New(rand.NewPCG(seed, uint64(which)))
		var limits []algorithm.Algorithm
		if which = int(uint(which) % uint(len(model.Wide.All())+len(atBounds))); which < len(atBounds) {
			limits = atBounds[which]
		} else {
			make := model.Pick(r, model.Wide, model.Usual).All()[which-len(atBounds)]
			for range 3 {
				limits = append(limits, like(make(r), limits))
			}
		}
		newWalk(t, r, limits).run(100)
	})
}

// like returns a, or a limit like the others if the documentation does not say exactly what a
// change from them to a keeps.
func like(a algorithm.Algorithm, others []algorithm.Algorithm) algorithm.Algorithm {
	if len(others) == 0 {
		return a
	}
	switch b := others[0].(type) {
	case algorithm.SlidingLog:
		b.Limit = a.(algorithm.SlidingLog).Limit
		return b
	case algorithm.SlidingCounter:
		b.Limit = a.(algorithm.SlidingCounter).Limit
		return b
	case algorithm.SlidingBuckets:
		b.Spans = slices.Clone(b.Spans)
		for i := range b.Spans {
			b.Spans[i].Limit += int64(len(others))
		}
		return b
	}
	return a
}

// A walk is a random history of one limit.
type walk struct {
	*bench
	r      *rand.Rand
	limits []algorithm.Algorithm
	made   []*contract.Limit
	which  int
	model  model.Model
	wrote  int // the limit that wrote the key last, or -1
	now    int64
	seen   int64 // the latest time
	empty  bool  // the newest entry or bucket can be empty: the clock must not step back
	marks  []marked
}

// A marked is a decision that can be refunded.
type marked struct {
	mark  charge
	tally *model.Tally
	which int
	ends  int64 // when the state after the decision ends
}

func newWalk(t *testing.T, r *rand.Rand, limits []algorithm.Algorithm) *walk {
	w := &walk{bench: newBench(t, limits[0]), r: r, limits: limits, wrote: -1, now: epoch, model: model.New(limits[0])}
	for _, a := range limits {
		w.made = append(w.made, mustLimit(t, a))
	}
	w.state.keep = r.IntN(2) == 0
	if r.IntN(8) == 0 {
		w.now = model.Pick(r, 1, 1<<52-1, 1+r.Int64N(1<<52-1))
	}
	switch limits[0].(type) {
	case algorithm.SlidingBuckets: // each bucket would expire alone
		w.state.keep = true
	case algorithm.SlidingLog: // sometimes, BEFORE and NUMBER start again at 0
		if w.state.keep && w.now == epoch && r.IntN(2) == 0 {
			text := fmt.Sprintf("l3 %d %d %d 1", w.now, 1<<23-1-r.IntN(40), algorithm.MaxLogTokens-1-r.Int64N(1000))
			w.state.keys[0] = value{held: true, expires: 1 << 60, set: []store.Member{{Score: w.now, Text: text}}}
			w.model.Take(w.now, 1)
		}
	}
	return w
}

func (w *walk) run(steps int) {
	for range steps {
		w.pause()
		if w.r.IntN(6) == 0 {
			w.change(w.r.IntN(len(w.limits)))
		}
		switch op := w.r.IntN(10); {
		case op == 0 && w.limit.MaxDebt > 0:
			w.force()
		case op == 1 && w.r.IntN(8) == 0:
			w.do(script.Reset, w.now, compose.Call{Cost: 1})
			w.model, w.wrote = model.New(w.limits[w.which]), -1 // and a refund finds nothing
			w.empty = false
		case op < 4 && len(w.marks) > 0:
			w.refund()
		default:
			w.ask()
		}
	}
}

// pause moves the clock: by a random time, or to about the end of a wait.
func (w *walk) pause() {
	step := model.Pause(w.r, model.Unit(w.limits[w.which])).Microseconds()
	if w.r.IntN(4) == 0 {
		step = model.Pick(w.r, w.result.RetryAfter, w.result.ResetAfter, w.result.Delay).Microseconds() + w.r.Int64N(3) - 1
	}
	if to := w.now + step; to >= 1 && to < 1<<52 {
		w.now = to
	}
	w.now = max(w.now, w.afterWrap())
	if w.seen = max(w.seen, w.now); w.empty {
		w.now = w.seen
	}
	if w.state.keep {
		return
	}
	if key := &w.state.keys[0]; key.held && key.expires <= w.now {
		w.model.Set(w.limits[w.wrote])
		if n := w.used(); n > 0 {
			w.t.Fatalf("%s: the key has expired, and %d tokens are in use by the limit that wrote it", w, n)
		}
		*key, w.model = value{}, model.New(w.limits[w.which])
	}
}

func (w *walk) String() string { return fmt.Sprintf("%+v at %d", w.limits[w.which], w.now-epoch) }

// used returns the largest number of tokens in use of any span.
func (w *walk) used() (n int64) {
	for _, s := range w.model.Spans() {
		n = max(n, w.model.Used(w.now, s))
	}
	return n
}

// change changes the limit, if the documentation says exactly what stays.
func (w *walk) change(which int) {
	w.use(w.made[which])
	w.which = which
	w.model.Set(w.limits[which])
}

// cost returns a small cost, a part of the capacity, about the capacity, or the largest cost.
func (w *walk) cost() int64 {
	capacity, cost := w.limit.Capacity, 1+w.r.Int64N(4)
	switch w.r.IntN(9) {
	case 0, 1:
		cost = capacity / (1 + w.r.Int64N(20))
	case 2:
		cost = capacity - 3 + w.r.Int64N(5)
	case 3:
		cost = model.Pick(w.r, algorithm.MaxTokens, capacity/1000)
	}
	return min(max(cost, 1), algorithm.MaxTokens)
}

// ask makes a request, and checks the answer.
func (w *walk) ask() {
	v := model.Pick(w.r, script.Consume, script.Consume, script.ConsumeMark, script.ConsumeMark, script.UpTo, script.Peek)
	c := compose.Call{Cost: w.cost()}
	leases, isLeases := w.model.(*model.Leases)
	switch {
	case isLeases:
		v = model.Pick(w.r, script.Consume, script.Consume, script.Peek, script.Renew, script.Release)
		c.Cost, c.Text = 1, fmt.Sprint(w.r.IntN(int(w.limit.Capacity)+2))
		leases.Name, leases.Renew = c.Text, v == script.Renew
		if v == script.Release {
			if got, want := w.lease(v, w.now, c.Text).Allowed, leases.Release(w.now, c.Text); got != want {
				w.t.Fatalf("%s: released %v, want %v", w, got, want)
			}
			return
		}
	case v == script.ConsumeMark && !w.program.Marked(0):
		v = script.Consume
	}
	if reserves(w.limit) && w.r.IntN(2) == 0 {
		c.Wait = model.Pick(w.r, model.Wait(w.r, model.Unit(w.limits[w.which])), w.result.Delay, w.result.RetryAfter, w.result.RetryAfter-us).Microseconds()
		c.Wait = min(max(c.Wait, 0), w.limit.MaxWait)
	}
	rules, cost := []model.Rule{{Model: w.model}}, c.Cost
	if v == script.UpTo {
		cost = max(model.UpTo(rules, w.now, c.Wait, cost), 1)
	}
	_, each := model.Decide(rules, w.now, c.Wait, cost, v != script.Peek)
	want := each[0]
	if v == script.ConsumeMark {
		w.gen++
		c.Gen = w.gen
		w.state.keys[len(w.state.keys)-1] = value{}
	}
	_, got := w.do(v, w.now, c)
	w.compare(v, c, want)
	if want.Granted > 0 {
		w.wrote = w.which
	}
	if v == script.ConsumeMark && want.Granted > 0 && want.Tally != nil {
		w.marks = append(w.marks, marked{w.state.keys[len(w.state.keys)-1], want.Tally, w.which, w.now + want.ResetAfter.Microseconds()})
	}
	w.checkPossible(got)
	if w.state.keep || w.which == w.wrote { // else the key can expire sooner
		w.checkExact(w.now, cost, time.Duration(c.Wait)*us, got)
	}
	w.integers()
}

// compare checks that an answer is the model's.
func (w *walk) compare(v script.Verb, c compose.Call, want model.Answer) {
	w.t.Helper()
	want.Tally = nil
	got := model.Answer{
		Allowed: w.result.Allowed, Granted: w.result.Granted, Limit: w.result.Limit, Remaining: w.result.Remaining,
		Window: w.result.Window, RetryAfter: w.result.RetryAfter, ResetAfter: w.result.ResetAfter, Delay: w.result.Delay,
	}
	if got != want {
		w.t.Fatalf("%s: %s, %+v:\ngot  %+v\nwant %+v", w, w.program.Script(v).Name(), c, got, want)
	}
}

// force makes a forced request.
func (w *walk) force() {
	cost := w.cost()
	want := model.Force(w.model, w.now, cost, w.limit.MaxDebt)
	gcra, _ := w.model.(*model.GCRA)
	got, mark := w.bench.force(w.now, cost)
	if got != want && (gcra == nil || !gcra.Deep(w.now) || max(got-want, want-got) > 4) {
		w.t.Fatalf("%s: a force of %d consumed %d, want %d", w, cost, got, want)
	}
	if got == 0 {
		return
	}
	w.wrote = w.which
	tally := w.model.Take(w.now, got)
	if n := w.state.keys[0].nums.N; gcra != nil && !gcra.Follow(got, n[0], n[1]) {
		w.t.Fatalf("%s: after a force of %d, the key holds %v", w, got, n)
	}
	if tally != nil && w.program.Marked(0) {
		w.marks = append(w.marks, marked{mark, tally, w.which, w.now + w.peek(w.now, 1).ResetAfter.Microseconds()})
	}
}

// refund refunds a part of a decision that the limit can refund.
func (w *walk) refund() {
	i := max(0, len(w.marks)-1-w.r.IntN(6))
	m := &w.marks[i]
	if m.which != w.which {
		return
	}
	n := 1 + w.r.Int64N(m.mark.nums.N[1])
	want := w.now < m.ends && model.Refund(w.model, w.now, m.tally, n)
	w.empty = w.empty || want
	if got := w.part(w.now, &m.mark, n); got != want {
		w.t.Fatalf("%s: a refund of %d says %v, want %v", w, n, got, want)
	}
	if m.mark.nums.N[1] == 0 {
		w.marks = slices.Delete(w.marks, i, i+1)
	}
}
