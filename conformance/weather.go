package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

const (
	faultCallers = 8
	fairTime     = 300 * time.Millisecond // how long callers are served before a fault, and after it
	foulTime     = 600 * time.Millisecond // and how long during it
	leakTime     = 10 * time.Second       // until a closed client has let go
)

// A weather is callers of one store while its server suffers. Each caller has a
// limit of its own, by which it knows its own answers; every second one decides
// over a second key too, which all of those share.
type weather struct {
	rule faultRule
	id   string
	key  string

	late atomic.Int64 // ns for which a machine with too much to do has let a goroutine wait

	mu        sync.Mutex
	failures  []string
	begun     time.Time // of the fault
	effect    bool      // of the fault
	over      bool      // the fault
	out       FaultOutcome
	callers   []*caller
	recent    []time.Time // when tokens were granted that may be lost
	lastError time.Time
}

// A caller is one of the goroutines that ask.
type caller struct {
	number  int
	pair    bool
	limiter *weir.Limiter
	limit   int64

	granted int64     // tokens
	unknown int64     // calls that ended in an error, each of which may have been charged
	served  time.Time // when the last call that was answered began
}

// path returns what c asks for. All callers' keys are in one slot.
func (c *caller) path() []string {
	if c.pair {
		return []string{"weather", "caller" + strconv.Itoa(c.number)}
	}
	return []string{"weather"}
}

func newWeather(r faultRule) *weather {
	w := &weather{rule: r, id: newID()}
	w.key = w.id + ":{weather}:shared"
	return w
}

func (w *weather) errorf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.failures) < maxFailures {
		w.failures = append(w.failures, fmt.Sprintf(format, args...))
	}
}

// sharedLimit is more than is ever asked for.
const sharedLimit = 1 << 40

// suffer runs the callers through f.
func (w *weather) suffer(t *testing.T, f Fault, out *FaultOutcome) {
	if f.Within == 0 {
		f.Within = 5 * time.Second
	}
	if f.Longest == 0 {
		f.Longest = 4 * CallTime
	}
	// Goroutines inherit the labels of whoever starts them: so those of the
	// client are known when it should have none left.
	labelled := pprof.WithLabels(t.Context(), pprof.Labels("weather", w.id))
	pprof.SetGoroutineLabels(labelled)
	st, closeClient := f.Open()
	pprof.SetGoroutineLabels(t.Context())
	for i := range faultCallers {
		c := &caller{number: i, pair: i%2 == 1, limit: sharedLimit + 1000 + int64(i)}
		rules := []weir.Rule{{Name: "own" + strconv.Itoa(i), By: []int{0, 1}[:len(c.path())], Algorithm: algorithm.FixedWindow{Limit: c.limit, Window: 24 * time.Hour}}}
		if c.pair {
			rules = append(rules, weir.Rule{Name: "shared", By: []int{0}, Algorithm: algorithm.FixedWindow{Limit: sharedLimit, Window: 24 * time.Hour}})
		}
		var err error
		if c.limiter, err = weir.NewRules(st, rules, &weir.Options{Prefix: w.id}); err != nil {
			t.Fatal(err)
		}
		w.callers = append(w.callers, c)
	}

	ask := func() (stop func()) {
		ended := make(chan struct{})
		var wg sync.WaitGroup
		pprof.SetGoroutineLabels(labelled)
		defer pprof.SetGoroutineLabels(t.Context())
		for _, c := range w.callers {
			wg.Go(func() { w.ask(c, f, ended) })
		}
		wg.Go(func() { w.wake(ended) })
		if f.Confirm != nil && !w.rule.still {
			wg.Go(func() { w.confirm(f, ended) })
		}
		return func() { close(ended); wg.Wait() }
	}

	stop := ask()
	opened := time.Now()
	if deadline := opened.Add(30 * time.Second); opened.Add(w.recovered(opened, deadline)).After(deadline) {
		stop()
		t.Fatalf("calls fail before the fault begins: %v", w.failures)
	}
	w.mu.Lock()
	w.begun = time.Now()
	w.mu.Unlock()
	if w.rule.still {
		stop()
		if err := f.Confirm(); err != nil {
			t.Fatalf("Confirm: %v", err)
		}
		w.mu.Lock()
		w.recent = nil
		w.mu.Unlock()
	}
	f.Begin()
	w.mu.Lock()
	w.effect = true
	w.mu.Unlock()
	if !w.rule.still {
		time.Sleep(foulTime)
	}
	f.End()
	ended := time.Now()
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	if w.rule.still {
		stop = ask()
	}
	back := w.recovered(ended, ended.Add(fairTime+f.Within+5*time.Second))
	stop()
	if back > f.Within {
		w.errorf("%v after the end of the fault not all callers were served, want %v at most", back, f.Within)
	}
	w.account(t, f)
	*out = w.out
	out.Rule, out.Promise = "Faults/"+w.rule.name, w.rule.text
	out.Recovery = back
	if f.Conns != nil && f.Conns() == 0 {
		w.errorf("Conns counts none while the client is open")
	}
	closeClient()
	if f.Leaky {
		return
	}
	if left := leaked(w.id); left != "" {
		w.errorf("%v after the client was closed, goroutines are left:\n%s", leakTime, left)
	}
	if f.Conns == nil {
		return
	}
	for deadline := time.Now().Add(leakTime); f.Conns() > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.errorf("%v after the client was closed, the server has %d connections", leakTime, f.Conns())
			return
		}
	}
}

// recovered waits until every caller is served, and none fails for a while. It
// returns how long that took from ended on, without the while.
func (w *weather) recovered(ended, deadline time.Time) time.Duration {
	for {
		time.Sleep(5 * time.Millisecond)
		w.mu.Lock()
		first := w.lastError
		if first.Before(ended) {
			first = ended
		}
		all := true
		for _, c := range w.callers {
			all = all && c.served.After(first)
		}
		w.mu.Unlock()
		now := time.Now()
		switch {
		case now.After(deadline):
			return now.Sub(ended)
		case all && now.Sub(first) > fairTime:
			return first.Sub(ended)
		}
	}
}

// ask lets c ask until ended is closed.
func (w *weather) ask(c *caller, f Fault, ended <-chan struct{}) {
	defer func() {
		if r := recover(); r != nil {
			w.errorf("caller %d: panic: %v\n%s", c.number, r, debug.Stack())
		}
	}()
	path := c.path()
	each := make([]weir.Result, 1)
	if c.pair {
		each = make([]weir.Result, 2)
	}
	for {
		select {
		case <-ended:
			return
		case <-time.After(2 * time.Millisecond): // the server has other tests to serve
		}
		limit := CallTime
		if w.serves(c) {
			limit = 10 * time.Second // a machine that is slow is none that fails
		}
		late := w.late.Load()
		start := time.Now()
		ctx, cancel := context.WithDeadline(context.Background(), start.Add(limit))
		res, err := c.limiter.Do(ctx, weir.Request{Path: path, Cost: 1, Each: each})
		took := time.Since(start)
		done := ctx.Err() != nil || took >= limit // its timer may be late
		cancel()
		w.answered(c, f, start, took, time.Duration(w.late.Load()-late), done, res, each, err)
	}
}

// serves reports whether no call of c may fail.
func (w *weather) serves(c *caller) bool { return w.rule.serves || w.rule.servesOne && !c.pair }

// wake adds to late until ended is closed.
func (w *weather) wake(ended <-chan struct{}) {
	const nap = 20 * time.Millisecond
	for last := time.Now(); ; {
		select {
		case <-ended:
			return
		case <-time.After(nap):
		}
		now := time.Now()
		if over := now.Sub(last) - nap; over > nap { // less is a timer's own
			w.late.Add(int64(over))
		}
		last = now
	}
}

// answered takes note of an answer, which took so long, on a machine that was late.
func (w *weather) answered(c *caller, f Fault, start time.Time, took, late time.Duration, done bool, res weir.Result, each []weir.Result, err error) {
	cancelled := errors.Is(err, context.DeadlineExceeded)
	unavailable := errors.Is(err, store.ErrUnavailable)
	switch {
	case err == nil && (!res.Allowed || res.Granted != 1):
		w.errorf("caller %d was denied: %+v", c.number, res)
	case err == nil && (each[0].Limit != c.limit || c.pair && each[1].Limit != sharedLimit):
		w.errorf("caller %d, of limit %d, got the answer of another: %+v", c.number, c.limit, each)
	case err != nil && unavailable == cancelled:
		w.errorf("caller %d: %v: want either ErrUnavailable or DeadlineExceeded", c.number, err)
	case cancelled && !done:
		w.errorf("caller %d: %v after %v, before its deadline", c.number, err, took)
	case errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrScript) || errors.Is(err, store.ErrCrossSlot) || errors.Is(err, context.Canceled):
		w.errorf("caller %d: %v: want either ErrUnavailable or DeadlineExceeded, and nothing else", c.number, err)
	case err != nil && w.serves(c):
		w.errorf("caller %d: %v: want it served all the time", c.number, err)
	case took > f.Longest+2*late && !w.serves(c): // what answers was late too
		w.errorf("caller %d waited %v for an answer, %v: want %v at most, and twice the %v for which the machine was late", c.number, took, err, f.Longest, late)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if !w.begun.IsZero() {
		w.out.Calls++
		w.out.Slowest = max(w.out.Slowest, took)
		switch {
		case cancelled:
			w.out.Cancelled++
		case err != nil:
			w.out.Unavailable++
		default:
			w.out.Allowed++
		}
	}
	if err != nil {
		c.unknown++
		w.lastError = now
		return
	}
	c.granted++
	c.served = start
	if f.Confirm != nil && !w.over {
		w.recent = append(w.recent, now)
	}
}

// confirm confirms what was admitted, again and again, until ended is closed.
func (w *weather) confirm(f Fault, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-time.After(20 * time.Millisecond):
		}
		start := time.Now()
		if f.Confirm() != nil {
			continue
		}
		w.mu.Lock()
		if !w.effect { // later ones may be of another server
			w.recent = slices.DeleteFunc(w.recent, start.After)
		}
		w.mu.Unlock()
	}
}

// account compares what callers were granted with what the store has charged.
func (w *weather) account(t *testing.T, f Fault) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, c := range w.callers {
		each := make([]weir.Result, 1)
		if c.pair {
			each = make([]weir.Result, 2)
		}
		req := weir.Request{Path: c.path(), Peek: true, Each: each}
		_, err := c.limiter.Do(ctx, req)
		// A client's bounds may be too tight for a machine that is slow.
		for errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
			_, err = c.limiter.Do(ctx, req)
		}
		if err != nil {
			w.errorf("caller %d, after the fault: %v", c.number, err)
			continue
		}
		charged := c.limit - each[0].Remaining
		if excess := c.granted - charged; excess > 0 {
			w.out.Excess += excess
			if !f.Loses {
				w.errorf("caller %d was let pass %d times, and charged %d times", c.number, c.granted, charged)
			}
		}
		// What was repeated may have been answered in the end.
		if most := (c.granted + c.unknown) * int64(f.Repeats+1); charged > most {
			w.errorf("caller %d was charged %d times, for %d answers and %d calls without: want %d at most", c.number, charged, c.granted, c.unknown, most)
		}
	}
	if f.Confirm == nil {
		return
	}
	w.out.Unconfirmed = int64(len(w.recent))
	if w.out.Excess > w.out.Unconfirmed {
		w.errorf("%d tokens were admitted and lost, of which %d were unconfirmed", w.out.Excess, w.out.Unconfirmed)
	}
}

// leaked waits until no goroutine has the label of the weather id, and returns
// those that still have after a while.
func leaked(id string) string {
	for deadline := time.Now().Add(leakTime); ; time.Sleep(20 * time.Millisecond) {
		var all strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
		var left []string
		for group := range strings.SplitSeq(all.String(), "\n\n") {
			if strings.Contains(group, `"weather":"`+id+`"`) {
				left = append(left, group)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return strings.Join(left, "\n\n")
		}
	}
}
