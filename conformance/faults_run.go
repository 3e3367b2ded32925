package conformance

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

const (
	faultCallers = 8
	servedTime   = 300 * time.Millisecond // how long callers are served before a fault, and after it
	faultTime    = 600 * time.Millisecond // how long they call during a fault, at least
	noFaultTime  = time.Minute            // how long a fault waits for a call to fail
	leakTime     = 10 * time.Second       // until a closed client has ended its goroutines and connections
)

// A faultRun is a check of a fault: callers of one store whose server fails. Each caller has
// another limit, so that it recognizes its answers. The decisions of every second caller have
// a second key, which these callers share.
type faultRun struct {
	check faultCheck
	id    string
	key   string

	begun  atomic.Bool // the fault has begun
	effect atomic.Bool // the fault is in effect
	over   atomic.Bool // the fault is over

	mu        sync.Mutex
	late      time.Duration // for how long a busy machine has made the goroutine of wake wait
	awake     time.Time     // when that goroutine ran last
	failures  []string
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
	key     weir.Key      // of its requests
	each    []weir.Result // the results of its last request, one for each rule

	granted int64     // tokens
	unknown int64     // tokens of the calls that ended in an error, which may have been consumed
	served  time.Time // when the last call that was answered began

	asked time.Time     // when the call that has not returned began; zero if there is none
	late  time.Duration // the lateness then
	ended time.Time     // when the last call that returned began
}

// faultTag is the segment that all keys share, so that they are in one slot.
const faultTag = "faults"

// newCaller returns a caller of st.
func (r *faultRun) newCaller(t *testing.T, st store.Store, number int) *caller {
	c := &caller{number: number, pair: number%2 == 1, limit: sharedLimit + 1000 + int64(number), key: weir.KeyOf(faultTag)}
	day := func(limit int64) algorithm.FixedWindow {
		return algorithm.FixedWindow{Limit: limit, Window: 24 * time.Hour}
	}
	p := weir.Policy{Name: suite.Name, Segments: []string{"s0"}, Rules: []weir.Rule{{Name: "own" + strconv.Itoa(number), Algorithm: day(c.limit)}}}
	if c.pair {
		c.key = weir.KeyOf(faultTag, "caller"+strconv.Itoa(number))
		p.Segments = []string{"s0", "s1"}
		p.Rules = append(p.Rules, weir.Rule{Name: "shared", By: []string{"s0"}, Algorithm: day(sharedLimit)})
	}
	c.each = make([]weir.Result, len(p.Rules))
	var err error
	if c.limiter, err = weir.NewPolicy(st, p, &weir.Options{Prefix: r.id}); err != nil {
		t.Fatal(err)
	}
	return c
}

func newFaultRun(c faultCheck) *faultRun {
	r := &faultRun{check: c, id: suite.NewID()}
	r.key = r.id + ":" + suite.Name + ":{" + faultTag + "}:shared.f2"
	return r
}

func (r *faultRun) errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failures) < suite.MaxFailures {
		r.failures = append(r.failures, fmt.Sprintf(format, args...))
	}
}

// sharedLimit is more tokens than the callers can consume.
const sharedLimit = 1 << 40

// run runs the callers through f.
func (r *faultRun) run(t *testing.T, f Fault) {
	f.Within, f.Longest = cmp.Or(f.Within, 5*time.Second), cmp.Or(f.Longest, 4*CallTime)
	// A goroutine inherits the labels of the goroutine that starts it. So the
	// client's goroutines can be found after the client was closed.
	labelled := pprof.WithLabels(t.Context(), pprof.Labels("faults", r.id))
	pprof.SetGoroutineLabels(labelled)
	st, closeClient := f.Open()
	pprof.SetGoroutineLabels(t.Context())
	for i := range faultCallers {
		r.callers = append(r.callers, r.newCaller(t, st, i))
	}

	ask := func() (stop func()) {
		ended := make(chan struct{})
		r.awake = time.Now()
		var wg sync.WaitGroup
		pprof.SetGoroutineLabels(labelled)
		for _, c := range r.callers {
			wg.Go(func() { r.ask(c, f, ended) })
		}
		pprof.SetGoroutineLabels(t.Context()) // what Confirm starts is not the client's
		wg.Go(func() { r.wake(ended) })
		if f.Confirm != nil && !r.check.still {
			wg.Go(func() { r.confirm(f, ended) })
		}
		return sync.OnceFunc(func() { close(ended); wg.Wait() })
	}

	stop := ask()
	closeClient = sync.OnceFunc(closeClient)
	defer func() { stop(); closeClient() }() // even if a function of f ends the test
	opened := time.Now()
	if deadline := opened.Add(time.Minute); opened.Add(r.recovered(opened, deadline)).After(deadline) {
		stop()
		r.errorf("calls fail before the fault begins")
		return
	}
	r.begun.Store(true)
	if r.check.still {
		stop()
		if f.Confirm == nil {
			r.errorf("Fault.Confirm is nil: this check needs it")
			return
		}
		err := f.Confirm()
		for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); err = f.Confirm() {
			time.Sleep(20 * time.Millisecond) // a busy machine is not a fault
		}
		if err != nil {
			r.errorf("Confirm: %v", err)
			return
		}
		r.recent = nil
	}
	f.Begin()
	r.effect.Store(true)
	if !r.check.still {
		r.await(f, time.Now())
	}
	f.End()
	ended := time.Now()
	r.over.Store(true)
	if r.check.still {
		stop = ask()
	}
	back := r.recovered(ended, ended.Add(servedTime+f.Within+5*time.Second))
	stop()
	if late := r.lateness(); back > f.Within+2*late {
		r.errorf("%v after the end of the fault not all callers were served, want at most %v, and twice the %v for which the machine was late", back, f.Within, late)
	}
	r.account(t, f)
	r.out.Recovery = back
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

// await waits until each caller has got an answer to a call that began after start, when
// the fault took effect. If calls must fail, it also waits for a failure. So it finds a
// call that ends only with the fault, however short other faults are.
func (r *faultRun) await(f Fault, start time.Time) {
	mustFail := !r.check.mild && f.Repeats == 0
	for {
		time.Sleep(5 * time.Millisecond)
		late, now := r.lateness(), time.Now()
		r.mu.Lock()
		over := len(r.failures) > 0
		quiet := mustFail && r.out.Unavailable+r.out.Cancelled == 0
		waiting := slices.IndexFunc(r.callers, func(c *caller) bool { return !c.ended.After(start) })
		stuck := slices.IndexFunc(r.callers, func(c *caller) bool {
			return !c.asked.IsZero() && !r.serves(c) && now.Sub(c.asked) > f.Longest+2*(late-c.late)
		})
		var waited time.Duration
		if stuck >= 0 {
			waited = now.Sub(r.callers[stuck].asked)
		}
		r.mu.Unlock()
		lasted := now.Sub(start)
		switch {
		case over && lasted > faultTime:
			return
		case stuck >= 0:
			r.errorf("caller %d has waited %v for an answer, and waits on: its context ended after %v, so it must end within %v", stuck, waited, CallTime, f.Longest)
			return
		case lasted > faultTime && waiting < 0 && !quiet:
			return
		case lasted > noFaultTime && quiet:
			r.errorf("no call failed within %v of the fault: Begin must make calls fail", noFaultTime)
			return
		case lasted > noFaultTime:
			r.errorf("caller %d got no answer within %v of the fault", waiting, noFaultTime)
			return
		}
	}
}

// recovered waits until every caller is served and no call has failed for servedTime. It
// returns the time from ended until then, without servedTime.
func (r *faultRun) recovered(ended, deadline time.Time) time.Duration {
	for {
		time.Sleep(5 * time.Millisecond)
		r.mu.Lock()
		first := slices.MaxFunc([]time.Time{r.lastError, ended}, time.Time.Compare)
		waiting := slices.ContainsFunc(r.callers, func(c *caller) bool { return !c.served.After(first) })
		r.mu.Unlock()
		now := time.Now()
		switch {
		case now.After(deadline):
			return now.Sub(ended)
		case !waiting && now.Sub(first) > servedTime:
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
	for i := 0; suite.GoesOn(ended, 2*time.Millisecond); i++ { // other tests use the server too
		limit := CallTime
		if r.serves(c) {
			limit = 10 * time.Second // a slow machine is not a fault
		}
		late := r.lateness()
		start := time.Now()
		r.mu.Lock()
		c.asked, c.late = start, late
		r.mu.Unlock()
		ctx, cancel := context.WithDeadline(context.Background(), start.Add(limit))
		cost := 1 + int64(c.number) // so that a caller notices the answer to another
		req := weir.Request{Key: c.key, Cost: cost}
		if i%4 == 3 {
			req.Op, cost = weir.Peek, 0
		}
		res, err := c.limiter.Decide(ctx, req, c.each)
		took := time.Since(start)
		done := ctx.Err() != nil || took >= limit // its timer may be late
		cancel()
		r.answered(c, f, start, took, r.lateness()-late, done, cost, res, err)
	}
}

// serves reports whether no call of c may fail.
func (r *faultRun) serves(c *caller) bool { return r.check.serves || r.check.servesOne && !c.pair }

// nap is the time for which the goroutine of wake sleeps.
const nap = 20 * time.Millisecond

// wake measures late until ended is closed.
func (r *faultRun) wake(ended <-chan struct{}) {
	for suite.GoesOn(ended, nap) {
		late := r.lateness()
		r.mu.Lock()
		r.late, r.awake = late, time.Now()
		r.mu.Unlock()
	}
}

// lateness returns the time for which the goroutine of wake had to wait so far. A wait that
// has not ended counts too.
func (r *faultRun) lateness() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if over := time.Since(r.awake) - nap; over > nap { // less is normal for a timer
		return r.late + over
	}
	return r.late
}
