package integration

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/weirhttp"
)

const (
	visitors     = 64 // callers of the handler at once
	visitLimit   = 400
	visitShare   = visitLimit / 2 // of each of two processes
	visitsBefore = 10             // of each caller, before the fault
	visitsAfter  = 40             // of each caller, after the breaker has opened
)

// A visit is one request to a site.
type visit struct {
	start   time.Time
	took    time.Duration
	open    bool // before the request began, the breaker was seen to be open
	asked   bool // the store was asked
	outcome observe.Outcome
	status  int
}

// A site is a handler behind the middleware of weirhttp, with a limiter that has an Outage.
type site struct {
	handler http.Handler
	passed  atomic.Int64 // calls of the handler
	open    atomic.Bool  // a request was answered without the store

	mu     sync.Mutex
	visits []visit
}

// visitKey is the key of the *visit in the context of its request.
type visitKey struct{}

// A noted is a store that notes in the visit that it was asked.
type noted struct{ store.Store }

func (n noted) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		v.asked = true
	}
	return n.Store.Eval(ctx, s, keys, args, reply)
}

// newSite returns a site over a new client for the fault f, with a limit of its own.
func newSite(t *testing.T, f conformance.Fault, o *outage.Options) *site {
	t.Helper()
	st, closeClient := f.Open()
	t.Cleanup(closeClient)
	lim, err := weir.New("site", noted{st}, algorithm.FixedWindow{Limit: visitLimit, Window: 24 * time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	lim, err = lim.Wrap(observe.Observer(func(ctx context.Context, d observe.Decision) {
		if v, ok := ctx.Value(visitKey{}).(*visit); ok {
			v.outcome = d.Outcome()
		}
	}).Wrap, outage.New(o).Wrap)
	if err != nil {
		t.Fatal(err)
	}
	limit, err := weirhttp.New(lim, weirhttp.By(weirhttp.Text(rand.Text())), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := new(site)
	s.handler = limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { s.passed.Add(1) }))
	return s
}

// visit sends one request to s.
func (s *site) visit() visit {
	v := &visit{open: s.open.Load()}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	r = r.WithContext(context.WithValue(context.Background(), visitKey{}, v))
	v.start = time.Now()
	s.handler.ServeHTTP(w, r)
	v.took, v.status = time.Since(v.start), w.Code
	if !v.asked {
		s.open.Store(true)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visits = append(s.visits, *v)
	return *v
}

// crowd runs visitors callers of s, each until f returns false.
func (s *site) crowd(f func(visit) bool) {
	var wg sync.WaitGroup
	for range visitors {
		wg.Go(func() {
			for f(s.visit()) {
			}
		})
	}
	wg.Wait()
}

// TestOutageHandler stops a server while callers send requests to a handler. Every request is
// answered, with the status that weirhttp documents. After the breaker has opened, no request
// asks the store until the probe, which here is never due. The store and the process together
// allow no more than the bound.
func TestOutageHandler(t *testing.T) {
	notShort(t)
	servers.Need(t)
	for _, a := range adapters {
		a.timeout = longTimeout
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			t.Run("Killed", func(t *testing.T) { outageHandler(t, restart(t, a, ""), 2) })
			t.Run("Frozen", func(t *testing.T) { outageHandler(t, paused(t, a, ""), 1) })
		})
	}
}

// visitStatus is the status that weirhttp documents for each outcome, if a share of the limit
// decides during an outage.
var visitStatus = map[observe.Outcome]int{
	observe.Allowed:         http.StatusOK,
	observe.Denied:          http.StatusTooManyRequests,
	observe.DegradedAllowed: http.StatusOK,
	observe.DegradedDenied:  http.StatusTooManyRequests,
}

func outageHandler(t *testing.T, f conformance.Fault, lives int) {
	o := &outage.Options{Fallback: outage.Local, Processes: visitLimit / visitShare, Budget: outageBudget, Probe: time.Hour}
	var n atomic.Int64
	before := func(visit) bool { return n.Add(1) < visitors*visitsBefore }
	s := newSite(t, f, o)
	for s.crowd(before); s.open.Load(); s.crowd(before) { // the machine was too busy for the budget
		n.Store(0)
		s = newSite(t, f, o)
	}
	f.Begin()
	defer f.End()
	n.Store(0)
	deadline := time.Now().Add(time.Minute)
	s.crowd(func(v visit) bool {
		if !v.open {
			return time.Now().Before(deadline)
		}
		return n.Add(1) < visitors*visitsAfter
	})
	if !s.open.Load() {
		t.Fatal("the breaker did not open")
	}
	outcomes, wrong := map[observe.Outcome]int{}, map[string]int{}
	for _, v := range s.visits {
		outcomes[v.outcome]++
		switch degraded := v.outcome == observe.DegradedAllowed || v.outcome == observe.DegradedDenied; {
		case v.status != visitStatus[v.outcome]:
			wrong[fmt.Sprintf("the decision was %q, and the status %d", v.outcome, v.status)]++
		case !v.asked && !degraded:
			wrong[fmt.Sprintf("the decision was %q, and the store was not asked", v.outcome)]++
		case v.open && v.asked:
			wrong["the store was asked after the breaker had opened"]++
		}
	}
	for what, n := range wrong {
		t.Errorf("%d of %d requests: %s", n, len(s.visits), what)
	}
	if got := outcomes[observe.Allowed]; got == 0 || got > lives*visitLimit {
		t.Errorf("the store allowed %d requests, want at most %d", got, lives*visitLimit)
	}
	if got := outcomes[observe.DegradedAllowed]; got != visitShare {
		t.Errorf("the process allowed %d requests, want its share of %d", got, visitShare)
	}
	if want := outcomes[observe.Allowed] + outcomes[observe.DegradedAllowed]; int(s.passed.Load()) != want {
		t.Errorf("the handler was called %d times, want %d, once for each allowed request", s.passed.Load(), want)
	}
	t.Logf("outcomes: %v", outcomes)
}

// TestOutageLatency measures how long a handler takes to answer while its server stops, with the
// default budget. It checks nothing, because the numbers are those of the machine. It writes
// them to docs/guide/outage.md.
func TestOutageLatency(t *testing.T) {
	if !*update {
		t.Skip("it only writes figures: run it with -update on a machine that is idle")
	}
	servers.Need(t)
	var worst [3]float64
	for _, a := range adapters {
		a.timeout = longTimeout
		for _, fault := range []struct {
			name  string
			maker faultMaker
		}{{"killed", restart}, {"frozen", paused}} {
			t.Run(a.name+"/"+fault.name, func(t *testing.T) {
				for i, p := range latencies(t, fault.maker(t, a, "")) {
					worst[i] = max(worst[i], p)
				}
			})
		}
	}
	text := fmt.Sprintf("In a measurement with %d concurrent callers (%d processors, one run), 99 %% of the requests were\n"+
		"answered within %.1f ms before a server was killed or frozen, within %.1f ms in the second after, and\n"+
		"within %.3f ms once the limiter sent only probes.\n", visitors, runtime.NumCPU(), worst[0], worst[1], worst[2])
	t.Log("\n" + text)
	if !t.Failed() {
		put(t, "../../docs/guide/outage.md", "<!-- handler -->\n", "<!-- end of handler -->\n", text)
	}
}

// latencies returns the 99th percentile in milliseconds of the requests before the fault, of
// those in the second after it, and of those after the breaker has opened and that second has
// passed.
func latencies(t *testing.T, f conformance.Fault) (p99 [3]float64) {
	s := newSite(t, f, &outage.Options{Fallback: outage.Local, Processes: visitLimit / visitShare})
	crowd := func(d time.Duration) []visit {
		s.visits = nil
		end := time.Now().Add(d)
		s.crowd(func(visit) bool {
			time.Sleep(10 * time.Millisecond) // so that the callers do not wait for a processor
			return time.Now().Before(end)
		})
		return s.visits
	}
	crowd(time.Second) // connects
	phases := [3][]visit{crowd(time.Second)}
	stop := time.AfterFunc(time.Second, f.Begin)
	defer f.End()
	defer stop.Stop()
	during := crowd(5 * time.Second)
	slices.SortFunc(during, func(a, b visit) int { return a.start.Compare(b.start) })
	first := slices.IndexFunc(during, func(v visit) bool { return v.outcome == observe.DegradedAllowed || v.outcome == observe.DegradedDenied })
	if first < 0 {
		t.Fatal("the store decided every request")
	}
	for _, v := range during[first:] {
		switch since := v.start.Sub(during[first].start); {
		case since < time.Second:
			phases[1] = append(phases[1], v)
		case v.open:
			phases[2] = append(phases[2], v)
		}
	}
	for i, phase := range phases {
		if len(phase) == 0 {
			t.Fatalf("no request in phase %d", i)
		}
		slices.SortFunc(phase, func(a, b visit) int { return cmp.Compare(a.took, b.took) })
		p99[i] = float64(phase[len(phase)*99/100].took) / float64(time.Millisecond)
	}
	return p99
}
