package conformance

import (
	"context"
	"fmt"
	"runtime"
	"slices"
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
	flaw int // a mistake

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
	if err != nil && o.flaw == trusts || err == nil && o.flaw == idle && len(tx.Changes()) == 0 {
		return out, err, true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, key := range keys {
		changes := slices.ContainsFunc(tx.Changes(), func(c store.Change) bool { return c.Key == i })
		if o.rows[key].version != before[i].version && (changes || o.flaw != blind) {
			return reply, nil, false
		}
	}
	if err != nil {
		return reply, fmt.Errorf("optimistic: eval %s: %w", script.Name(), err), true
	}
	for _, c := range tx.Changes() {
		r := versioned{before[c.Key].version + 1, c.Content, before[c.Key].expires}
		if c.TTL > 0 {
			if r.expires = now + c.TTL.Microseconds(); o.flaw == short {
				r.expires = min(r.expires, now+time.Hour.Microseconds())
			}
		}
		if o.rows[strings.Clone(keys[c.Key])] = r; c.Deleted && o.flaw == reborn {
			delete(o.rows, keys[c.Key])
		}
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
					if keys[key] = time.Duration(r.expires-now) * time.Microsecond; o.flaw == spare {
						keys[key] += time.Hour
					}
				}
			}
			return keys
		},
		Parallel: 8, Brief: true,
	}
}

// Mistakes of an optimistic store: its flaw is the index in optimisticFlaws, plus 1.
const (
	trusts = iota + 1
	blind
	idle
	reborn
	short
	spare
)

// optimisticFlaws has the check that finds each flaw, and what it says.
var optimisticFlaws = []struct{ name, check, says string }{
	{"an error of a form is returned without comparing versions", "Store/Atomic", "always change together"},
	{"keys that a form only reads are not compared", "Store/Peer", "only reads"},
	{"nothing is compared if nothing changed", "Store/Peer", "changes nothing"},
	{"a version starts again after a delete", "Store/Peer", "made again"},
	{"a database keeps an entry for an hour at most", "FixedWindow/TTL", ""},
	{"Keys returns TTLs with the spare hour of the kit", "FixedWindow/TTL", ""},
}

// TestOptimisticFlaws shows that each flaw is found.
func TestOptimisticFlaws(t *testing.T) {
	t.Parallel()
	for i, tt := range optimisticFlaws {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var check suite.Check
			for _, g := range groups() {
				if i := slices.IndexFunc(g.Checks, func(c suite.Check) bool { return g.Name+"/"+c.Name == tt.check }); i >= 0 {
					check = g.Checks[i]
				}
			}
			var failures []string
			for range 10 { // the callers must meet, and can find another consequence first
				failures = suite.Run(t, (&optimistic{flaw: i + 1}).backend().host(nil), check).Failures
				if len(failures) > 0 && strings.Contains(strings.Join(failures, " "), tt.says) {
					return
				}
			}
			t.Errorf("%s: got failures %q, want one that says %q", tt.check, failures, tt.says)
		})
	}
}
