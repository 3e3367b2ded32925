package conformance

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

// An optimistic store reads each key without a lock, runs the form, and writes if no key has
// another version by then. Otherwise it tries again. So a form can see a torn snapshot.
type optimistic struct {
	trusts bool // an error of a form without comparing versions, which is a mistake

	mu   sync.Mutex
	rows map[string]versioned // deleted keys too
}

type versioned struct {
	version int
	held    store.Content
	expires int64
}

func (r versioned) at(now int64) store.Content {
	if r.expires <= now {
		return store.Content{}
	}
	return r.held
}

func (o *optimistic) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if err := store.CheckKeys(keys); err != nil {
		return reply, err
	}
	for ctx.Err() == nil {
		if out, err, ok := o.try(script, keys, args, reply); ok {
			return out, err
		}
	}
	return reply, ctx.Err()
}

// try reports whether there was no conflict.
func (o *optimistic) try(script *store.Script, keys []string, args []store.Arg, reply []store.Value) (out []store.Value, err error, ok bool) { // the error is of the form
	before, held := make([]versioned, len(keys)), make([]store.Content, len(keys))
	for i, key := range keys {
		o.mu.Lock()
		before[i] = o.rows[key]
		o.mu.Unlock()
		if i < 4 { // for others to write in between; for each of many keys, it would take minutes on a busy machine
			runtime.Gosched()
		}
	}
	now := time.Now().UnixMicro()
	for i, r := range before {
		held[i] = r.at(now)
	}
	tx := store.NewLoaded(now, held)
	out, err = script.Run(tx, keys, args, reply)
	if err != nil && o.trusts {
		return out, err, true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, key := range keys {
		if o.rows[key].version != before[i].version {
			return reply, nil, false
		}
	}
	if err != nil {
		return reply, fmt.Errorf("optimistic: eval %s: %w", script.Name(), err), true
	}
	for _, c := range tx.Changes() {
		r := versioned{before[c.Key].version + 1, c.Content, before[c.Key].expires}
		if c.TTL > 0 {
			r.expires = now + c.TTL.Microseconds()
		}
		o.rows[strings.Clone(keys[c.Key])] = r
	}
	return out, nil, true
}

func (o *optimistic) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if err := ctx.Err(); err != nil {
		return values, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now().UnixMicro()
	for _, key := range keys {
		var v store.Value
		if h := o.rows[key].at(now); h.Kind == store.Numbers {
			v = store.BulkValue(h.Nums.String())
		}
		values = append(values, v)
	}
	return values, nil
}

func (o *optimistic) Time(ctx context.Context) (time.Time, error) { return time.Now(), ctx.Err() }

func (o *optimistic) backend() Backend {
	o.rows = map[string]versioned{}
	return Backend{
		New:  func(*testing.T) store.Store { return o },
		Peer: func(*testing.T, store.Store) store.Store { return o },
		Keys: func(_ *testing.T, _ store.Store, part string) map[string]time.Duration {
			o.mu.Lock()
			defer o.mu.Unlock()
			keys, now := map[string]time.Duration{}, time.Now().UnixMicro()
			for key, r := range o.rows {
				if r.at(now).Kind != store.Missing && strings.Contains(key, part) {
					keys[key] = time.Duration(r.expires-now) * time.Microsecond
				}
			}
			return keys
		},
		Parallel: 8, Brief: true,
	}
}

// TestOptimistic shows that a correct store without locks passes.
func TestOptimistic(t *testing.T) {
	t.Parallel()
	b := new(optimistic).backend()
	b.Record = func(o Outcome) {
		if !o.Passed && !strings.HasPrefix(o.Skipped, "backend gives no ") && !strings.HasPrefix(o.Skipped, "store ") && !strings.HasPrefix(o.Skipped, "algorithm ") {
			t.Errorf("%s: not passed: %s", o.Check, o.Skipped)
		}
	}
	Run(t, b)
}

// TestOptimisticError shows that a store is found that returns the error of a form that saw a
// torn snapshot.
func TestOptimisticError(t *testing.T) {
	t.Parallel()
	for range 10 { // the callers must meet
		if r := suite.Run(t, (&optimistic{trusts: true}).backend().host(nil), atomicCheck()); len(r.Failures) > 0 {
			if !strings.Contains(r.Failures[0], "always change together") {
				t.Errorf("got failures %q", r.Failures)
			}
			return
		}
	}
	t.Error("Store/Atomic passed")
}
