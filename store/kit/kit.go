// Package kit makes stores for limiters from databases. It is for authors of stores. The
// author writes an adapter of a few small methods, and the kit does what the contract of
// a [store.Store] demands: the checks of keys and contexts, the values and their expiry,
// sorted sets, batches, listings, the removal of expired keys, and the errors.
//
// There are two kinds of databases:
//   - [New] is for databases with transactions over ordered entries, for example SQLite,
//     bbolt, Badger or Pebble. The adapter is a [DB].
//   - [NewVersioned] is for databases that compare versions when they write, for example
//     NATS, etcd or DynamoDB. The adapter is a [Versioned].
package kit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/store"
)

// An engine runs calls on a database. Its errors come from the database, and are not
// marked.
type engine interface {
	// check returns why no call can ever work, or nil.
	check() error

	// run runs calls, which passed the checks of keys and contexts, and returns a result
	// for each. After an error, either no call took effect, or that is not known.
	run(ctx context.Context, calls []*store.Eval) ([]result, error)

	// get returns the values of keys. Expired ones are Missing.
	get(ctx context.Context, keys []string) ([]store.Content, error)

	// now returns the time of the clock that scripts use.
	now(ctx context.Context) (time.Time, error)
}

var errZero = errors.New("kit: the store is nil or a zero value: call its constructor")

// A result is what the form of a call returned.
type result struct {
	reply []store.Value
	err   error
}

// A base is a store over an engine.
type base struct {
	name   string
	engine engine
	self   store.Store // the store that has this base
	most   int         // calls that run together
}

// Check implements [store.Checker]. It returns what the Check of the adapter returns, if
// it has one.
func (s *base) Check() error {
	if s == nil || s.engine == nil {
		return errZero
	}
	if err := s.engine.check(); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// BorrowsStrings implements [store.Borrower]. It reports whether st is s, so it is false
// for a store that embeds s.
func (s *base) BorrowsStrings(st store.Store) bool { return s != nil && st == s.self }

// Eval implements [store.Store]. It runs the Go form of script.
func (s *base) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	calls := [1]store.Eval{{Script: script, Keys: keys, Args: args, Reply: reply}}
	s.EvalBatch(ctx, calls[:])
	return calls[0].Reply, calls[0].Err
}

// EvalBatch implements [store.Batcher].
func (s *base) EvalBatch(ctx context.Context, calls []store.Eval) {
	fit := make([]*store.Eval, 0, len(calls))
	for i := range calls {
		c := &calls[i]
		if c.Err = s.fit(ctx, c); c.Err == nil {
			fit = append(fit, c)
		}
	}
	for len(fit) > 0 {
		n := min(len(fit), s.most)
		s.evalTogether(ctx, fit[:n])
		fit = fit[n:]
	}
}

// fit returns why c must not run, or nil.
func (s *base) fit(ctx context.Context, c *store.Eval) error {
	if err := s.Check(); err != nil {
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
		return fmt.Errorf("%s: eval %s: %w", s.name, c.Script.Name(), err)
	}
	return nil
}

func (s *base) evalTogether(ctx context.Context, calls []*store.Eval) {
	results, err := s.engine.run(ctx, calls)
	for i, c := range calls {
		switch {
		case err != nil:
			c.Err = s.failed(ctx, "eval "+c.Script.Name(), err)
		case results[i].err != nil:
			c.Err = fmt.Errorf("%s: eval %s: %w", s.name, c.Script.Name(), results[i].err)
		default:
			c.Reply = results[i].reply
		}
	}
}

// MGet implements [store.Store].
func (s *base) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if err := s.Check(); err != nil {
		return values, err
	}
	if err := ctx.Err(); err != nil {
		return values, fmt.Errorf("%s: mget: %w", s.name, err)
	}
	if len(keys) == 0 {
		return values, nil
	}
	held, err := s.engine.get(ctx, keys)
	if err != nil {
		return values, s.failed(ctx, "mget", err)
	}
	for _, c := range held {
		var v store.Value // Nil
		if c.Kind == store.Numbers {
			v = store.BulkValue(c.Nums.String())
		}
		values = append(values, v)
	}
	return values, nil
}

// Time implements [store.Store].
func (s *base) Time(ctx context.Context) (time.Time, error) {
	if err := s.Check(); err != nil {
		return time.Time{}, err
	}
	if err := ctx.Err(); err != nil {
		return time.Time{}, fmt.Errorf("%s: time: %w", s.name, err)
	}
	now, err := s.engine.now(ctx)
	if err != nil {
		return time.Time{}, s.failed(ctx, "time", err)
	}
	return now, nil
}

// failed returns the error of a call for err, which comes from the database. It is the
// error of ctx if ctx is done, and otherwise ErrUnavailable.
func (s *base) failed(ctx context.Context, call string, err error) error {
	done := ctx.Err()
	switch {
	case done != nil && errors.Is(err, done):
		return fmt.Errorf("%s: %s: %w", s.name, call, err)
	case done != nil:
		return fmt.Errorf("%s: %s: %w: %w", s.name, call, done, err)
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		// A timeout of the client has passed, not the caller's deadline.
		return fmt.Errorf("%s: %s: %w: %v", s.name, call, store.ErrUnavailable, err)
	case errors.Is(err, store.ErrUnavailable):
		return fmt.Errorf("%s: %s: %w", s.name, call, err)
	}
	return fmt.Errorf("%s: %s: %w: %w", s.name, call, store.ErrUnavailable, err)
}
