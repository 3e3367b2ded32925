package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// lostPolicies have rules that can refund: each algorithm alone, with a limit of limit tokens,
// and several rules together.
func lostPolicies(limit int64) map[string][]weir.Rule {
	all := map[string][]weir.Rule{"several rules": wireRules}
	for name, a := range map[string]algorithm.Algorithm{
		"FixedWindow":      algorithm.FixedWindow{Limit: limit, Window: time.Hour},
		"SlidingCounter":   algorithm.SlidingCounter{Limit: limit, Window: time.Hour},
		"SlidingBuckets":   algorithm.SlidingBuckets{Width: time.Minute, Spans: []algorithm.Span{{Window: time.Hour, Limit: limit}}},
		"SlidingLog":       algorithm.SlidingLog{Limit: limit, Window: time.Hour},
		"GCRA":             algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: limit},
		"GCRA of sevenths": algorithm.GCRA{Rate: algorithm.Rate{Count: 7, Period: time.Minute}, Burst: limit},
		"TokenBucket":      algorithm.TokenBucket{Capacity: limit, Refill: algorithm.PerMinute(1)},
		"LeakyBucket":      algorithm.LeakyBucket{Rate: algorithm.PerMinute(1), Queue: limit - 1},
	} {
		all[name] = []weir.Rule{{Name: "rule", Algorithm: a}}
	}
	return all
}

// lostLimiters returns a limiter on st, and one on a memory store, in a time that stands still.
func lostLimiters(t *testing.T, st store.Store, name string, rules []weir.Rule) (lim, twin *weir.Limiter) {
	t.Helper()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for st, l := range map[store.Store]**weir.Limiter{st: &lim, memory.New(nil): &twin} {
		var err error
		*l, err = weir.NewPolicy(st, weir.Policy{Name: "lost " + name, Segments: []string{"tenant", "user", "ip"}, Rules: rules},
			&weir.Options{Clock: func() time.Time { return at }})
		if err != nil {
			t.Fatal(err)
		}
	}
	return lim, twin
}

// TestLostReply loses the reply to each verb that can have an ID. Whether the client or the
// caller repeats the request, it has its effect once, and the answer to the repetition is as
// documented. A memory store, which gets the same requests and loses no reply, says which
// effect.
func TestLostReply(t *testing.T) {
	servers.Need(t)
	first, settled := weir.Request{Cost: 3, ID: "x"}, func(actual int64) weir.Request {
		return weir.Request{Op: weir.Settle, ID: "x", Actual: weir.ActualCost(actual)}
	}
	forced := weir.Request{Op: weir.Force, Cost: 7, ID: "x"}
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			st, wire := a.tapped(t)
			retries := 0
			for name, rules := range lostPolicies(5) {
				if testing.Short() && name != "several rules" && name != "GCRA" {
					continue
				}
				lim, twin := lostLimiters(t, st, name, rules)
				for _, tt := range []struct {
					name   string
					before []weir.Request
					lost   weir.Request
					again  weir.Result // Allowed, Granted and Replayed of the answer to a repetition
				}{
					{"Consume", nil, first, weir.Result{Allowed: true, Granted: 3, Replayed: true}},
					{"TakeUpTo", nil, weir.Request{Op: weir.TakeUpTo, Cost: 4, ID: "x"}, weir.Result{Allowed: true, Granted: 4, Replayed: true}},
					{"Force", nil, weir.Request{Op: weir.Force, Cost: 3, ID: "x"}, weir.Result{Allowed: true, Granted: 3, Replayed: true}},
					{"Force past the limit", []weir.Request{{Cost: 2}}, forced, weir.Result{Allowed: true, Granted: 7, Replayed: true}},
					{"Settle to less", []weir.Request{first}, settled(1), weir.Result{Allowed: true, Granted: 1}},
					{"Settle to nothing", []weir.Request{first}, settled(0), weir.Result{Allowed: true}},
					{"Settle to as much", []weir.Request{first}, settled(3), weir.Result{Allowed: true, Granted: 3}},
					{"Settle to more", []weir.Request{first}, settled(4), weir.Result{Allowed: true, Granted: 4}},
					{"Settle past the limit", []weir.Request{first}, settled(9), weir.Result{Allowed: true, Granted: 9}},
					{"Settle of a Force to less", []weir.Request{forced}, settled(2), weir.Result{Allowed: true, Granted: 2}},
					{"Settle of a Force to more", []weir.Request{forced}, settled(8), weir.Result{Allowed: true, Granted: 8}},
					{"Settle of nothing", nil, settled(8), weir.Result{}},
					{"Refund", []weir.Request{first}, weir.Request{Op: weir.Refund, ID: "x"}, weir.Result{}},
					{"Refund of a Force", []weir.Request{forced}, weir.Request{Op: weir.Refund, ID: "x"}, weir.Result{}},
				} {
					l := lostReply{t: t, what: name + ": " + tt.name, lim: lim, twin: twin, wire: wire, key: weir.KeyOf(tt.name, "ann", "10.0.0.7")}
					for _, r := range tt.before {
						l.same(r)
					}
					if l.lose(tt.lost, tt.again) > 1 {
						retries++
					}
					l.same(tt.lost)                     // once more
					l.same(weir.Request{Op: weir.Peek}) // also of a debt: RetryAfter and ResetAfter show it
					l.same(weir.Request{Cost: 3, ID: "x"})
				}
			}
			t.Logf("the client itself repeated %d requests", retries)
			if a.name == "goredis" && retries == 0 {
				t.Error("the client repeated no request: its repetitions are not tested")
			}
		})
	}
}

// A lostReply compares the decisions of lim, whose replies the wire can lose, with those of
// twin.
type lostReply struct {
	t         *testing.T
	what      string
	lim, twin *weir.Limiter
	wire      *wiretap
	key       weir.Key
}

// same sends r to both limiters. The answers must be equal, also those of each rule.
func (l *lostReply) same(r weir.Request) {
	l.t.Helper()
	r.Key = l.key
	var got, want [8]weir.Result
	res, err := l.lim.Decide(l.t.Context(), r, got[:])
	twin, twinErr := l.twin.Decide(l.t.Context(), r, want[:])
	if res != twin || got != want || (err == nil) != (twinErr == nil) || err != nil && err.Error() != twinErr.Error() {
		l.t.Errorf("%s, %v: got\n%+v, %v\n%+v, want as without a lost reply\n%+v, %v\n%+v", l.what, r.Op, res, err, got, twin, twinErr, want)
	}
}

// lose sends r while the wire loses the first reply, and then again unless the client has done
// that. The answer must have the Allowed, Granted and Replayed of want, and be that of twin to
// a repetition. lose returns how many times the client sent the first call.
func (l *lostReply) lose(r weir.Request, want weir.Result) (tries int) {
	l.t.Helper()
	r.Key = weir.KeyOf("taught", l.what, "10.0.0.7")
	if _, err := l.lim.Decide(l.t.Context(), r, nil); err != nil { // the server learns the script
		l.t.Fatalf("%s: %v", l.what, err)
	}
	r.Key = l.key
	l.wire.lose.Store(true)
	before := l.wire.sent()["EVALSHA"]
	got, err := l.lim.Decide(l.t.Context(), r, nil)
	tries = l.wire.sent()["EVALSHA"] - before
	if l.wire.lose.Load() || (tries == 1) != errors.Is(err, store.ErrUnavailable) {
		l.t.Fatalf("%s: the call whose reply was lost: got %+v, %v after %d tries", l.what, got, err, tries)
	}
	if tries == 1 {
		got, err = l.lim.Decide(l.t.Context(), r, nil)
	}
	_, _ = l.twin.Decide(l.t.Context(), r, nil)
	twin, twinErr := l.twin.Decide(l.t.Context(), r, nil)
	if err != nil || twinErr != nil || got != twin || got.Allowed != want.Allowed || got.Granted != want.Granted || got.Replayed != want.Replayed {
		l.t.Errorf("%s: the repetition: got %+v, %v, want Allowed, Granted and Replayed as in %+v, and all as in memory: %+v, %v", l.what, got, err, want, twin, twinErr)
	}
	return tries
}

// TestLostSum makes random decisions with IDs, and settles each at another cost. Connections
// fail at random, before a call has arrived or before its reply has. Each call is repeated
// until there is an answer. In the end, the rules hold the sum of the settled costs, exactly.
func TestLostSum(t *testing.T) {
	servers.Need(t)
	const callers = 16 // go-redis waits before it repeats a call: meanwhile, others go on
	decisions := 40    // of each caller
	if testing.Short() {
		decisions = 16
	}
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			st, wire := a.tapped(t)
			books := lostBooks(t, st)
			var failed atomic.Int64
			// decide repeats r until there is an answer.
			decide := func(rng *rand.Rand, lim *weir.Limiter, r weir.Request) (weir.Result, error) {
				for {
					switch rng.IntN(15) {
					case 0:
						wire.lose.Store(true)
					case 1:
						wire.cut.Store(true)
					}
					res, err := lim.Decide(t.Context(), r, nil)
					if !errors.Is(err, store.ErrUnavailable) {
						return res, err
					}
					failed.Add(1)
				}
			}
			replayed := keepBooks(t, books, callers, decisions, decide)
			wire.lose.Store(false)
			wire.cut.Store(false)
			compareBooks(t, books)
			t.Logf("%d decisions: %d calls failed, %d decisions were answered as repeated", callers*decisions, failed.Load(), replayed)
			if replayed == 0 {
				t.Error("no decision was repeated after it had been made")
			}
		})
	}
}

// keepBooks lets callers make random decisions with IDs, and settle each at another cost. decide
// makes a request, repeatedly until there is an answer. keepBooks returns how many decisions were
// answered as repeated. Until there was one, callers make up to 20 times as many decisions.
func keepBooks(t *testing.T, books []*lostBook, callers, decisions int, decide func(*rand.Rand, *weir.Limiter, weir.Request) (weir.Result, error)) int64 {
	var replayed atomic.Int64
	seed := rand.Uint64()
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(caller)))
			for i := 0; i < decisions || replayed.Load() == 0 && i < 20*decisions; i++ {
				b := books[rng.IntN(len(books))]
				r := weir.Request{Key: lostKey, Op: b.ops[rng.IntN(len(b.ops))], Cost: 1 + rng.Int64N(9), ID: fmt.Sprint(caller, "-", i)}
				res, err := decide(rng, b.lim, r)
				if err != nil || !res.Allowed || res.Granted != r.Cost {
					t.Errorf("seed %d: %s: %+v: got %+v, %v, want it allowed", seed, b.name, r, res, err)
					return
				}
				if res.Replayed {
					replayed.Add(1)
				}
				actual := b.least*r.Cost + rng.Int64N(2*r.Cost)
				settle := weir.Request{Key: r.Key, Op: weir.Settle, ID: r.ID, Actual: weir.ActualCost(actual)}
				if res, err := decide(rng, b.lim, settle); err != nil || !res.Allowed || res.Granted != actual {
					t.Errorf("seed %d: %s: %+v settled at %d: got %+v, %v", seed, b.name, r, actual, res, err)
					return
				}
				b.calls.Add(1)
				b.settled.Add(actual)
			}
		})
	}
	wg.Wait()
	return replayed.Load()
}

// compareBooks compares what the store holds with the sum of what was settled.
func compareBooks(t *testing.T, books []*lostBook) {
	t.Helper()
	for _, b := range books {
		tokens, calls := b.consumed(t)
		if tokens != b.settled.Load() || calls != b.calls.Load() {
			t.Errorf("%s: the store holds %d tokens of %d decisions, want %d, the sum of what was settled, of %d",
				b.name, tokens, calls, b.settled.Load(), b.calls.Load())
		}
	}
}

// A lostBook is a limiter, and what its rules must hold.
type lostBook struct {
	name           string
	lim            *weir.Limiter
	ops            []weir.Op
	least          int64        // 1 if a decision is never settled to less than its cost, or 0
	settled, calls atomic.Int64 // the sum of the settled costs, and the number of decisions
}

// lostKey is the key of all decisions of TestLostSum.
var lostKey = weir.KeyOf("acme", "ann", "10.0.0.7")

// lostBooks returns a limiter on st for each algorithm. Its second rule counts the decisions.
// No limit is reached.
func lostBooks(t *testing.T, st store.Store) []*lostBook {
	t.Helper()
	const limit = 1_000_000
	policies := lostPolicies(limit)
	delete(policies, "several rules")
	var books []*lostBook
	for name, rules := range policies {
		rules = append(rules, weir.Rule{Name: "decisions", Algorithm: algorithm.FixedWindow{Limit: limit, Window: time.Hour}, Cost: 1})
		b := &lostBook{name: name, ops: []weir.Op{weir.Consume, weir.TakeUpTo, weir.Force}}
		switch name {
		case "LeakyBucket": // without a MaxWait, it allows only a Force
			b.ops, b.least = []weir.Op{weir.Force}, 1
		case "GCRA", "GCRA of sevenths", "TokenBucket": // several refunds can return too little
			b.least = 1
		}
		b.lim, _ = lostLimiters(t, st, name, rules)
		books = append(books, b)
	}
	return books
}

// consumed returns how many tokens the rules of b hold as consumed, and for how many
// decisions.
func (b *lostBook) consumed(t *testing.T) (tokens, decisions int64) {
	t.Helper()
	var each [2]weir.Result
	await(t, "a Peek", func() bool { // the pool may hold broken connections
		_, err := b.lim.Decide(t.Context(), weir.Request{Key: lostKey, Op: weir.Peek}, each[:])
		if err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	tokens = each[0].Limit - each[0].Remaining
	if b.name == "LeakyBucket" { // each token has a turn, one in each minute
		tokens = int64(each[0].ResetAfter / time.Minute)
	}
	return tokens, each[1].Limit - each[1].Remaining
}
