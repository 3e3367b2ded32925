// Package changes checks what holds when a limit changes, in random histories on a store in
// virtual time. Its model is a bound that each algorithm's documentation states: the most
// tokens that a limit allows within a span of time, to any caller.
package changes

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/store"
)

// Start is when a history starts. It is no multiple of a window.
var Start = time.Date(2026, 1, 1, 0, 0, 3, 141_592_000, time.UTC)

const (
	us     = time.Microsecond
	before = 25 // the steps before the last change
	after  = 50 // the steps after it
)

// A history is one random history of one key.
type history struct {
	ctx     context.Context
	r       *rand.Rand
	advance func(time.Duration)
	now     time.Duration // since Start
	list    []algorithm.Algorithm
	lims    []*weir.Limiter
	ids     int
	allowed []grant // after the last change, in the order of their times
}

// A grant is a number of tokens that were allowed, and when their request goes ahead.
type grant struct {
	at     time.Duration
	tokens int64
}

// Run runs the random history with this seed on st, whose clock advance moves. The clock
// of st is at Start. Several processes with different limits of one algorithm decide for
// one key, and then one of them alone. After the last decision of the others, any span
// may have at most the tokens that the remaining limit allows, and every denied request
// must be allowed after its RetryAfter. If not, Run returns an error. If own is true, the
// limiters use a clock of their own.
func Run(ctx context.Context, seed uint64, kind string, st store.Store, advance func(time.Duration), own bool) error {
	h := &history{ctx: ctx, r: rand.New(rand.NewPCG(seed, 0)), advance: advance}
	opts := &weir.Options{}
	if own {
		opts.Clock = func() time.Time { return Start.Add(h.now) }
	}
	for range 2 + h.r.IntN(2) {
		a := Kinds[kind](h.r)
		lim, err := weir.New("changes", st, a, opts)
		if err != nil {
			return err
		}
		h.list, h.lims = append(h.list, a), append(h.lims, lim)
	}
	err := h.run()
	if err != nil {
		err = fmt.Errorf("seed %d of %s, %+v: %w", seed, kind, h.list, err)
	}
	return err
}

// run makes the requests. After the last change, the last limiter decides. In every
// second history, it also decides before.
func (h *history) run() error {
	last, rolling := len(h.lims)-1, h.r.IntN(2)
	for range h.r.IntN(before) {
		h.pause(h.r.IntN(len(h.lims)))
		if err := h.any(h.lims[h.r.IntN(last+rolling)]); err != nil {
			return err
		}
	}
	for range after {
		h.pause(last)
		if err := h.ask(h.lims[last]); err != nil {
			return err
		}
	}
	slices.SortStableFunc(h.allowed, func(a, b grant) int { return cmp.Compare(a.at, b.at) })
	for i := range h.allowed {
		sum := int64(0)
		for j, g := range h.allowed[i:] {
			sum += g.tokens
			if j+1 < len(h.allowed[i:]) && h.allowed[i+j+1].at == g.at {
				continue
			}
			if span := g.at - h.allowed[i].at; sum > most(h.list[last], span) {
				return fmt.Errorf("after the last change, %d tokens were allowed within %v, and the limit allows %d: %v", sum, span, most(h.list[last], span), h.allowed)
			}
		}
	}
	return nil
}

// pause lets time pass: none, a microsecond, a part of the unit of a limit, or several.
func (h *history) pause(i int) {
	unit := model.Unit(h.list[i])
	h.wait(model.Pick(h.r, 0, 0, us, time.Duration(h.r.Int64N(int64(unit))), unit, unit*time.Duration(h.r.IntN(12)), time.Duration(h.r.Int64N(int64(5*time.Second)))))
}

func (h *history) wait(d time.Duration) {
	d = d.Truncate(us)
	h.now += d
	h.advance(d)
}

// any makes a request before the last change, with any verb that lim supports.
func (h *history) any(lim *weir.Limiter) error {
	r := h.request()
	if _, leases := h.list[0].(algorithm.Concurrency); leases {
		r.Op = model.Pick(h.r, weir.Consume, weir.Consume, weir.Renew, weir.Release)
		r.ID = strconv.Itoa(h.r.IntN(h.ids + 1))
		_, err := lim.Decide(h.ctx, r, nil)
		return err
	}
	_, metadata := h.list[0].(algorithm.MetadataWindow)
	switch h.r.IntN(8) {
	case 0:
		r.Op = weir.Force
	case 1:
		r.Op = weir.TakeUpTo
	case 2:
		r.Op, r.Cost = weir.Reset, 0
		if h.r.IntN(3) > 0 {
			r.Op = weir.Peek
		}
	case 3, 4:
		if metadata {
			break
		}
		r.Cost, r.ID = 0, strconv.Itoa(h.r.IntN(h.ids+1))
		if r.Op = weir.Refund; h.r.IntN(2) == 0 {
			r.Op, r.Actual = weir.Settle, weir.ActualCost(h.r.Int64N(6))
		}
	default:
		if !metadata {
			h.ids++
			r.ID = strconv.Itoa(h.ids)
		}
		r.MaxWait = h.maxWait()
	}
	_, err := lim.Decide(h.ctx, r, nil)
	return err
}

// ask makes a request after the last change. If it is denied, ask mostly waits, and asks again.
func (h *history) ask(lim *weir.Limiter) error {
	r := h.request()
	r.MaxWait = h.maxWait()
	if _, leases := h.list[0].(algorithm.Concurrency); leases {
		h.ids++
		r.ID = "after" + strconv.Itoa(h.ids)
	} else if h.r.IntN(5) == 0 {
		r.Op, r.MaxWait = weir.TakeUpTo, 0
	}
	for due := false; ; due = true {
		res, err := lim.Decide(h.ctx, r, nil)
		switch {
		case err != nil:
			return err
		case res.Allowed:
			h.allowed = append(h.allowed, grant{h.now + res.Delay, res.Granted})
			return nil
		case due:
			return fmt.Errorf("%+v is denied after its RetryAfter, %v after the start: %+v", r, h.now, res)
		case res.RetryAfter == weir.Never || res.RetryAfter > 24*time.Hour || h.r.IntN(3) == 0:
			return nil
		case h.r.IntN(3) == 0: // the key may expire before RetryAfter
			h.wait(time.Duration(h.r.Int64N(int64(res.RetryAfter))))
			return nil
		}
		h.wait(res.RetryAfter)
	}
}

func (h *history) request() weir.Request {
	r := weir.Request{Key: weir.KeyOf("ann"), Cost: 1 + h.r.Int64N(3)}
	if _, leases := h.list[0].(algorithm.Concurrency); leases {
		r.Cost = 1
	}
	return r
}

// maxWait returns a MaxWait that the algorithm supports.
func (h *history) maxWait() time.Duration {
	switch h.list[0].(type) {
	case algorithm.GCRA, algorithm.TokenBucket, algorithm.LeakyBucket:
		return model.Pick(h.r, 0, 0, time.Duration(h.r.Int64N(int64(10*time.Second))))
	}
	return 0
}

// most returns the largest number of tokens that a allows in a span from one request to
// another, to any caller. Requests go ahead at whole microseconds.
func most(a algorithm.Algorithm, span time.Duration) int64 {
	refilled := func(r algorithm.Rate) int64 { return int64(span+us) * r.Count / int64(r.Period) }
	windows := func(limit int64, window time.Duration) int64 { return limit * (int64(span/window) + 2) }
	switch a := a.(type) {
	case algorithm.GCRA:
		return a.Burst + refilled(a.Rate)
	case algorithm.LeakyBucket:
		return a.Queue + 1 + refilled(a.Rate)
	case algorithm.TokenBucket:
		if a.AtOnce {
			return a.Capacity + a.Refill.Count*(int64(span/a.Refill.Period)+1)
		}
		return a.Capacity + refilled(a.Refill)
	case algorithm.FixedWindow:
		return windows(a.Limit, a.Window)
	case algorithm.MetadataWindow:
		return windows(a.Limit, a.Window)
	case algorithm.SlidingCounter:
		return windows(a.Limit, a.Window)
	case algorithm.SlidingLog:
		return a.Limit * (int64(span/a.Window) + 1)
	case algorithm.Concurrency:
		return a.Limit * (int64(span/a.Lease) + 1)
	case algorithm.SlidingBuckets:
		least := int64(algorithm.MaxTokens)
		for _, s := range a.Spans {
			n, touched := int64(s.Window/a.Width), int64(span/a.Width)+2
			least = min(least, s.Limit*((touched+n-1)/n))
		}
		return least
	}
	panic(fmt.Sprintf("no bound of %T", a))
}

// Kinds make random limits of each algorithm, with low limits and short windows.
var Kinds = map[string]func(*rand.Rand) algorithm.Algorithm{
	"GCRA": func(r *rand.Rand) algorithm.Algorithm { return algorithm.GCRA{Rate: rate(r), Burst: limit(r)} },
	"LeakyBucket": func(r *rand.Rand) algorithm.Algorithm {
		return algorithm.LeakyBucket{Rate: rate(r), Queue: limit(r) - 1}
	},
	"TokenBucket": func(r *rand.Rand) algorithm.Algorithm {
		return algorithm.TokenBucket{Capacity: limit(r), Refill: rate(r), AtOnce: r.IntN(3) == 0}
	},
	"FixedWindow": func(r *rand.Rand) algorithm.Algorithm {
		return algorithm.FixedWindow{Limit: limit(r), Window: window(r), Aligned: r.IntN(2) == 0}
	},
	"MetadataWindow": func(r *rand.Rand) algorithm.Algorithm {
		return algorithm.MetadataWindow{Limit: limit(r), Window: window(r), Aligned: r.IntN(2) == 0}
	},
	"SlidingCounter": func(r *rand.Rand) algorithm.Algorithm {
		return algorithm.SlidingCounter{Limit: limit(r), Window: window(r)}
	},
	"SlidingLog": func(r *rand.Rand) algorithm.Algorithm {
		return algorithm.SlidingLog{Limit: limit(r), Window: window(r)}
	},
	"Concurrency": func(r *rand.Rand) algorithm.Algorithm {
		return algorithm.Concurrency{Limit: limit(r), Lease: window(r)}
	},
	"SlidingBuckets": func(r *rand.Rand) algorithm.Algorithm {
		a := algorithm.SlidingBuckets{Width: model.Pick(r, 100*time.Millisecond, 250*time.Millisecond, time.Second, 4*time.Second)}
		for i := range 1 + r.IntN(2) {
			a.Spans = append(a.Spans, algorithm.Span{Window: a.Width * time.Duration(1+7*i+r.IntN(7)), Limit: limit(r)})
		}
		return a
	},
}

func limit(r *rand.Rand) int64 { return 1 + r.Int64N(8) }

func rate(r *rand.Rand) algorithm.Rate {
	return algorithm.Rate{Count: model.Pick(r, int64(1), 2, 3, 7), Period: model.Pick(r, 200*time.Millisecond, time.Second, 5*time.Second, time.Minute)}
}

func window(r *rand.Rand) time.Duration {
	return model.Pick(r, 100*time.Millisecond, 700*time.Millisecond, time.Second, 3*time.Second, 10*time.Second, time.Minute)
}
