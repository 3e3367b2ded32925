package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/rediscell"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/store/postgres"
)

// TestSame sends the same random requests through every store, in virtual time. The
// answers must be those of the memory store, bit for bit.
func TestSame(t *testing.T) {
	seed := rand.Uint64()
	want, err := trace(t.Context(), memory.New(nil), "", seed)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	same := func(t *testing.T, st store.Store) (prefix string) {
		prefix = fmt.Sprintf("weirtest-same-%x", rand.Uint64())
		got, err := trace(t.Context(), st, prefix, seed)
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("seed %d, answer %d:\ngot    %s\nmemory %s", seed, i, got[i], want[i])
			}
		}
		if err != nil {
			t.Fatalf("seed %d, after %d answers: %v", seed, len(got), err)
		}
		return prefix
	}
	everywhere(t, func(t *testing.T, p place) {
		unlink(t, p.admin, same(t, p.st)) // many keys make it slow to list those of other tests
	})
	for _, server := range servers.AllPostgres() {
		t.Run("postgres/"+server.Name, func(t *testing.T) {
			t.Parallel()
			same(t, postgres.New(limiterPool(t, server)))
		})
	}
}

// TestTrace checks that traces have answers of every kind.
func TestTrace(t *testing.T) {
	var text strings.Builder
	for seed := range uint64(10) {
		lines, err := trace(t.Context(), memory.New(nil), "", seed)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, line := range lines {
			text.WriteString(line + "\n")
		}
	}
	for _, what := range []string{
		"decide", "take up to", "mark", "take up to with ID", "plan", "reserve", "acquire", "renew", "release", "refund", "refund of the plan", "cancel", "throttle", "resume", "paused",
	} {
		for _, answer := range []string{"true", "false"} {
			if !strings.Contains(text.String(), "\n"+what+": "+answer) {
				t.Errorf("no answer to %q is %s", what, answer)
			}
		}
	}
}

// tracedSegments are the segments of the keys of a trace.
var tracedSegments = []string{"resource", "user"}

// perResource is the By of a rule that all users of a resource share.
var perResource = []string{"resource"}

// tracedPolicies have rules of every algorithm, in several combinations.
var tracedPolicies = map[string][]weir.Rule{
	"mixed": {
		{Name: "all", By: perResource, Algorithm: algorithm.FixedWindow{Limit: 22, Window: 10 * time.Second, Aligned: true}},
		{Name: "thirds", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 12}},
		{Name: "whole", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(4), Burst: 14}},
		{Name: "spans", Algorithm: algorithm.SlidingBuckets{Width: 500 * time.Millisecond, Spans: []algorithm.Span{
			{Window: time.Second, Limit: 6}, {Window: 8 * time.Second, Limit: 30},
		}}},
		{Name: "log", Algorithm: algorithm.SlidingLog{Limit: 9, Window: 7 * time.Second}},
		{Name: "kept", Algorithm: algorithm.MetadataWindow{Limit: 8, Window: 5 * time.Second}},
	},
	"refundable": {
		{Name: "counter", By: perResource, Algorithm: algorithm.SlidingCounter{Limit: 30, Window: 10 * time.Second}},
		{Name: "window", Algorithm: algorithm.FixedWindow{Limit: 12, Window: 10 * time.Second}},
		{Name: "tokens", Algorithm: algorithm.TokenBucket{Capacity: 6, Refill: algorithm.PerMinute(35)}},
		{Name: "once", Algorithm: algorithm.TokenBucket{Capacity: 7, Refill: algorithm.Rate{Count: 5, Period: 7 * time.Second}, AtOnce: true}},
		{Name: "thirds", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 50}},
		{Name: "whole", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 9}},
		{Name: "spans", Algorithm: algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: 8 * time.Second, Limit: 9}}}},
		{Name: "log", Algorithm: algorithm.SlidingLog{Limit: 8, Window: 7 * time.Second}},
	},
	"reservable": {
		{Name: "all", By: perResource, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(4), Burst: 9}},
		{Name: "ahead", Algorithm: algorithm.TokenBucket{Capacity: 4, Refill: algorithm.PerMinute(40)}},
		{Name: "queue", Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerMinute(50), Queue: 6}},
	},
	"leases": {
		{Name: "starts", By: perResource, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 20}},
		{Name: "leases", Algorithm: algorithm.Concurrency{Limit: 2, Lease: 9 * time.Second}, Cost: 1},
		{Name: "long", By: perResource, Algorithm: algorithm.Concurrency{Limit: 6, Lease: 20 * time.Second}, Cost: 1},
	},
	"paused": {
		{Name: "tenant", By: perResource, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(4), Burst: 9}},
		{Name: "pause", Algorithm: algorithm.Pause{}},
		{Name: "queue", Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerMinute(50), Queue: 6}},
	},
	"large": {
		{Name: "gcra", Algorithm: algorithm.GCRA{Rate: algorithm.Rate{Count: 1 << 40, Period: time.Hour}, Burst: 1 << 31}},
		{Name: "whole", Algorithm: algorithm.GCRA{Rate: algorithm.Rate{Count: 1, Period: time.Microsecond}, Burst: 1 << 50}},
		{Name: "window", Algorithm: algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: time.Hour}},
		{Name: "counter", Algorithm: algorithm.SlidingCounter{Limit: 1 << 30, Window: time.Minute}},
		{Name: "tokens", Algorithm: algorithm.TokenBucket{Capacity: 1 << 45, Refill: algorithm.Rate{Count: 7, Period: time.Microsecond}}},
	},
}

// plan replaces rules of the refundable limiter. Both limiters share their state.
var plan = []weir.Rule{
	{Name: "counter", Algorithm: algorithm.SlidingCounter{Limit: 40, Window: 12 * time.Second}},
	{Name: "window", Algorithm: algorithm.FixedWindow{Limit: 9, Window: 8 * time.Second}},
	{Name: "tokens", Algorithm: algorithm.TokenBucket{Capacity: 12, Refill: algorithm.PerSecond(3)}},
	{Name: "thirds", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(4), Burst: 40}},
	{Name: "whole", Algorithm: algorithm.GCRA{Rate: algorithm.Rate{Count: 7, Period: 3 * time.Second}, Burst: 11}},
	{Name: "log", Algorithm: algorithm.SlidingLog{Limit: 6, Window: 9 * time.Second}},
}

// A tracer sends requests, and notes the answers.
type tracer struct {
	ctx      context.Context
	rand     *rand.Rand
	now      time.Time
	limiters map[string]*weir.Limiter
	plan     *weir.Limiter
	cells    *rediscell.Throttler
	ids      int
	marked   []weir.Request // decisions that can be refunded
	planned  []weir.Request // decisions of the plan
	reserved []weir.Request
	acquired []weir.Request
	lines    []string
	err      error
}

// trace sends the requests of seed to st, and returns a line for each answer. The keys begin
// with the prefix, which is in no answer.
func trace(ctx context.Context, st store.Store, prefix string, seed uint64) ([]string, error) {
	tr := &tracer{
		ctx: ctx, rand: rand.New(rand.NewPCG(seed, 1)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), limiters: map[string]*weir.Limiter{},
	}
	opts := &weir.Options{Prefix: prefix, Clock: func() time.Time { return tr.now }}
	for name, rules := range tracedPolicies {
		lim, err := weir.NewPolicy(st, weir.Policy{Name: name, Segments: tracedSegments, Rules: rules}, opts)
		if err != nil {
			return nil, err
		}
		tr.limiters[name] = lim
	}
	var err error
	if tr.plan, err = tr.limiters["refundable"].With(plan...); err != nil {
		return nil, err
	}
	if tr.cells, err = rediscell.New("cells", st, opts); err != nil {
		return nil, err
	}
	for range 800 {
		tr.now = tr.now.Add(time.Duration(tr.rand.Int64N(900_000)-50_000) * time.Microsecond)
		tr.step()
		if tr.err != nil {
			return tr.lines, tr.err
		}
	}
	return tr.lines, nil
}

// say notes an answer.
func (tr *tracer) say(what string, err error, answer ...any) {
	if err != nil {
		tr.err = fmt.Errorf("%s: %w", what, err)
		return
	}
	line := what + ":"
	for _, part := range answer {
		line += fmt.Sprintf(" %+v", part)
	}
	tr.lines = append(tr.lines, line)
}

var tracedUsers = []string{"ann", "bob", "a{b}:c%", "\x00\xff"}

// user returns a random user.
func (tr *tracer) user() string { return tracedUsers[tr.rand.IntN(len(tracedUsers))] }

// request returns a request of a random user, with a new ID if id says so.
func (tr *tracer) request(op weir.Op, most int64, id bool) weir.Request {
	r := weir.Request{Key: weir.KeyOf("calc", tr.user()), Op: op, Cost: tr.rand.Int64N(most + 1)}
	if id {
		tr.ids++
		r.ID = fmt.Sprint("id-", tr.ids)
	}
	return r
}

// recent returns one of the last requests of list, with another Op.
func (tr *tracer) recent(list []weir.Request, op weir.Op) weir.Request {
	r := weir.Request{Key: weir.KeyOf("calc", "nobody"), ID: "none"}
	if len(list) > 0 {
		r = list[max(len(list)-1-tr.rand.IntN(6), 0)]
	}
	return weir.Request{Key: r.Key, Op: op, ID: r.ID}
}

// decide notes the answer to r, with the results of all rules.
func (tr *tracer) decide(what string, lim *weir.Limiter, r weir.Request) {
	each := make([]weir.Result, weir.MaxRules)
	res, err := lim.Decide(tr.ctx, r, each)
	each = slices.DeleteFunc(each, func(res weir.Result) bool { return res.Rule == "" })
	tr.say(what, err, res.Allowed, res, each)
}

// step sends one random request, or a few.
func (tr *tracer) step() {
	mixed, refundable, reservable, leases := tr.limiters["mixed"], tr.limiters["refundable"], tr.limiters["reservable"], tr.limiters["leases"]
	switch n := tr.rand.IntN(55); {
	case n >= 43:
		tr.pause(n - 43)
	case n < 12:
		r := tr.request([]weir.Op{weir.Consume, weir.Consume, weir.Consume, weir.TakeUpTo, weir.Peek}[tr.rand.IntN(5)], 4, false)
		r.Metadata = tr.user()
		tr.decide(map[weir.Op]string{weir.Consume: "decide", weir.Peek: "peek", weir.TakeUpTo: "take up to"}[r.Op], mixed, r)
	case n < 13:
		list, err := mixed.Entries(tr.ctx, "calc", tr.user())
		tr.say("entries", err, list)
	case n < 14:
		rules := tracedPolicies["mixed"]
		lim, err := mixed.Only(rules[tr.rand.IntN(len(rules))].Name)
		if err == nil {
			err = lim.Reset(tr.ctx, "calc", tr.user())
		}
		tr.say("reset a rule", err)
	case n < 15:
		tr.say("reset", refundable.Reset(tr.ctx, "calc", tr.user()))
	case n < 16:
		tr.many(mixed, weir.Peek)
	case n < 17:
		tr.many(refundable, weir.Peek)
	case n < 18:
		tr.many(refundable, weir.Consume)
	case n < 20:
		user, quantity := tr.user(), tr.rand.Int64N(6)
		res, err := tr.cells.Throttle(tr.ctx, user, 7, 20+tr.rand.Int64N(2), time.Minute, quantity)
		tr.say("throttle", err, res.Limited, res)
	case n < 23:
		r := tr.request(weir.Consume, 4, true)
		tr.marked = append(tr.marked, r)
		tr.decide("mark", refundable, r)
	case n < 25:
		r := tr.request(weir.TakeUpTo, 6, true)
		tr.marked = append(tr.marked, r)
		tr.decide("take up to with ID", refundable, r)
	case n < 26 || n >= 40 && n < 42:
		r := tr.request(weir.Consume, 4, true)
		tr.planned = append(tr.planned, r)
		tr.decide("plan", tr.plan, r)
	case n < 29:
		s, err := refundable.Refund(tr.ctx, tr.recent(tr.marked, weir.Refund))
		tr.say("refund", err, s.Found)
	case n < 30 || n == 42:
		s, err := tr.plan.Refund(tr.ctx, tr.recent(tr.planned, weir.Refund))
		tr.say("refund of the plan", err, s.Found)
	case n < 33:
		r := tr.request(weir.Consume, 4, true)
		r.MaxWait = time.Duration(tr.rand.Int64N(3_000_000)) * time.Microsecond
		tr.reserved = append(tr.reserved, r)
		tr.decide("reserve", reservable, r)
	case n < 35:
		s, err := reservable.Refund(tr.ctx, tr.recent(tr.reserved, weir.Refund))
		tr.say("cancel", err, s.Found)
	case n < 37:
		r := tr.request(weir.Consume, 2, true)
		tr.acquired = append(tr.acquired, r)
		tr.decide("acquire", leases, r)
	case n < 38:
		tr.decide("renew", leases, tr.recent(tr.acquired, weir.Renew))
	case n < 39:
		tr.decide("release", leases, tr.recent(tr.acquired, weir.Release))
	default:
		r := tr.request(weir.Consume, 1, false)
		r.Cost = 1 + tr.rand.Int64N(int64(1)<<tr.rand.IntN(40))
		r.Op = []weir.Op{weir.Consume, weir.TakeUpTo, weir.Peek}[tr.rand.IntN(3)]
		tr.decide("large", tr.limiters["large"], r)
	}
}

// pause pauses or resumes a user, or sends a request of one who may be paused.
func (tr *tracer) pause(n int) {
	lim, name := tr.limiters["paused"], fmt.Sprint("p", tr.rand.IntN(2))
	switch {
	case n < 3:
		r := tr.request(weir.Pause, 1, false)
		r.ID, r.For = name, time.Duration(1+tr.rand.Int64N(4_000_000))*time.Microsecond
		res, err := lim.Decide(tr.ctx, r, nil)
		tr.say("pause", err, res)
	case n < 6:
		ok, err := lim.Resume(tr.ctx, name, "calc", tr.user())
		tr.say("resume", err, ok)
	default:
		r := tr.request(weir.Consume, 2, n == 11)
		if n < 8 {
			r.MaxWait = time.Duration(tr.rand.Int64N(5_000_000)) * time.Microsecond
		}
		tr.decide("paused", lim, r)
	}
}

// many sends one request for each user at once.
func (tr *tracer) many(lim *weir.Limiter, op weir.Op) {
	var requests []weir.Request
	for _, user := range tracedUsers {
		resource := "calc"
		if op == weir.Consume {
			resource = "many " + user // the order of decisions on one key is not defined
		}
		requests = append(requests, weir.Request{Key: weir.KeyOf(resource, user), Op: op, Cost: tr.rand.Int64N(4)})
	}
	for i, answer := range lim.DoMany(tr.ctx, requests) {
		tr.say(fmt.Sprint("many ", i), answer.Err, answer.Result)
	}
}
