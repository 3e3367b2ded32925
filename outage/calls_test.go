package outage_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
)

// An answering is a Decider that answers with a function. It stands for the store.
type answering func(ctx context.Context) (weir.Result, error)

func (a *answering) Decide(ctx context.Context, _ weir.Request, _ []weir.Result) (weir.Result, error) {
	return (*a)(ctx)
}

// after returns a function that answers after d, whatever the context does.
func after(d time.Duration, err error) answering {
	return func(context.Context) (weir.Result, error) {
		time.Sleep(d)
		return weir.Result{Allowed: err == nil}, err
	}
}

// hang does not answer until the context ends.
func hang(ctx context.Context) (weir.Result, error) {
	<-ctx.Done()
	return weir.Result{}, ctx.Err()
}

// What the caller gets, and what a call tells the breaker: the store failed, it answered,
// or nothing, because the caller or another wrapper ended the call. A call that is known
// to be misuse, or whose caller has gone, does not take the place of a probe.
func TestCalls(t *testing.T) {
	const (
		budget  = outage.DefaultBudget
		failed  = "failed"
		works   = "works"
		nothing = "nothing"
	)
	own := errors.New("an error of a wrapper")
	down := fmt.Errorf("i/o timeout: %w", store.ErrUnavailable)
	expired := func(ctx context.Context) (weir.Result, error) {
		<-ctx.Done()
		return weir.Result{}, down
	}
	key := weir.Request{Key: weir.KeyOf("ann")}
	for name, tt := range map[string]struct {
		deadline time.Duration // of the caller's context; 0 means none, and -1 that it has passed
		cancel   time.Duration // when the caller goes; 0 means never
		r        weir.Request
		store    answering
		want     []error // of the caller; nil means an answer
		degraded string  // a part of the Degraded
		tells    string
	}{
		"an answer":                          {0, 0, key, after(0, nil), nil, "", works},
		"an answer just in time":             {0, 0, key, after(budget-1, nil), nil, "", works},
		"unavailable":                        {0, 0, key, after(0, down), nil, "outage: the store did not decide: i/o timeout", failed},
		"misconfigured":                      {0, 0, key, after(0, fmt.Errorf("%w: %w: NOAUTH", store.ErrUnavailable, store.ErrMisconfigured)), nil, "NOAUTH", failed},
		"no answer":                          {0, 0, key, hang, nil, "outage: the store did not decide within the budget of 50ms", failed},
		"no answer, with a long deadline":    {budget + 1, 0, key, hang, nil, "within the budget", failed},
		"no answer for the caller":           {budget, 0, key, hang, []error{context.DeadlineExceeded}, "", nothing},
		"no answer, and the caller goes":     {0, budget / 2, key, hang, []error{context.Canceled}, "", nothing},
		"no answer, which the client calls":  {budget / 2, 0, key, expired, []error{context.DeadlineExceeded, store.ErrUnavailable}, "", nothing},
		"late":                               {0, 0, key, after(2*time.Second, nil), nil, "", failed},
		"late, and the caller has gone":      {0, budget / 2, key, after(2*time.Second, nil), nil, "", works},
		"a foreign value":                    {0, 0, key, after(0, store.ErrForeign), []error{store.ErrForeign}, "", works},
		"a foreign value, late":              {0, 0, key, after(2*time.Second, store.ErrForeign), []error{store.ErrForeign}, "", works},
		"a defect of a script":               {0, 0, key, after(0, store.ErrScript), []error{store.ErrScript}, "", works},
		"an error of a wrapper":              {0, 0, key, after(0, own), []error{own}, "", nothing},
		"a context of a wrapper":             {0, 0, key, after(0, context.Canceled), []error{context.Canceled}, "", nothing},
		"a deadline of a wrapper":            {0, 0, key, after(0, context.DeadlineExceeded), nil, "within the budget", failed},
		"a deadline before the budget":       {budget, 0, key, after(0, context.DeadlineExceeded), []error{context.DeadlineExceeded}, "", nothing},
		"the caller had gone":                {-1, 0, key, hang, []error{context.DeadlineExceeded}, "", nothing},
		"an invalid key":                     {0, 0, weir.Request{Key: weir.KeyOf("")}, after(0, weir.ErrInvalidKey), []error{weir.ErrInvalidKey}, "", nothing},
		"an op that does not exist":          {0, 0, weir.Request{Key: key.Key, Op: 99}, after(0, weir.ErrUnsupported), []error{weir.ErrUnsupported}, "", nothing},
		"a Renew without leases":             {0, 0, weir.Request{Key: key.Key, Op: weir.Renew, ID: "i"}, after(0, weir.ErrUnsupported), []error{weir.ErrUnsupported}, "", nothing},
		"a Refund without an ID":             {0, 0, weir.Request{Key: key.Key, Op: weir.Refund}, after(0, weir.ErrInvalidKey), []error{weir.ErrInvalidKey}, "", nothing},
		"a negative cost, seen by no client": {0, 0, weir.Request{Key: key.Key, Cost: -1}, after(0, down), []error{weir.ErrInvalidCost}, "", failed},
	} {
		for _, open := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				var inner answering
				asked := 0
				counted := answering(func(ctx context.Context) (weir.Result, error) { asked++; return inner(ctx) })
				l := weirtest.Wrap(t, weirtest.New(t, weirtest.NewFaulty(), weirtest.PerSecond), weirtest.Around(func(weir.Decider) *answering { return &counted }))
				out := outage.New(&outage.Options{Fallback: outage.Open, Failures: 2})
				l = weirtest.Wrap(t, l, out.Wrap)
				failing := func() {
					inner = after(0, down)
					if res, err := l.Allow(t.Context(), "ann"); !strings.Contains(weirtest.Degraded(t, res, err).Degraded.Error(), "i/o timeout") {
						t.Errorf("%s: got %v, want the cause of the last failure", name, res.Degraded)
					}
				}
				failing()
				time.Sleep(budget)
				if open {
					failing()
					time.Sleep(outage.DefaultProbe)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.deadline != 0 {
					ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					defer cancel()
				}
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, cancel)
				}
				inner, asked = tt.store, 0
				res, err := l.Decide(ctx, tt.r, nil)
				for _, want := range tt.want {
					if !errors.Is(err, want) || res != (weir.Result{}) {
						t.Errorf("%s: got %+v, %v, want %v", name, res, err, want)
					}
				}
				if tt.want == nil && (err != nil || (res.Degraded != nil) != (tt.degraded != "") || res.Degraded != nil && !strings.Contains(res.Degraded.Error(), tt.degraded)) {
					t.Errorf("%s: got %+v, %v, want the Degraded %q", name, res, err, tt.degraded)
				}
				if s := out.State(); name == "misconfigured" && (!errors.Is(res.Degraded, store.ErrMisconfigured) || !errors.Is(s.Cause, store.ErrMisconfigured) || !errors.Is(s.Cause, store.ErrUnavailable)) {
					t.Errorf("%s: got %v and the cause %v, want ErrMisconfigured", name, res.Degraded, s.Cause)
				}
				unsent := tt.r != key || tt.deadline < 0 // when the breaker is open
				if open && (asked == 0) != unsent {
					t.Errorf("%s: %d probes were sent", name, asked)
				}
				s := out.State()
				if s.Down != (tt.tells == failed || open && tt.tells == nothing) {
					t.Errorf("%s: it told the breaker something else than %s", name, tt.tells)
				}
				if name == "late" && !strings.HasSuffix(s.Cause.Error(), "within the budget of 50ms: the call took 2s: check that the store's client heeds deadlines") {
					t.Errorf("%s: got the cause %v", name, s.Cause)
				}
				switch {
				case !s.Down:
					if failing(); out.State().Down != (tt.tells == nothing) {
						t.Errorf("%s: it told the breaker something else than %s", name, tt.tells)
					}
				case open:
					inner, asked = after(0, nil), 0
					if _, err := l.Allow(t.Context(), "ann"); err != nil || (asked == 1) != (unsent || name == "late") {
						t.Errorf("%s: then %d probes were sent, %v", name, asked, err)
					}
				}
			})
		}
	}
}
