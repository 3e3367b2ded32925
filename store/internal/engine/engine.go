// Package engine has what stores without Lua share: the checks of keys and contexts,
// batches, and the errors of calls.
package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/errreply"
)

// An Engine runs calls on a database. Its errors come from the database, and are not
// marked.
type Engine interface {
	// Groups returns the groups of calls that run together, and how many groups run at once.
	Groups(calls []*store.Eval) (groups [][]*store.Eval, atOnce int)

	// Run runs a group of calls, which passed the checks of keys and contexts, and returns a result
	// for each. After an error, either no call took effect, or that is not known.
	Run(ctx context.Context, calls []*store.Eval) ([]Result, error)

	// Get returns the values of keys, as MGet does.
	Get(ctx context.Context, keys []string) ([]store.Value, error)

	// Now returns the time of the clock that scripts use.
	Now(ctx context.Context) (time.Time, error)
}

// A Result is what the form of a call returned.
type Result struct {
	Reply []store.Value
	Err   error
}

// ValueOf returns what MGet returns for a key that holds c.
func ValueOf(c store.Content) store.Value {
	if c.Kind != store.Numbers {
		return store.Value{}
	}
	return store.BulkValue(c.Nums.String())
}

// A Base is a store over an engine. Its methods are those of a store, so that a store can
// embed it.
type Base struct {
	name    string
	engine  Engine
	self    store.Store
	unfit   func() error
	meaning func(call string, err error) error
}

// New returns the Base of the store self, whose errors begin with name. The function unfit
// returns why no call can ever work, or nil. The function meaning returns what an error of a
// call means, which comes from the database: see [errreply.Failed].
func New(name string, e Engine, self store.Store, unfit func() error, meaning func(call string, err error) error) Base {
	return Base{name, e, self, unfit, meaning}
}

// ErrZero is the error of a zero Base.
var ErrZero = errors.New("kit: the store is nil or a zero value: call its constructor")

// Check implements [store.Checker]. It returns what the Check of the adapter returns, if
// it has one.
func (b *Base) Check() error {
	if b == nil || b.engine == nil {
		return ErrZero
	}
	return b.unfit()
}

// BorrowsStrings implements [store.Borrower]. It reports whether st is the store that has
// b, so it is false for a store that embeds that.
func (b *Base) BorrowsStrings(st store.Store) bool { return b != nil && st == b.self }

// Eval implements [store.Store]. It runs the Go form of script.
func (b *Base) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	calls := [1]store.Eval{{Script: script, Keys: keys, Args: args, Reply: reply}}
	b.EvalBatch(ctx, calls[:])
	return calls[0].Reply, calls[0].Err
}

// EvalBatch implements [store.Batcher].
func (b *Base) EvalBatch(ctx context.Context, calls []store.Eval) {
	fit := make([]*store.Eval, 0, len(calls))
	for i := range calls {
		c := &calls[i]
		if c.Err = b.fit(ctx, c); c.Err == nil {
			fit = append(fit, c)
		}
	}
	if len(fit) == 0 {
		return
	}
	groups, atOnce := b.engine.Groups(fit)
	if atOnce == 1 || len(groups) == 1 { // in the goroutine of the caller, who may recover a panic
		for _, g := range groups {
			b.evalTogether(ctx, g)
		}
		return
	}
	var wg sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for _, g := range groups {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			b.evalTogether(ctx, g)
		})
	}
	wg.Wait()
}

// fit returns why c must not run, or nil.
func (b *Base) fit(ctx context.Context, c *store.Eval) error {
	if err := b.Check(); err != nil {
		return err
	}
	err := store.CheckKeys(c.Keys)
	switch {
	case err != nil:
	case c.Script.GoForm() == nil:
		err = store.ErrNoGoForm
	default:
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s: eval %s: %w", b.name, c.Script.Name(), err)
	}
	return nil
}

func (b *Base) evalTogether(ctx context.Context, calls []*store.Eval) {
	results, err := b.engine.Run(ctx, calls)
	for i, c := range calls {
		switch {
		case err != nil:
			c.Err = Failed(ctx, b, "eval "+c.Script.Name(), err)
		case results[i].Err != nil:
			c.Err = fmt.Errorf("%s: eval %s: %w", b.name, c.Script.Name(), results[i].Err)
		default:
			c.Reply = results[i].Reply
		}
	}
}

// MGet implements [store.Store].
func (b *Base) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if err := b.Check(); err != nil {
		return values, err
	}
	if err := ctx.Err(); err != nil {
		return values, fmt.Errorf("%s: mget: %w", b.name, err)
	}
	if len(keys) == 0 {
		return values, nil
	}
	read, err := b.engine.Get(ctx, keys)
	if err != nil {
		return values, Failed(ctx, b, "mget", err)
	}
	return append(values, read...), nil
}

// Time implements [store.Store].
func (b *Base) Time(ctx context.Context) (time.Time, error) {
	if err := b.Check(); err != nil {
		return time.Time{}, err
	}
	if err := ctx.Err(); err != nil {
		return time.Time{}, fmt.Errorf("%s: time: %w", b.name, err)
	}
	now, err := b.engine.Now(ctx)
	if err != nil {
		return time.Time{}, Failed(ctx, b, "time", err)
	}
	return now, nil
}

// Failed returns the error of a call of b for err, which comes from the database.
func Failed(ctx context.Context, b *Base, call string, err error) error {
	return errreply.Failed(ctx, b.name+": "+call, err, func(err error) error { return b.meaning(call, err) })
}
