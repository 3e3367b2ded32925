package gate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/guard"
)

// A work is the context of the handler of a request, and what it has said about its cost.
type work struct {
	context.Context

	request Request
	mu      sync.Mutex
	actual  weir.Actual
	ended   bool
}

type workKey struct{}

// Value implements [context.Context].
func (w *work) Value(key any) any {
	if key == (workKey{}) {
		return w
	}
	return w.Context.Value(key)
}

// Record records the actual cost of the request whose context is ctx. pkg is the name of the
// calling package.
func Record(ctx context.Context, pkg string, actual weir.Actual) error {
	w, _ := ctx.Value(workKey{}).(*work)
	if w == nil {
		return fmt.Errorf("%s: Settle or Refund: the context has no decision with an ID: pass the context of the handler, and let the RequestFunc set an ID", pkg)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return fmt.Errorf("%s: Settle or Refund: the handler has returned: call it before, or use the limiter for work that goes on", pkg)
	}
	w.actual = actual
	return nil
}

// end returns the recorded cost, and lets Record return errors from now on.
func (w *work) end() weir.Actual {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	return w.actual
}

// Run calls handle, the handler of r, with a context for Record. Then it ends the decision, and
// reports an error. If refunds is true, it refunds the decision after a panic, unless the handler
// has recorded a cost. A proxy panics with abort, which is http.ErrAbortHandler, when its client
// leaves, so that refunds nothing.
func (r *Request) Run(ctx context.Context, pkg string, refunds bool, abort error, report func(error), handle func(context.Context)) {
	w := &work{Context: ctx, request: *r}
	defer func() {
		actual := w.end()
		if refunds && actual == (weir.Actual{}) {
			if v := recover(); v != nil {
				defer panic(v)
				if v != abort {
					actual = weir.ActualRefund()
				}
			}
		}
		if err := w.request.finish(ctx, pkg, actual); err != nil {
			report(err)
		}
	}()
	handle(w)
}

// finish ends a request whose handler has returned: it gives the decision the actual cost, if
// there is one, and releases the lease.
func (r *Request) finish(ctx context.Context, pkg string, actual weir.Actual) error {
	op, none := weir.Settle, actual == weir.Actual{}
	switch {
	case r.Leased:
		op = weir.Finish
	case none:
		return nil
	case actual == weir.ActualRefund():
		op, actual = weir.Refund, weir.Actual{}
	}
	back := weir.Request{Key: r.Key, ID: r.ID, Op: op, Actual: actual}
	return r.end(ctx, back, func(res *weir.Result, err error, each []weir.Result) error {
		if none || err != nil {
			return err
		}
		return r.short(pkg, &back, res, each)
	})
}

// Undo undoes the decision of a request that does not go ahead, if nobody else can use its ID. If
// the reply is lost, Undo repeats it in the background.
func (r *Request) Undo(ctx context.Context) error {
	if !r.own {
		return nil
	}
	back := weir.Request{Key: r.Key, ID: r.ID, Op: weir.Refund}
	if r.MaxWait == 0 {
		back.Op, back.Actual = weir.Finish, weir.ActualRefund()
		if rules, ok := weir.Find[interface{ Undo() (weir.Op, weir.Actual) }](r.Decider); ok {
			back.Op, back.Actual = rules.Undo()
		}
	}
	return r.end(ctx, back, func(_ *weir.Result, err error, _ []weir.Result) error {
		if errors.Is(err, weir.ErrUnsupported) {
			return nil
		}
		return err
	})
}

// end sends back. check returns the error that remains of an answer. An invalid Finish releases
// nothing, so a Release follows it.
func (r *Request) end(ctx context.Context, back weir.Request, check func(*weir.Result, error, []weir.Result) error) error {
	send := func(ctx context.Context) (done bool, err error) {
		s := NewScratch()
		defer s.Free()
		res, err := r.Decider.Decide(ctx, back, s.Each[:])
		invalid := back.Op == weir.Finish && err != nil && !guard.Unknown(err)
		done = res.Allowed || res.Replayed || errors.Is(err, weir.ErrUnsupported)
		err = check(&res, err, s.Each[:])
		if invalid {
			free, failed := r.Decider.Decide(ctx, weir.Request{Key: back.Key, ID: back.ID, Op: weir.Release}, nil)
			if done = free.Allowed || done; !errors.Is(failed, weir.ErrUnsupported) {
				err = errors.Join(err, failed)
			}
		}
		return done, err
	}
	if !r.own || !r.lost {
		return guard.Undo(ctx, send)
	}
	life := weir.Never
	if rules, ok := weir.Find[interface {
		Life(*weir.Request) time.Duration
	}](r.Decider); ok {
		life = rules.Life(&r.Request)
	}
	return guard.Chase(ctx, life, send)
}

// short returns an error if the decision does not cost what back asks for. each has the results
// of the rules.
func (r *Request) short(pkg string, back *weir.Request, res *weir.Result, each []weir.Result) error {
	found := res.Replayed || res.Allowed && back.Op != weir.Finish || res.Rule != ""
	cost, _ := back.Actual.Cost()
	switch {
	case !found:
		return fmt.Errorf("%s: %v: the decision was not found, so its cost stays: its tokens have been refilled, it was refunded, or it was never made: Options.Settles of weir keeps decisions for 10 minutes", pkg, back.Op)
	case res.Rule != "":
		return fmt.Errorf("%s: %v: rule %q keeps what the decision consumed: its limit has changed, later reservations need the tokens, or the decision was not found there", pkg, back.Op, res.Rule)
	case res.Granted < cost:
		return fmt.Errorf("%s: %v: the decision costs %d of the actual %d: a rule is too deep in debt", pkg, back.Op, res.Granted, cost)
	}
	costs := back.Actual.Costs()
	rules, ok := weir.Find[interface{ Rules() []weir.RuleInfo }](r.Decider)
	if !ok || costs == (weir.Costs{}) {
		return nil
	}
	for i, rule := range rules.Rules() {
		if rule.Shadow { // it is after the others, and has no result
			break
		}
		if n, ok := costs.Amount(rule.Unit); ok && each[i].Allowed && each[i].Granted < n {
			return fmt.Errorf("%s: %v: the decision costs %d of the actual %d %s in rule %q: the rule is too deep in debt", pkg, back.Op, each[i].Granted, n, rule.Unit, rule.Name)
		}
	}
	return nil
}
