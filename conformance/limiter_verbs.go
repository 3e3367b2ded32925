package conformance

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

var verbRules = []rule{
	{"UpTo", "TakeUpTo takes the smallest room of all rules, and no rule more", limiterUpTo},
	{"Refund", "Refund gives back to every rule what a decision took, once, and leaves no marker", limiterRefund},
	{"Modes", "rules of any kind in one decision, up to sixteen, take what fits and give it back as on the reference store", limiterModes},
	{"Many", "AllowMany decides each request by itself, and one that makes no sense stops no other", limiterMany},
	{"Limits", "a request can bring limits, under which what its keys hold is carried over", limiterLimits},
	{"Wait", "waiters go one at a time, never early, and each asks the store once", limiterWait},
	{"Refused", "a wait that cannot end before the deadline is refused at once, and takes nothing", limiterRefused},
	{"Cancel", "a wait that is cancelled gives its tokens back", limiterCancel},
	{"Unsupported", "what an algorithm does not do is refused by name, and nothing is taken", limiterUnsupported},
}

func limiterUpTo(t *T) {
	c := newClock()
	l := t.limiter(c,
		weir.Rule{Name: "all", By: []int{0}, Algorithm: algorithm.FixedWindow{Limit: 10, Window: time.Minute}},
		weir.Rule{Name: "user", By: []int{0, 1}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 4}},
		weir.Rule{Name: "calls", By: []int{0, 1}, Algorithm: algorithm.SlidingLog{Limit: 3, Window: time.Minute}, Cost: 1})
	each := make([]weir.Result, 3)
	for i, step := range []struct {
		user        string
		after       time.Duration
		most, grant int64
		left        [3]int64
		rule        string
	}{
		{"u", 0, 3, 3, [3]int64{7, 1, 2}, "user"},
		{"u", 333_333 * time.Microsecond, 9, 1, [3]int64{6, 0, 1}, "user"}, // 1.99 tokens: the fraction is not burnt
		{"u", time.Microsecond, 9, 1, [3]int64{5, 0, 0}, "user"},
		{"u", time.Second, 9, 0, [3]int64{5, 3, 0}, "calls"},
		{"v", 0, 9, 4, [3]int64{1, 0, 2}, "user"},
		{"w", 0, 9, 1, [3]int64{0, 3, 2}, "all"},
		{"w", 0, 9, 0, [3]int64{0, 3, 2}, "all"},
	} {
		c.advance(step.after)
		res := t.do(l, weir.Request{Path: []string{"a", step.user}, Cost: step.most, UpTo: true, Each: each})
		left := [3]int64{each[0].Remaining, each[1].Remaining, each[2].Remaining}
		if res.Granted != step.grant || res.Allowed != (step.grant > 0) || res.Rule != step.rule || left != step.left {
			t.errorf("step %d, up to %d: got %+v and %v left, want %d granted, %q and %v", i, step.most, res, left, step.grant, step.rule, step.left)
		}
		if (res.RetryAfter > 0) == res.Allowed {
			t.errorf("step %d: got %+v", i, res)
		}
	}
	if res := t.do(l, weir.Request{Path: []string{"a", "x"}, Cost: 5, UpTo: true, Peek: true}); res.Allowed || res.Granted != 0 || res.Rule != "all" {
		t.errorf("Peek with UpTo: got %+v", res)
	}
}

func limiterRefund(t *T) {
	t.leaseAndRefund()
	rules := []weir.Rule{
		{Name: "all", By: []int{0}, Algorithm: algorithm.FixedWindow{Limit: 10, Window: time.Minute}},
		{Name: "user", By: []int{0, 1}, Algorithm: tenPerMinute},
		{Name: "ring", By: []int{0, 1}, Algorithm: quarters},
		{Name: "calls", By: []int{0, 1}, Algorithm: algorithm.SlidingLog{Limit: 3, Window: time.Minute}, Cost: 1},
	}
	p := t.pair(nil, rules...)
	p.ref = p.lim // on the store's own clock there is one
	ask := func() [4]int64 {
		each := make([]weir.Result, 4)
		t.do(p.lim, weir.Request{Path: []string{"r", "u"}, Cost: 1, Peek: true, Each: each})
		return [4]int64{each[0].Remaining, each[1].Remaining, each[2].Remaining, each[3].Remaining}
	}
	t.allow(p.lim, 1, "r", "u")
	start := ask()
	res := t.do(p.lim, weir.Request{Path: []string{"r", "u"}, Cost: 2, ID: "x"})
	if !res.Allowed {
		t.fatalf("got %+v", res)
	}
	markers := 0
	if t.backend.Keys != nil {
		for key, ttl := range t.left() {
			if strings.Contains(key, "%id=x") {
				markers++
				if ttl <= 0 || ttl > 10*time.Minute {
					t.errorf("the marker %q lives %v", key, ttl)
				}
			}
		}
		if markers != len(rules) {
			t.errorf("%d markers, want one for each of %d rules", markers, len(rules))
		}
	}
	for try, want := range []bool{true, false, false} {
		if gave, err := p.lim.Refund(t.ctx, "x", "r", "u"); err != nil || gave != want {
			t.errorf("refund %d: got %v, %v, want %v", try, gave, err, want)
		}
		if got := ask(); got != start {
			t.errorf("after refund %d: %v are left, want %v", try, got, start)
		}
	}
	if gave, err := p.lim.Refund(t.ctx, "never", "r", "u"); err != nil || gave {
		t.errorf("the refund of a decision that was not made: got %v, %v", gave, err)
	}
	if t.backend.Keys != nil {
		for key := range t.left() {
			if strings.Contains(key, "%id=") {
				t.errorf("the marker %q is left", key)
			}
		}
	}
	// What someone else put where a marker should be is not taken for one.
	t.put(t.key("r", "user:u:%id=y"), 7)
	if gave, err := p.lim.Refund(t.ctx, "y", "r", "u"); !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), "%id=y") {
		t.errorf("a foreign marker: got %v, %v, want an ErrForeign that names it", gave, err)
	}
	if got := ask(); got != start {
		t.errorf("after a refund with a foreign marker: %v are left, want %v", got, start)
	}
}

// refundable makes a random algorithm whose decisions can be given back.
func refundable(r *rand.Rand) algorithm.Algorithm {
	return pick(r, anyGCRA, anyFixedWindow, anySlidingBuckets, anySlidingCounter, anySlidingLog, anyTokenBucket, anyLeakyBucket)(r)
}

func limiterModes(t *T) {
	r := t.rand()
	for h := range t.times(8) {
		rules := make([]weir.Rule, pick(r, 2, 3, 4))
		if h%4 == 3 {
			rules = make([]weir.Rule, weir.MaxRules)
		}
		var unit time.Duration
		for i := range rules {
			a := refundable(r)
			rules[i] = weir.Rule{Name: "r" + strconv.Itoa(i), Algorithm: a, Cost: min(pick[int64](r, 0, 0, 0, 1, 2), newModel(a).limit())}
			unit = unitOf(a)
		}
		c := newClock()
		p := t.pair(c, rules...)
		path := "modes" + strconv.Itoa(h)
		var keys []string
		for i, rule := range rules {
			keys = append(keys, t.keysOf(path, rule.Name, rule.Algorithm)...)
			for s := range 20 {
				keys = append(keys, t.key(path, "r"+strconv.Itoa(i)+":%id="+strconv.Itoa(s)))
			}
		}
		for s := range 20 {
			c.advance(anyPause(r, unit))
			req := weir.Request{Path: []string{path}, Cost: 1 + r.Int64N(9), UpTo: r.IntN(3) > 0}
			if r.IntN(3) > 0 {
				req.ID = strconv.Itoa(s)
			}
			p.both(req)
			if r.IntN(2) == 0 {
				p.refund(strconv.Itoa(r.IntN(s+1)), path)
			}
		}
		p.same(rules, keys...)
		if t.failed() {
			return
		}
	}
}

func limiterMany(t *T) {
	c := newClock()
	l := t.limiter(c, weir.Rule{Name: "a", Algorithm: algorithm.FixedWindow{Limit: 2, Window: time.Minute}}, weir.Rule{Name: "b", Algorithm: tenPerMinute})
	var requests []weir.Request
	for i := range 40 {
		path := []string{"many" + strconv.Itoa(i)}
		req := weir.Request{Path: path, Cost: int64(i % 4), Each: make([]weir.Result, 2)}
		switch i % 8 {
		case 5:
			req.Cost = -1
		case 6:
			req.UpTo = true
		case 7:
			req.Peek = true
		}
		if i == 9 {
			t.put(t.key("many9", "b"), 1)
		}
		requests = append(requests, req)
	}
	answers := l.AllowMany(t.ctx, requests)
	if len(answers) != len(requests) {
		t.fatalf("%d answers to %d requests", len(answers), len(requests))
	}
	for i, got := range answers {
		req := requests[i]
		switch {
		case i%8 == 5:
			if !errors.Is(got.Err, weir.ErrInvalidCost) {
				t.errorf("request %d: got %+v, want ErrInvalidCost", i, got)
			}
			continue
		case i == 9:
			if !errors.Is(got.Err, store.ErrForeign) {
				t.errorf("request %d: got %+v, want ErrForeign", i, got)
			}
			continue
		}
		req.Path, req.Each = []string{"single" + strconv.Itoa(i)}, nil
		if want := t.do(l, req); got.Err != nil || got.Result != want || want.Rule != "" && requests[i].Each[0].Limit != 2 {
			t.errorf("request %d: got %+v, want %+v", i, got, want)
		}
	}
	if got := l.AllowMany(t.ctx, nil); len(got) != 0 {
		t.errorf("AllowMany of nothing: %v", got)
	}
}

func limiterLimits(t *T) {
	c := newClock()
	l := t.limiter(c,
		weir.Rule{Name: "plan", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 2}},
		weir.Rule{Name: "ring", Algorithm: quarters},
		weir.Rule{Name: "day", Algorithm: algorithm.FixedWindow{Limit: 100, Window: 24 * time.Hour}})
	limit := func(a algorithm.Algorithm) algorithm.Limit {
		limit, err := a.NewLimit()
		if err != nil {
			t.fatalf("NewLimit: %v", err)
		}
		return limit
	}
	each := make([]weir.Result, 3)
	ask := func(cost int64, limits ...algorithm.Limit) [3]int64 {
		t.do(l, weir.Request{Path: []string{"k"}, Cost: cost, Limits: limits, Each: each})
		return [3]int64{each[0].Remaining, each[1].Remaining, each[2].Remaining}
	}
	wider := algorithm.SlidingBuckets{Width: quarters.Width, Spans: []algorithm.Span{{Window: 8 * quarters.Width, Limit: 50}}}
	thirds := limit(algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 30}) // another script
	ring := quarters.Spans[0].Limit
	for _, s := range quarters.Spans {
		ring = min(ring, s.Limit)
	}
	for i, step := range []struct {
		cost   int64
		limits []algorithm.Limit
		want   [3]int64
	}{
		{2, nil, [3]int64{0, ring - 2, 98}},
		{0, []algorithm.Limit{thirds, nil, nil}, [3]int64{24, ring - 2, 98}}, // 2 s until full stay 2 s
		{1, []algorithm.Limit{thirds, nil, limit(algorithm.FixedWindow{Limit: 5, Window: time.Hour})}, [3]int64{23, ring - 3, 2}},
		{0, []algorithm.Limit{thirds, limit(wider), nil}, [3]int64{23, 50 - 3, 97}}, // the ring's keys are the first of the wider one's
		{0, nil, [3]int64{0, ring - 3, 97}},
	} {
		if i == 3 { // a turn of a ring begins at a multiple of its length
			turn := 8 * quarters.Width.Microseconds()
			if c.us%turn >= turn/2 {
				continue
			}
		}
		if got := ask(step.cost, step.limits...); got != step.want {
			t.errorf("step %d: %v are left, want %v", i, got, step.want)
		}
	}
	for i, limits := range [][]algorithm.Limit{{nil}, {nil, nil, thirds}, make([]algorithm.Limit, 4)} {
		if res, err := l.Do(t.ctx, weir.Request{Path: []string{"k"}, Cost: 1, Limits: limits}); err == nil {
			t.errorf("bad limits %d: got %+v, want an error", i, res)
		}
	}
}

// A counting store counts decisions.
type counting struct {
	store.Store
	evals atomic.Int64
}

func (c *counting) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	c.evals.Add(1)
	return c.Store.Eval(ctx, s, keys, args, reply)
}

func (t *T) counting(a algorithm.Algorithm) (*counting, *weir.Limiter) {
	if t.backend.wrap != nil {
		a = t.backend.wrap(a)
	}
	c := &counting{Store: t.store}
	return c, t.limiterOn(c, nil, one(a))
}

func limiterWait(t *T) {
	const waiters, interval = 20, 10 * time.Millisecond
	c, l := t.counting(algorithm.GCRA{Rate: algorithm.Every(interval), Burst: 1})
	start := t.time()
	var mu sync.Mutex
	var ended []time.Duration
	var wg sync.WaitGroup
	for range waiters {
		t.goes(&wg, func() {
			res, err := l.Wait(t.ctx, "wait")
			if err != nil || !res.Allowed || res.Granted != 1 {
				t.errorf("Wait: got %+v, %v", res, err)
			}
			now, err := t.store.Time(t.ctx)
			if err != nil {
				t.errorf("Time: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, now.Sub(start))
		})
	}
	wg.Wait()
	if n := c.evals.Load(); n != waiters {
		t.errorf("%d waiters asked the store %d times, want once each", waiters, n)
	}
	// The n-th to go does so n intervals after the first, who went after the start.
	for i := range ended {
		early := 0
		for _, at := range ended {
			if at+skew < time.Duration(i)*interval {
				early++
			}
		}
		if early > i {
			t.errorf("%d of %d had gone before %v, want at most %d", early, waiters, time.Duration(i)*interval, i)
		}
	}
}

func limiterRefused(t *T) {
	a := algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 3}
	c, l := t.counting(a)
	t.allow(l, 2, "k")
	before := t.peek(l, 1, "k")
	for _, cost := range []int64{2, 4} {
		ctx, cancel := context.WithTimeout(t.ctx, ruleTime/2)
		asked := c.evals.Load()
		res, err := l.WaitN(ctx, cost, "k")
		cancel()
		if !errors.Is(err, weir.ErrRefused) || res.Allowed || res.RetryAfter <= 0 || (res.RetryAfter == weir.Never) != (cost > 3) {
			t.errorf("a wait for %d tokens, of which one is there: got %+v, %v, want ErrRefused", cost, res, err)
		}
		if n := c.evals.Load() - asked; n != 1 {
			t.errorf("it asked the store %d times, want once", n)
		}
	}
	if res, err := l.Wait(t.ctx, "k"); err != nil || res.Delay != 0 {
		t.errorf("a wait for the token that is there: got %+v, %v", res, err)
	}
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	asked := c.evals.Load()
	if res, err := l.Wait(ctx, "k"); !errors.Is(err, context.Canceled) || c.evals.Load() != asked {
		t.errorf("a wait whose context is done: got %+v, %v, and %d calls", res, err, c.evals.Load()-asked)
	}
	if after := t.peek(l, 1, "k"); before.Remaining != 1 || after.Remaining != 0 || after.RetryAfter > time.Hour {
		t.errorf("one token was taken of\n     %+v\nleft %+v", before, after)
	}
}

func limiterCancel(t *T) {
	c, l := t.counting(algorithm.GCRA{Rate: algorithm.PerMinute(2), Burst: 1})
	t.allow(l, 1, "k")
	before := t.peek(l, 1, "k")
	asked := c.evals.Load()
	ctx, cancel := context.WithCancel(t.ctx)
	done := make(chan error, 1)
	var wg sync.WaitGroup
	t.goes(&wg, func() {
		_, err := l.Wait(ctx, "k")
		done <- err
	})
	for try := 0; c.evals.Load() == asked && try < 1000; try++ {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(10 * time.Millisecond) // most likely it waits by now; if not, all the same holds
	cancel()
	wg.Wait()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.errorf("a wait that was cancelled: got %v", err)
		}
	default:
	}
	if after := t.peek(l, 1, "k"); after.ResetAfter > before.ResetAfter+skew || after.RetryAfter > 30*time.Second {
		t.errorf("a cancelled wait made\n     %+v\nout of %+v", after, before)
	}
	res, err := l.Reserve(t.ctx, weir.Request{Path: []string{"k"}, Cost: 1})
	if err != nil || !res.Allowed || res.Delay > 30*time.Second {
		t.errorf("Reserve: got %+v, %v", res.Result, err)
	}
	for _, want := range []bool{true, false} {
		if gave, err := res.Cancel(t.ctx); err != nil || gave != want {
			t.errorf("Cancel: got %v, %v, want %v", gave, err, want)
		}
	}
	if after := t.peek(l, 1, "k"); after.RetryAfter > 30*time.Second {
		t.errorf("a cancelled reservation left %+v", after)
	}
}

func limiterUnsupported(t *T) {
	log := algorithm.SlidingLog{Limit: 5, Window: time.Minute}
	list := algorithm.MetadataWindow{Limit: 5, Window: time.Minute}
	for _, tt := range []struct {
		name string
		a    algorithm.Algorithm
		r    weir.Request
	}{
		{"MaxWait", log, weir.Request{MaxWait: time.Second}},
		{"MaxWait", list, weir.Request{MaxWait: time.Second}},
		{"MaxWait", algorithm.FixedWindow{Limit: 5, Window: time.Minute}, weir.Request{MaxWait: time.Second}},
		{"MaxWait", quarters, weir.Request{MaxWait: time.Second}},
		{"MaxWait", algorithm.SlidingCounter{Limit: 5, Window: time.Minute}, weir.Request{MaxWait: time.Second}},
		{"Request.ID", list, weir.Request{ID: "x"}},
		{"Request.Metadata", log, weir.Request{Metadata: "x"}},
		{"Request.Lease", tenPerMinute, weir.Request{Lease: "x"}},
	} {
		// A rule that could do it is not charged either.
		l := t.limiter(newClock(), one(tt.a), weir.Rule{Name: "two", Algorithm: tenPerMinute})
		tt.r.Path, tt.r.Cost = []string{"k"}, 1
		res, err := l.Do(t.ctx, tt.r)
		limit, _ := tt.a.NewLimit()
		if !errors.Is(err, weir.ErrUnsupported) || !strings.Contains(err.Error(), tt.name) || !strings.Contains(err.Error(), limit.Fragment().Name) && tt.r.Metadata+tt.r.Lease == "" {
			t.errorf("%s of %T: got %+v, %v, want an ErrUnsupported that names both", tt.name, tt.a, res, err)
		}
		if left := t.peek(l, 1, "k").Remaining; left != 5 {
			t.errorf("%s of %T: %d left, want 5", tt.name, tt.a, left)
		}
	}
	l := t.limiter(newClock(), one(list))
	for name, call := range map[string]func() error{
		"Refund":  func() error { _, err := l.Refund(t.ctx, "x", "k"); return err },
		"Release": func() error { _, err := l.Release(t.ctx, "x", "k"); return err },
		"Renew":   func() error { _, err := l.Renew(t.ctx, "x", "k"); return err },
		"Reserve": func() error { _, err := l.Reserve(t.ctx, weir.Request{Path: []string{"k"}, Cost: 1}); return err },
		"Wait":    func() error { _, err := l.Wait(t.ctx, "k"); return err },
	} {
		if err := call(); !errors.Is(err, weir.ErrUnsupported) || !strings.Contains(err.Error(), name) {
			t.errorf("%s: got %v, want an ErrUnsupported that names it", name, err)
		}
	}
}
