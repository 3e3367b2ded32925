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
	servedTime   = 300 * time.Millisecond // how long callers are served before a fault, and after it
	faultTime    = 600 * time.Millisecond // how long they call during a fault
	leakTime     = 10 * time.Second       // until a closed client has ended its goroutines and connections
)

// A faultRun is a check of a fault: callers of one store whose server fails. Each caller
// has a limit of its own, by which it recognizes its own answers. Every second caller
// decides over a second key too, which those callers share.
type faultRun struct {
	rule faultRule
	id   string
	key  string

	late atomic.Int64 // ns for which a busy machine has made a goroutine wait

	mu        sync.Mutex
	failures  []string
	begun     time.Time // of the fault
	effect    bool      // of the fault
	over      bool      // the fault
	out       FaultOutcome
	callers   []*caller
	recent    []time.Time // when tokens were granted that are not confirmed
	lastError time.Time
}

// A caller is one of the goroutines that call the store.
type caller struct {
	number  int
	pair    bool
	limiter *weir.Limiter
	limit   int64

	granted int64     // tokens
	unknown int64     // calls that ended in an error, each of which may have been charged
	served  time.Time // when the last call that was answered began
}

// faultTag is the segment that all keys share, so that they are in one slot.
const faultTag = "faults"

// key is the key that c asks for.
func (c *caller) key() weir.Key {
	if c.pair {
		return weir.KeyOf(faultTag, "caller"+strconv.Itoa(c.number))
	}
	return weir.KeyOf(faultTag)
}

// policy is the limits of c.
func (c *caller) policy() weir.Policy {
	day := func(limit int64) algorithm.FixedWindow {
		return algorithm.FixedWindow{Limit: limit, Window: 24 * time.Hour}
	}
	p := weir.Policy{Name: suite, Segments: []string{"s0"}, Rules: []weir.Rule{{Name: "own" + strconv.Itoa(c.number), Algorithm: day(c.limit)}}}
	if c.pair {
		p.Segments = []string{"s0", "s1"}
		p.Rules = append(p.Rules, weir.Rule{Name: "shared", By: []string{"s0"}, Algorithm: day(sharedLimit)})
	}
	return p
}

func newFaultRun(rule faultRule) *faultRun {
	r := &faultRun{rule: rule, id: newID()}
	r.key = r.id + ":" + suite + ":{" + faultTag + "}:shared.f2"
	return r
}

func (r *faultRun) errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failures) < maxFailures {
		r.failures = append(r.failures, fmt.Sprintf(format, args...))
	}
}

// sharedLimit is more than the callers can consume.
const sharedLimit = 1 << 40

// run runs the callers through f.
func (r *faultRun) run(t *testing.T, f Fault, out *FaultOutcome) {
	if f.Within == 0 {
		f.Within = 5 * time.Second
	}
	if f.Longest == 0 {
		f.Longest = 4 * CallTime
	}
	// Goroutines inherit the labels of the goroutine that starts them. So the
	// client's goroutines can be found when it should have none left.
	labelled := pprof.WithLabels(t.Context(), pprof.Labels("faults", r.id))
	pprof.SetGoroutineLabels(labelled)
	st, closeClient := f.Open()
	pprof.SetGoroutineLabels(t.Context())
	for i := range faultCallers {
		c := &caller{number: i, pair: i%2 == 1, limit: sharedLimit + 1000 + int64(i)}
		var err error
		if c.limiter, err = weir.NewPolicy(st, c.policy(), &weir.Options{Prefix: r.id}); err != nil {
			t.Fatal(err)
		}
		r.callers = append(r.callers, c)
	}

	ask := func() (stop func()) {
		ended := make(chan struct{})
		var wg sync.WaitGroup
		pprof.SetGoroutineLabels(labelled)
		defer pprof.SetGoroutineLabels(t.Context())
		for _, c := range r.callers {
			wg.Go(func() { r.ask(c, f, ended) })
		}
		wg.Go(func() { r.wake(ended) })
		if f.Confirm != nil && !r.rule.still {
			wg.Go(func() { r.confirm(f, ended) })
		}
		return func() { close(ended); wg.Wait() }
	}

	stop := ask()
	opened := time.Now()
	if deadline := opened.Add(30 * time.Second); opened.Add(r.recovered(opened, deadline)).After(deadline) {
		stop()
		t.Fatalf("calls fail before the fault begins: %v", r.failures)
	}
	r.mu.Lock()
	r.begun = time.Now()
	r.mu.Unlock()
	if r.rule.still {
		stop()
		if err := f.Confirm(); err != nil {
			t.Fatalf("Confirm: %v", err)
		}
		r.mu.Lock()
		r.recent = nil
		r.mu.Unlock()
	}
	f.Begin()
	r.mu.Lock()
	r.effect = true
	r.mu.Unlock()
	if !r.rule.still {
		time.Sleep(faultTime)
	}
	f.End()
	ended := time.Now()
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	if r.rule.still {
		stop = ask()
	}
	back := r.recovered(ended, ended.Add(servedTime+f.Within+5*time.Second))
	stop()
	if back > f.Within {
		r.errorf("%v after the end of the fault not all callers were served, want at most %v", back, f.Within)
	}
	r.account(t, f)
	*out = r.out
	out.Rule, out.Promise = "Faults/"+r.rule.name, r.rule.text
	out.Recovery = back
	if f.Conns != nil && f.Conns() == 0 {
		r.errorf("Conns is 0 while the client is open")
	}
	closeClient()
	if f.Leaky {
		return
	}
	if left := leaked(r.id); left != "" {
		r.errorf("%v after the client was closed, goroutines are left:\n%s", leakTime, left)
	}
	if f.Conns == nil {
		return
	}
	for deadline := time.Now().Add(leakTime); f.Conns() > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.errorf("%v after the client was closed, the server has %d connections", leakTime, f.Conns())
			return
		}
	}
}

// recovered waits until every caller is served, and no call fails for servedTime. It
// returns how long that took from ended on, without that time.
func (r *faultRun) recovered(ended, deadline time.Time) time.Duration {
	for {
		time.Sleep(5 * time.Millisecond)
		r.mu.Lock()
		first := r.lastError
		if first.Before(ended) {
			first = ended
		}
		all := true
		for _, c := range r.callers {
			all = all && c.served.After(first)
		}
		r.mu.Unlock()
		now := time.Now()
		switch {
		case now.After(deadline):
			return now.Sub(ended)
		case all && now.Sub(first) > servedTime:
			return first.Sub(ended)
		}
	}
}

// ask lets c call until ended is closed.
func (r *faultRun) ask(c *caller, f Fault, ended <-chan struct{}) {
	defer func() {
		if cause := recover(); cause != nil {
			r.errorf("caller %d: panic: %v\n%s", c.number, cause, debug.Stack())
		}
	}()
	each := make([]weir.Result, 1)
	if c.pair {
		each = make([]weir.Result, 2)
	}
	for {
		select {
		case <-ended:
			return
		case <-time.After(2 * time.Millisecond): // the server serves other tests too
		}
		limit := CallTime
		if r.serves(c) {
			limit = 10 * time.Second // a slow machine is not a fault
		}
		late := r.late.Load()
		start := time.Now()
		ctx, cancel := context.WithDeadline(context.Background(), start.Add(limit))
		res, err := c.limiter.Decide(ctx, weir.Request{Key: c.key()}, each)
		took := time.Since(start)
		done := ctx.Err() != nil || took >= limit // its timer may be late
		cancel()
		r.answered(c, f, start, took, time.Duration(r.late.Load()-late), done, res, each, err)
	}
}

// serves reports whether no call of c may fail.
func (r *faultRun) serves(c *caller) bool { return r.rule.serves || r.rule.servesOne && !c.pair }

// wake measures late until ended is closed.
func (r *faultRun) wake(ended <-chan struct{}) {
	const nap = 20 * time.Millisecond
	for last := time.Now(); ; {
		select {
		case <-ended:
			return
		case <-time.After(nap):
		}
		now := time.Now()
		if over := now.Sub(last) - nap; over > nap { // less is normal for a timer
			r.late.Add(int64(over))
		}
		last = now
	}
}

// answered checks and counts an answer, which took took, on a machine that was late.
func (r *faultRun) answered(c *caller, f Fault, start time.Time, took, late time.Duration, done bool, res weir.Result, each []weir.Result, err error) {
	cancelled := errors.Is(err, context.DeadlineExceeded)
	unavailable := errors.Is(err, store.ErrUnavailable)
	switch {
	case err == nil && (!res.Allowed || res.Granted != 1):
		r.errorf("caller %d was denied: %+v", c.number, res)
	case err == nil && (each[0].Limit != c.limit || c.pair && each[1].Limit != sharedLimit):
		r.errorf("caller %d, of limit %d, got the answer to another call: %+v", c.number, c.limit, each)
	case err != nil && unavailable == cancelled:
		r.errorf("caller %d: %v: want either ErrUnavailable or DeadlineExceeded", c.number, err)
	case cancelled && !done:
		r.errorf("caller %d: %v after %v, before its deadline", c.number, err, took)
	case errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrScript) || errors.Is(err, store.ErrCrossSlot) || errors.Is(err, context.Canceled):
		r.errorf("caller %d: %v: want either ErrUnavailable or DeadlineExceeded, and nothing else", c.number, err)
	case err != nil && r.serves(c):
		r.errorf("caller %d: %v: want every call served", c.number, err)
	case took > f.Longest+2*late && !r.serves(c): // the server was late too
		r.errorf("caller %d waited %v for an answer, %v: want at most %v, and twice the %v for which the machine was late", c.number, took, err, f.Longest, late)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.begun.IsZero() {
		r.out.Calls++
		r.out.Slowest = max(r.out.Slowest, took)
		switch {
		case cancelled:
			r.out.Cancelled++
		case err != nil:
			r.out.Unavailable++
		default:
			r.out.Allowed++
		}
	}
	if err != nil {
		c.unknown++
		r.lastError = now
		return
	}
	c.granted++
	c.served = start
	if f.Confirm != nil && !r.over {
		r.recent = append(r.recent, now)
	}
}

// confirm calls Confirm again and again, until ended is closed.
func (r *faultRun) confirm(f Fault, ended <-chan struct{}) {
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
		r.mu.Lock()
		if !r.effect { // later ones may be about another server
			r.recent = slices.DeleteFunc(r.recent, start.After)
		}
		r.mu.Unlock()
	}
}

// account compares what callers were granted with what the store has counted.
func (r *faultRun) account(t *testing.T, f Fault) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, c := range r.callers {
		each := make([]weir.Result, 1)
		if c.pair {
			each = make([]weir.Result, 2)
		}
		req := weir.Request{Key: c.key(), Op: weir.Peek}
		_, err := c.limiter.Decide(ctx, req, each)
		// A client's time limits may be too tight for a slow machine.
		for errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
			_, err = c.limiter.Decide(ctx, req, each)
		}
		if err != nil {
			r.errorf("caller %d, after the fault: %v", c.number, err)
			continue
		}
		charged := c.limit - each[0].Remaining
		if excess := c.granted - charged; excess > 0 {
			r.out.Excess += excess
			if !f.Loses {
				r.errorf("caller %d was allowed %d times, and %d tokens were consumed", c.number, c.granted, charged)
			}
		}
		// A call that was repeated may have been answered in the end.
		if most := (c.granted + c.unknown) * int64(f.Repeats+1); charged > most {
			r.errorf("caller %d consumed %d tokens, for %d answers and %d calls without an answer: want at most %d", c.number, charged, c.granted, c.unknown, most)
		}
	}
	if f.Confirm == nil {
		return
	}
	r.out.Unconfirmed = int64(len(r.recent))
	if r.out.Excess > r.out.Unconfirmed {
		r.errorf("%d tokens were consumed and lost, and only %d were unconfirmed", r.out.Excess, r.out.Unconfirmed)
	}
}

// leaked waits until no goroutine has the label of the run id. It returns those that
// still have it after leakTime.
func leaked(id string) string {
	for deadline := time.Now().Add(leakTime); ; time.Sleep(20 * time.Millisecond) {
		var all strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
		var left []string
		for group := range strings.SplitSeq(all.String(), "\n\n") {
			if strings.Contains(group, `"faults":"`+id+`"`) {
				left = append(left, group)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return strings.Join(left, "\n\n")
		}
	}
}
