package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A mutant differs from a correct store, or algorithm, in one behaviour. It
// must break its rule, may break those that look at the same thing, and must keep
// all others.
type mutant struct {
	name  string
	rule  string
	also  []string // rules or, ending in a slash, subjects
	wrong mutation
}

// onlyFor limits a change of the view to scripts whose name begins with name.
func onlyFor(name string, change func(f *fake, tx store.Tx) store.Tx) mutation {
	return mutation{tx: func(f *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if !strings.HasPrefix(s.Name(), name) {
			return tx
		}
		return change(f, tx)
	}}
}

// torn runs a script that begins with name on what it read some time ago.
func torn(name string) mutation {
	return mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if s.Name() != name {
			return f.right(ctx, s, keys, args, reply)
		}
		var puts []func(tx store.Tx)
		read := store.NewScript("read", "", func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
			return s.GoForm()(writeLater{tx, &puts}, args, reply)
		})
		reply, err := f.Store.Eval(ctx, read, keys, args, reply)
		if err != nil {
			return reply, err
		}
		time.Sleep(50 * time.Microsecond)
		write := store.NewScript("write", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
			for _, put := range puts {
				put(tx)
			}
			return reply, nil
		})
		_, err = f.Store.Eval(ctx, write, keys, nil, nil)
		return reply, err
	}}
}

type writeLater struct {
	store.Tx
	puts *[]func(store.Tx)
}

func (w writeLater) later(write func(tx store.Tx)) { *w.puts = append(*w.puts, write) }

func (w writeLater) Put(i int, n store.Nums, ttl time.Duration) {
	w.later(func(tx store.Tx) { tx.Put(i, n, ttl) })
}

func (w writeLater) Add(i int, m store.Member) { w.later(func(tx store.Tx) { tx.Add(i, m) }) }

func (w writeLater) Trim(i int, n int64) { w.later(func(tx store.Tx) { tx.Trim(i, n) }) }

func (w writeLater) Expire(i int, ttl time.Duration) {
	w.later(func(tx store.Tx) { tx.Expire(i, ttl) })
}

// hasty gives scripts whose name begins with name a clock that runs at twice the speed.
func hasty(name string) mutation {
	return onlyFor(name, func(f *fake, tx store.Tx) store.Tx {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.memo == nil {
			f.memo = tx.Now()
		}
		start := f.memo.(int64)
		return txFunc{Tx: tx, now: func() int64 { return start + 2*(tx.Now()-start) }}
	})
}

// changed runs Eval as it should be and then changes a reply in which the head,
// ok and now, is followed by states.
func changed(change func(s *store.Script, keys []string, reply []store.Value)) mutation {
	return mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		start := len(reply)
		reply, err := f.right(ctx, s, keys, args, reply)
		if err == nil {
			change(s, keys, reply[start:])
		}
		return reply, err
	}}
}

// composed reports whether s decides over several rules.
func composed(s *store.Script) bool { return strings.Contains(s.Name(), "+") }

func asks(s *store.Script) bool { return strings.HasSuffix(s.Name(), ".peek") }

// spend takes from key 0 without being asked to.
func spend(tx store.Tx) {
	if n, ok, err := tx.Get(0, store.Tag{'f', '1'}); ok && err == nil {
		n.N[1]++
		tx.Put(0, n, time.Hour)
	}
	if n, ok, err := tx.Get(0, store.Tag{'g', '1'}); ok && err == nil {
		n.N[0] += 1_000_000
		tx.Put(0, n, time.Hour)
	}
}

// fractional reports whether args are those of a GCRA whose interval is no whole
// number of microseconds.
func fractional(args []store.Arg) bool { return len(args) == 5 }

// roundArgs loses the last digits of large numbers, as tostring does on Redis.
func roundArgs(args []store.Arg) {
	for i, a := range args {
		if a.Int() > 1e14 {
			args[i] = store.IntArg(a.Int() / 1000 * 1000)
		}
	}
}

// mayBeNever gives a request that never fits a time to come back at.
func mayBeNever(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
	if v.RetryAfter == algorithm.Never {
		v.RetryAfter = time.Hour
	}
	return v
}

// sevens miscounts requests of one cost.
func sevens(v algorithm.Verdict, _ bool, _ algorithm.State, r algorithm.Request) algorithm.Verdict {
	if r.Cost == 7 {
		v.Remaining++
	}
	return v
}

// unknownAhead takes for missing what lies more than most ahead of now.
func unknownAhead(most func(args []store.Arg) int64) badAlgorithm {
	return badAlgorithm{check: func(tx store.Tx, now int64, args []store.Arg) store.Tx {
		return txFunc{Tx: tx, get: func(n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if n.N[0]-now > most(args) {
				return store.Nums{}, false, err
			}
			return n, ok, err
		}}
	}}
}

// badLog returns a mutation of SlidingLog alone.
func badLog(b badAlgorithm) mutation {
	return mutation{wrap: func(a algorithm.Algorithm) algorithm.Algorithm {
		if _, ok := a.(algorithm.SlidingLog); !ok {
			return a
		}
		bad := b
		bad.Algorithm = a
		return &bad
	}}
}

// Views of sorted sets, each wrong in one way.
type (
	arrival   struct{ store.Tx } // equal scores are in the order of arrival
	inclusive struct{ store.Tx } // Count includes after
	hoarder   struct{ store.Tx } // Trim and Del do nothing
	forgetful struct {           // a member ahead of now is not seen
		store.Tx
		now int64
	}
	oncePerScore struct { // a score is held once
		store.Tx
		held map[int64]bool
	}
)

func (a arrival) Add(i int, m store.Member) {
	if m.Score%2 == 0 {
		m.Text = "\x00" + m.Text
	}
	a.Tx.Add(i, m)
}

func (c inclusive) Count(i int, after int64) (above, all int64, err error) {
	return c.Tx.Count(i, after-1)
}

func (hoarder) Trim(int, int64) {}

func (f forgetful) At(i int, rank int64) (store.Member, bool, error) {
	m, ok, err := f.Tx.At(i, rank)
	if m.Score > f.now {
		return store.Member{}, false, err
	}
	return m, ok, err
}

func (o oncePerScore) Add(i int, m store.Member) {
	if last, ok, _ := o.Tx.At(i, -1); ok && last.Score == m.Score || o.held[m.Score] {
		return
	}
	o.held[m.Score] = true
	o.Tx.Add(i, m)
}

var mutants = []mutant{
	{"nil becomes empty", "Store/Reply", nil, changed(func(s *store.Script, _ []string, reply []store.Value) {
		for i, v := range reply {
			if s == kinds && v.Kind() == store.Nil {
				reply[i] = store.BulkValue("")
			}
		}
	})},
	{"reply is not appended to", "Store/Reply", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if s != kinds {
			return f.right(ctx, s, keys, args, reply)
		}
		return f.right(ctx, s, keys, args, nil)
	}}},
	{"arguments end at a NUL", "Store/Args", []string{"Store/Set"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		args = slices.Clone(args)
		for i, a := range args {
			if before, _, cut := strings.Cut(a.String(), "\x00"); cut {
				args[i] = store.StringArg(before)
			}
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"keys end at a NUL", "Store/Keys", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		keys = slices.Clone(keys)
		for i, key := range keys {
			keys[i], _, _ = strings.Cut(key, "\x00")
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"numbers are cut to three", "Store/Nums", nil, mutation{tx: func(_ *fake, _ *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			n.Len = min(n.Len, 3)
			return n, ttl
		}}
	}}},
	{"a script does not see what it put", "Store/Nums", nil, onlyFor("steps", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(store.Nums, bool, error) (store.Nums, bool, error) { return store.Nums{}, false, nil }}
	})},
	{"steps interleave", "Store/Atomic", []string{"Store/Peer"}, torn("counter")},
	{"the clock is read before the locks", "Store/Atomic", []string{"Store/Peer"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		before := time.Now().UnixMicro()
		if s == counter && before%2 == 0 {
			time.Sleep(100 * time.Microsecond) // for the locks, while others pass
		}
		got, err := f.right(ctx, s, keys, args, reply)
		if s == counter && err == nil {
			got[len(got)-1] = store.IntegerValue(before)
		}
		return got, err
	}}},
	{"a store locks its own callers out alone", "Store/Peer", nil, mutation{peer: true}},
	{"steps run twice at times", "Store/Atomic", []string{"Store/Peer"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if got, err := f.right(ctx, s, keys, args, reply); s != counter || err != nil || got[len(got)-3].Int()%100 != 50 {
			return got, err
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"replies are swapped", "Store/OwnReply", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if s != echo || len(args) != 1 || err != nil {
			return got, err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if last, ok := f.memo.(store.Value); ok {
			f.memo, got[len(got)-1] = got[len(got)-1], last
			return got, nil
		}
		f.memo = got[len(got)-1]
		return got, nil
	}}},
	{"a failed script is an outage", "Store/ScriptError", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if errors.Is(err, store.ErrScript) {
			err = fmt.Errorf("%w: %v", store.ErrUnavailable, err)
		}
		return got, err
	}}},
	{"a failed script spoils the reply", "Store/ScriptError", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if errors.Is(err, store.ErrScript) {
			got = nil
		}
		return got, err
	}}},
	{"Lua is run wrongly", "Store/GoForm", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if s == luaOnly {
			return append(reply, store.IntegerValue(2)), nil
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"slots are not looked at", "Store/CrossSlot", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if s == putTwo && errors.Is(err, store.ErrCrossSlot) {
			for i := range keys {
				if got, err = f.right(ctx, putOne, keys[i:i+1], []store.Arg{args[0], args[i+1]}, reply); err != nil {
					return got, err
				}
			}
		}
		return got, err
	}}},
	{"values come in the order of slots", "Store/MGet", nil, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		if len(keys) > 250 {
			keys = slices.Clone(keys)
			slices.SortStableFunc(keys, func(a, b string) int { return store.Slot(a) - store.Slot(b) })
		}
		return f.Store.MGet(ctx, keys, values)
	}}},
	{"sets pass for strings", "Store/MGetType", []string{"Limiter/ForeignType", "SlidingBuckets/ForeignType"}, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		start := len(values)
		values, err := f.Store.MGet(ctx, keys, values)
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, key := range keys {
			if err == nil && f.sets[key] {
				values[start+i] = store.BulkValue("x")
			}
		}
		return values, err
	}}},
	{"equal scores are in the order of arrival", "Store/Set", nil, onlyFor("setstep", func(_ *fake, tx store.Tx) store.Tx { return arrival{tx} })},
	{"a count includes its bound", "Store/Set", []string{"SlidingLog/", "Limiter/Mix"}, mutation{tx: func(_ *fake, _ *store.Script, _ []store.Arg, tx store.Tx) store.Tx { return inclusive{tx} }}},
	{"keys expire early", "Store/Expiry", nil, onlyFor("put", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) { return n, ttl / 10 }}
	})},
	{"a TTL is not renewed", "Store/Expiry", nil, onlyFor("put", func(f *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(i int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			if _, held, _ := tx.Get(i, n.Tag); held {
				ttl = 250 * time.Millisecond
			}
			return n, ttl
		}}
	})},
	{"keys never expire", "Store/Expiry", nil, onlyFor("put", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) { return n, ttl + time.Hour }}
	})},
	{"deleting does nothing", "Store/Delete", nil, onlyFor("del", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, del: func(int) {}}
	})},
	{"contexts are ignored", "Store/Cancelled", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		return f.right(context.WithoutCancel(ctx), s, keys, args, reply)
	}}},
	{"a cancellation is an outage", "Store/Cancelled", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if ctx.Err() != nil {
			return reply, store.ErrUnavailable
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"Time is another clock", "Store/Time", []string{"Store/Expiry"}, mutation{time: func(f *fake, ctx context.Context) (time.Time, error) {
		now, err := f.Store.Time(ctx)
		return now.Add(-time.Second), err
	}}},
	{"keys are kept", "Store/Borrowed", nil, mutation{
		eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
			if s == putOne {
				kept, _ := f.memo.([]string)
				f.memo = append(kept, keys[0]) // where a copy is due
			}
			return f.right(ctx, s, keys, args, reply)
		},
		mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
			if kept, _ := f.memo.([]string); len(keys) == 1 && strings.Contains(keys[0], ":{a}:10") && !slices.Contains(kept, keys[0]) {
				return append(values, store.Value{}), nil
			}
			return f.Store.MGet(ctx, keys, values)
		},
	}},
	{"a lost script runs twice", "Store/ScriptLoss", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if f.scriptsLost() {
			if _, err := f.right(ctx, s, keys, args, nil); err != nil {
				return reply, err
			}
		}
		return f.right(ctx, s, keys, args, reply)
	}}},

	{"a failed call ends the batch", "Batch/Independent", nil, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		var err error
		for i := range calls {
			c := &calls[i]
			if err == nil {
				c.Reply, err = f.right(ctx, c.Script, c.Keys, c.Args, c.Reply)
			}
			c.Err = err
		}
	}}},
	{"a batch has no second try", "Batch/ScriptLoss", nil, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		lost := f.scriptsLost()
		for i := range calls {
			c := &calls[i]
			if c.Err = fmt.Errorf("%w: NOSCRIPT", store.ErrScript); !lost {
				c.Reply, c.Err = f.right(ctx, c.Script, c.Keys, c.Args, c.Reply)
			}
		}
	}}},
	{"a batch ignores its context", "Batch/Cancelled", nil, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		for i := range calls {
			c := &calls[i]
			c.Reply, c.Err = f.right(context.WithoutCancel(ctx), c.Script, c.Keys, c.Args, c.Reply)
		}
	}}},

	{"remaining exceeds the limit", "GCRA/Vectors", []string{"GCRA/", "Limiter/Mix"}, badGCRA(badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if v.RetryAfter == algorithm.Never {
			v.Remaining++
		}
		return v
	}})},
	{"fractions are dropped", "GCRA/Thirds", []string{"GCRA/", "Limiter/"}, badGCRA(badAlgorithm{args: func(args []store.Arg) {
		if fractional(args) {
			args[3] = store.IntArg(0)
		}
	}})},
	{"an interval is at least 1µs", "GCRA/Fast", []string{"GCRA/", "Limiter/Mix"}, badGCRA(badAlgorithm{args: func(args []store.Arg) {
		if fractional(args) {
			args[2] = store.IntArg(max(1, args[2].Int()))
		}
	}})},
	{"parts are taken for others", "GCRA/Carry", nil, badGCRA(badAlgorithm{check: func(tx store.Tx, _ int64, args []store.Arg) store.Tx {
		return txFunc{Tx: tx, get: func(n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if fractional(args) {
				n.N[2] = args[4].Int()
			}
			return n, ok, err
		}}
	}})},
	{"a cost is miscounted", "GCRA/History", []string{"Limiter/Mix"}, badGCRA(badAlgorithm{verdict: sevens})},
	{"a layout of its own", "GCRA/History", []string{"GCRA/Carry", "GCRA/Huge", "Limiter/Mix"}, onlyFor("gcra", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			if n.N[2] == 7 {
				n.N[1], n.N[2] = 0, 1
			}
			return n, ttl
		}}
	})},
	{"the wait is rounded up", "GCRA/Exact", []string{"GCRA/", "Limiter/"}, badGCRA(badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if v.RetryAfter != algorithm.Never {
			v.RetryAfter = (v.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond)
		}
		return v
	}})},
	{"reads and writes apart", "GCRA/HotKey", []string{"Hygiene/TTL"}, torn("gcra")},
	{"the clock is fast", "GCRA/Refill", []string{"Hygiene/"}, hasty("gcra")},
	{"far times are disbelieved", "GCRA/Backwards", []string{"GCRA/History", "GCRA/Never", "Limiter/Mix", "Hygiene/"}, badGCRA(unknownAhead(func(args []store.Arg) int64 {
		inc := args[1]
		if fractional(args) {
			inc = args[2]
		}
		return args[0].Int() + inc.Int() + 1
	}))},
	{"never is an hour", "GCRA/Never", []string{"GCRA/", "Limiter/Mix"}, badGCRA(badAlgorithm{verdict: mayBeNever})},
	{"large numbers lose digits", "GCRA/Huge", nil, badGCRA(badAlgorithm{args: roundArgs})},

	{"always aligned", "FixedWindow/Anchored", []string{"FixedWindow/", "Limiter/"}, badWindow(badAlgorithm{args: func(args []store.Arg) { args[3] = args[1] }})},
	{"never aligned", "FixedWindow/Aligned", []string{"FixedWindow/", "Limiter/Mix"}, badWindow(badAlgorithm{args: func(args []store.Arg) { args[3] = store.IntArg(1) }})},
	{"remaining is negative", "FixedWindow/Carry", nil, badWindow(badAlgorithm{verdict: func(v algorithm.Verdict, committed bool, s algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if !committed {
			v.Remaining = v.Limit - s[1]
		}
		return v
	}})},
	{"a cost is miscounted", "FixedWindow/History", []string{"Limiter/Mix"}, badWindow(badAlgorithm{verdict: sevens})},
	{"the wait is the window", "FixedWindow/Exact", []string{"FixedWindow/", "Limiter/Mix"}, mutation{wrap: func(a algorithm.Algorithm) algorithm.Algorithm {
		w, ok := a.(algorithm.FixedWindow)
		if !ok {
			return a
		}
		return &badAlgorithm{Algorithm: a, verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
			if !v.Allowed && v.RetryAfter != algorithm.Never {
				v.RetryAfter = w.Window
			}
			return v
		}}
	}}},
	{"reads and writes apart", "FixedWindow/HotKey", []string{"Hygiene/TTL"}, torn("fixedwindow")},
	{"the clock is fast", "FixedWindow/Refill", []string{"Hygiene/"}, hasty("fixedwindow")},
	{"a start ahead of now is forgotten", "FixedWindow/Backwards", []string{"FixedWindow/History", "Limiter/Mix"}, badWindow(unknownAhead(func(args []store.Arg) int64 { return args[1].Int() }))},
	{"never is an hour", "FixedWindow/Never", []string{"FixedWindow/", "Limiter/Mix"}, badWindow(badAlgorithm{verdict: mayBeNever})},
	{"large numbers lose digits", "FixedWindow/Huge", nil, badWindow(badAlgorithm{args: roundArgs})},

	{"a token leaves late", "SlidingLog/Trace", []string{"SlidingLog/", "Limiter/Mix", "Hygiene/"}, badLog(badAlgorithm{args: func(args []store.Arg) { args[2] = store.IntArg(args[2].Int() + 1) }})},
	{"the second rule is named", "SlidingLog/Demonstration", nil, changed(func(s *store.Script, keys []string, reply []store.Value) {
		if s.Name() == "slidinglog+slidinglog" && strings.Contains(keys[0], "{calc}") && reply[0].Int() == 0 { // the resource passes for free
			reply[2], reply[5] = store.IntegerValue(0), store.IntegerValue(3)
		}
	})},
	{"tokens of one microsecond are one", "SlidingLog/SameMicrosecond", []string{"SlidingLog/", "Limiter/Mix"}, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if s.Name() == "setstep" {
			return tx
		}
		return oncePerScore{tx, map[int64]bool{}}
	}}},
	{"nothing is trimmed", "SlidingLog/Bounded", nil, onlyFor("slidinglog", func(_ *fake, tx store.Tx) store.Tx { return hoarder{tx} })},
	{"any cost is taken", "SlidingLog/Cost", nil, badLog(badAlgorithm{anyCost: true})},
	{"a cost is miscounted", "SlidingLog/History", []string{"Limiter/Mix"}, badLog(badAlgorithm{verdict: sevens})},
	{"the wait is rounded up", "SlidingLog/Exact", []string{"SlidingLog/", "Limiter/Mix"}, badLog(badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if v.RetryAfter != algorithm.Never {
			v.RetryAfter = (v.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond)
		}
		return v
	}})},
	{"reads and writes apart", "SlidingLog/HotKey", []string{"Hygiene/TTL"}, torn("slidinglog")},
	{"the clock is fast", "SlidingLog/Refill", []string{"Hygiene/"}, hasty("slidinglog")},
	{"the newest is disregarded", "SlidingLog/Backwards", []string{"SlidingLog/", "Limiter/Mix"}, badLog(badAlgorithm{check: func(tx store.Tx, now int64, _ []store.Arg) store.Tx { return forgetful{tx, now} }})},
	{"never is an hour", "SlidingLog/Never", []string{"SlidingLog/", "Limiter/Mix"}, badLog(badAlgorithm{verdict: mayBeNever})},

	{"no span is named", "SlidingBuckets/Spans", []string{"SlidingBuckets/", "Limiter/Mix"}, badBuckets(badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		v.Span = 0
		return v
	}})},
	{"the current bucket is left out", "SlidingBuckets/Edges", []string{"SlidingBuckets/", "Limiter/Mix", "Hygiene/"}, badBuckets(badAlgorithm{check: func(tx store.Tx, now int64, args []store.Arg) store.Tx {
		width := args[len(args)-1].Int()
		return txFunc{Tx: tx, get: func(n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if width == 2_000_000 && now-n.N[0] < width {
				return store.Nums{}, false, err
			}
			return n, ok, err
		}}
	}})},
	{"remaining is negative", "SlidingBuckets/Carry", nil, badBuckets(badAlgorithm{verdict: func(v algorithm.Verdict, committed bool, s algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if !committed {
			v.Remaining = v.Limit - s[1]
		}
		return v
	}})},
	{"a cost is miscounted", "SlidingBuckets/History", []string{"Limiter/Mix"}, badBuckets(badAlgorithm{verdict: sevens})},
	{"the wait is rounded up", "SlidingBuckets/Exact", []string{"SlidingBuckets/", "Limiter/Mix"}, badBuckets(badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if v.RetryAfter != algorithm.Never {
			v.RetryAfter = (v.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond)
		}
		return v
	}})},
	{"reads and writes apart", "SlidingBuckets/HotKey", []string{"Hygiene/TTL"}, torn("slidingbuckets")},
	{"the clock is fast", "SlidingBuckets/Refill", []string{"SlidingBuckets/HotKey", "Hygiene/"}, hasty("slidingbuckets")},
	{"a bucket ahead of now is forgotten", "SlidingBuckets/Backwards", []string{"SlidingBuckets/History", "Limiter/Mix"}, badBuckets(unknownAhead(func([]store.Arg) int64 { return 0 }))},
	{"never is an hour", "SlidingBuckets/Never", []string{"SlidingBuckets/", "Limiter/Mix"}, badBuckets(badAlgorithm{verdict: mayBeNever})},
	{"large numbers lose digits", "SlidingBuckets/Huge", nil, badBuckets(badAlgorithm{args: roundArgs})},
	{"a foreign key passes for missing", "SlidingBuckets/Foreign", []string{"SlidingBuckets/ForeignType"}, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if !strings.Contains(s.Name(), "slidingbuckets") {
			return tx
		}
		return txFunc{Tx: tx, get: func(n store.Nums, ok bool, _ error) (store.Nums, bool, error) { return n, ok, nil }}
	}}},
	{"a set passes for missing", "SlidingBuckets/ForeignType", nil, mutation{tx: func(f *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if !strings.Contains(s.Name(), "slidingbuckets") {
			return tx
		}
		return txFunc{Tx: tx, get: func(n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if len(f.sets) > 0 {
				err = nil
			}
			return n, ok, err
		}}
	}}},
	{"a key of a ring is not read", "SlidingBuckets/PeekMany", nil, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		start := len(values)
		values, err := f.Store.MGet(ctx, keys, values)
		for i, key := range keys {
			if err == nil && strings.HasSuffix(key, "{many1}:ring:0") {
				values[start+i] = store.Value{}
			}
		}
		return values, err
	}}},
	{"a reset takes the first key alone", "SlidingBuckets/Reset", nil, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if s.Name() != "slidingbuckets.reset" {
			return tx
		}
		return txFunc{Tx: tx, del: func(i int) {
			if i == 0 {
				tx.Del(i)
			}
		}}
	}}},
	{"two hundred keys are too many", "SlidingBuckets/Sixteen", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if len(keys) > 200 {
			return reply, fmt.Errorf("%w: too many keys", store.ErrScript)
		}
		return f.right(ctx, s, keys, args, reply)
	}}},

	{"the time of a mix is off", "Limiter/Mix", []string{"SlidingBuckets/PeekMany", "SlidingBuckets/Sixteen", "Limiter/PeekMany"}, changed(func(s *store.Script, _ []string, reply []store.Value) {
		if composed(s) {
			reply[1] = store.IntegerValue(reply[1].Int() + 1)
		}
	})},
	{"a denial charges", "Limiter/AllOrNone", []string{"Limiter/Mix"}, mutation{after: func(_ *fake, s *store.Script, tx store.Tx, reply []store.Value) {
		if composed(s) && !asks(s) && reply[0].Int() == 0 {
			spend(tx)
		}
	}}},
	{"a cost is not charged in full", "Limiter/Cost", nil, badWindow(badAlgorithm{args: func(args []store.Arg) {
		if args[2].Int() == 10 {
			args[2] = store.IntArg(9)
		}
	}})},
	{"asking charges", "Limiter/Ask", []string{"Limiter/"}, mutation{after: func(_ *fake, s *store.Script, tx store.Tx, _ []store.Value) {
		if composed(s) && asks(s) {
			spend(tx)
		}
	}}},
	{"many values are off by one", "Limiter/PeekMany", nil, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		values, err := f.Store.MGet(ctx, keys, values)
		if err == nil && len(keys) > 0 && strings.HasSuffix(keys[0], "{tenant0}:a") {
			values = append(values[1:], values[0])
		}
		return values, err
	}}},
	{"a reset does nothing", "Limiter/Reset", []string{"SlidingBuckets/Reset", "SlidingBuckets/Sixteen", "Hygiene/Prefix"}, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if strings.HasSuffix(s.Name(), ".reset") {
			return txFunc{Tx: tx, del: func(int) {}}
		}
		return tx
	}}},
	{"a foreign key passes for missing", "Limiter/Foreign", []string{"Limiter/ForeignType", "SlidingBuckets/"}, mutation{tx: func(_ *fake, _ *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(n store.Nums, ok bool, _ error) (store.Nums, bool, error) { return n, ok, nil }}
	}}},
	{"a set passes for missing", "Limiter/ForeignType", []string{"SlidingBuckets/ForeignType"}, mutation{tx: func(f *fake, _ *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if len(f.sets) > 0 {
				err = nil
			}
			return n, ok, err
		}}
	}}},
	{"seconds are rounded down", "Limiter/Throttle", nil, changed(func(_ *store.Script, keys []string, reply []store.Value) {
		if strings.HasSuffix(keys[0], ":throttle") {
			now := reply[1].Int()
			reply[1] = store.IntegerValue(now + (now/1_000_000+1)*1_000_000%now)
		}
	})},

	{"a decision writes one key more", "Hygiene/Prefix", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		start := len(reply)
		got, err := f.right(ctx, s, keys, args, reply)
		if err == nil && composed(s) && !asks(s) && got[start].Int() == 1 {
			_, err = f.Store.Eval(ctx, putOne, []string{keys[0] + ":more"}, []store.Arg{store.IntArg(1000), store.IntArg(1)}, nil)
		}
		return got, err
	}}},
	{"a denial writes", "Hygiene/Nothing", []string{"SlidingBuckets/PeekMany", "Limiter/Mix"}, mutation{after: func(_ *fake, s *store.Script, tx store.Tx, reply []store.Value) {
		if composed(s) && reply[0].Int() == 0 {
			if _, ok, err := tx.Get(0, store.Tag{'g', '1'}); !ok && err == nil {
				tx.Put(0, store.Nums{Tag: store.Tag{'g', '1'}, Len: 3, N: [store.MaxNums]int64{1, 0, 1}}, time.Hour)
			}
		}
	}}},
	{"a TTL is in whole seconds", "Hygiene/TTL", []string{"Hygiene/ClockTTL"}, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if s == putOne {
			return tx
		}
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			return n, max(ttl.Truncate(time.Second), min(ttl, time.Second))
		}}
	}}},
	{"a caller's clock lengthens nothing", "Hygiene/ClockTTL", []string{"GCRA/", "FixedWindow/", "Limiter/"}, mutation{tx: func(_ *fake, s *store.Script, args []store.Arg, tx store.Tx) store.Tx {
		if s == wide || len(args) == 0 || args[0].Int() < 1<<40 {
			return tx
		}
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) { return n, ttl - time.Hour }}
	}}},
}

// TestFake shows that what mutants are made of keeps and skips no rule.
func TestFake(t *testing.T) {
	t.Parallel()
	b := mutation{}.backend()
	b.Record = func(o Outcome) {
		if !o.Passed {
			t.Errorf("%s: not passed: %s", o.Rule, o.Skipped)
		}
	}
	Run(t, b)
}

// TestMutants shows that every rule can fail.
func TestMutants(t *testing.T) {
	t.Parallel()
	covered := map[string]bool{}
	for _, m := range mutants {
		covered[m.rule] = true
		t.Run(strings.ReplaceAll(m.rule, "/", ".")+" "+m.name, func(t *testing.T) {
			t.Parallel()
			m.test(t)
		})
	}
	for _, name := range Rules() {
		if !covered[name] {
			t.Errorf("no mutant breaks %s", name)
		}
	}
}

func (m mutant) test(t *testing.T) {
	related := func(name string) bool {
		return slices.ContainsFunc(m.also, func(a string) bool {
			return a == name || strings.HasSuffix(a, "/") && strings.HasPrefix(name, a)
		})
	}
	var wg sync.WaitGroup
	for _, s := range subjects {
		for _, r := range s.rules {
			name := s.name + "/" + r.name
			if name != m.rule && related(name) {
				continue // either way is right
			}
			wg.Go(func() { // most of a rule's time is spent waiting
				b := m.wrong.backend()
				b.brief = name != m.rule
				c := check(t, b, r)
				for try := 0; try < 3 && name == m.rule && len(c.failures) == 0; try++ {
					c = check(t, b, r) // a rule that looks at real time can miss something on a busy machine
				}
				switch failed := len(c.failures) > 0; {
				case name == m.rule && !failed:
					t.Errorf("%s passed (skipped %q)", name, c.skipped)
				case name != m.rule && failed:
					t.Errorf("%s failed, which has nothing to do with it:\n%s", name, strings.Join(c.failures, "\n"))
				}
			})
		}
	}
	wg.Wait()
}
