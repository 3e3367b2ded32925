package conformance

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/store"
)

// A view is a Tx of which a mutant changes some methods: what they get, or what they return.
type view struct {
	store.Tx
	now    func() int64
	get    func(i int, n *store.Nums, ok *bool, err *error)
	put    func(i int, n *store.Nums, ttl *time.Duration) // Keep too
	del    func(i int) bool                               // whether it deletes
	count  func(i int, after int64) (above, all int64, err error)
	score  func(i int, text string, score *int64, ok *bool, err *error)
	at     func(i int, fromEnd int64, m *store.Member, ok *bool, err *error)
	add    func(i int, m *store.Member, ttl *time.Duration) // lost as the ttl adds nothing
	remove func(i int, text string)
	trim   func(i int, n int64) int64
}

// lost is no TTL.
const lost = -1

func (v view) Now() int64 {
	if v.now != nil {
		return v.now()
	}
	return v.Tx.Now()
}

func (v view) Get(i int) (store.Nums, bool, error) {
	n, ok, err := v.Tx.Get(i)
	if v.get != nil {
		v.get(i, &n, &ok, &err)
	}
	return n, ok, err
}

func (v view) Put(i int, n store.Nums, ttl time.Duration) {
	if v.put != nil {
		v.put(i, &n, &ttl)
	}
	v.Tx.Put(i, n, ttl)
}

func (v view) Keep(i int, n store.Nums) {
	if v.put != nil { // a value is changed however it is written
		v.put(i, &n, new(time.Duration))
	}
	v.Tx.Keep(i, n)
}

func (v view) Del(i int) {
	if v.del == nil || v.del(i) {
		v.Tx.Del(i)
	}
}

func (v view) Count(i int, after int64) (above, all int64, err error) {
	if v.count != nil {
		return v.count(i, after)
	}
	return v.Tx.Count(i, after)
}

func (v view) Score(i int, text string) (int64, bool, error) {
	score, ok, err := v.Tx.Score(i, text)
	if v.score != nil {
		v.score(i, text, &score, &ok, &err)
	}
	return score, ok, err
}

func (v view) At(i int, fromEnd int64) (store.Member, bool, error) {
	m, ok, err := v.Tx.At(i, fromEnd)
	if v.at != nil {
		v.at(i, fromEnd, &m, &ok, &err)
	}
	return m, ok, err
}

func (v view) Add(i int, m store.Member, ttl time.Duration) {
	if v.add != nil {
		v.add(i, &m, &ttl)
	}
	if ttl != lost {
		v.Tx.Add(i, m, ttl)
	}
}

func (v view) Remove(i int, text string) {
	if v.remove != nil {
		v.remove(i, text)
		return
	}
	v.Tx.Remove(i, text)
}

func (v view) Trim(i int, n int64) {
	if v.trim != nil {
		n = v.trim(i, n)
	}
	v.Tx.Trim(i, n)
}

// A which says which scripts a mutant runs otherwise.
type which func(s *store.Script) bool

func every(*store.Script) bool { return true }

// named are the scripts whose name begins with start.
func named(start string) which {
	return func(s *store.Script) bool { return strings.HasPrefix(s.Name(), start) }
}

// is is one script.
func is(one *store.Script) which { return func(s *store.Script) bool { return s == one } }

// with are the scripts whose name contains all of parts.
func with(parts ...string) which {
	return func(s *store.Script) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(s.Name(), part) })
	}
}

// ofLimiters are the scripts of limiters, and not those of the suite.
func ofLimiters(s *store.Script) bool {
	return !slices.Contains([]string{"counter", "steps", "wide", "echo", "kinds", "put", "keep", "text", "clean", "push", "broken", "read", "setstep", "fill", "count", "look", "moments", "panics"}, s.Name())
}

// composed are the scripts that decide over several rules.
func composed(s *store.Script) bool { return strings.Contains(s.Name(), "+") }

func peeks(s *store.Script) bool { return strings.HasSuffix(s.Name(), ".peek") }

func refunds(s *store.Script) bool { return strings.HasSuffix(s.Name(), ".refund") }

// sees gives scripts another view.
func sees(of which, change func(c call, tx store.Tx) view) mutation {
	return mutation{tx: func(c call, tx store.Tx) store.Tx {
		if !of(c.s) {
			return tx
		}
		v := change(c, tx)
		v.Tx = tx
		return v
	}}
}

// The following change one method of the view.

func puts(of which, put func(i int, n *store.Nums, ttl *time.Duration)) mutation {
	return sees(of, func(call, store.Tx) view { return view{put: put} })
}

func gets(of which, get func(i int, n *store.Nums, ok *bool, err *error)) mutation {
	return sees(of, func(call, store.Tx) view { return view{get: get} })
}

func dels(of which, del func(i int) bool) mutation {
	return sees(of, func(call, store.Tx) view { return view{del: del} })
}

func adds(of which, add func(m *store.Member, ttl *time.Duration)) mutation {
	return sees(of, func(call, store.Tx) view {
		return view{add: func(_ int, m *store.Member, ttl *time.Duration) { add(m, ttl) }}
	})
}

func trims(of which, trim func(tx store.Tx, n int64) int64) mutation {
	return sees(of, func(_ call, tx store.Tx) view {
		return view{trim: func(_ int, n int64) int64 { return trim(tx, n) }}
	})
}

func clocks(of which, now func(tx store.Tx) int64) mutation {
	return sees(of, func(_ call, tx store.Tx) view { return view{now: func() int64 { return now(tx) }} })
}

func finds(of which, at func(m *store.Member, ok *bool)) mutation {
	return sees(of, func(call, store.Tx) view {
		return view{at: func(_ int, _ int64, m *store.Member, ok *bool, _ *error) { at(m, ok) }}
	})
}

func none(int) bool { return false }

// sends changes the calls of scripts before they are made.
func sends(of which, change func(c *call)) mutation {
	return mutation{eval: func(c call) ([]store.Value, error) {
		if of(c.s) {
			c.keys, c.args = slices.Clone(c.keys), slices.Clone(c.args)
			change(&c)
		}
		return c.right()
	}}
}

// errs changes the errors of calls.
func errs(of which, change func(c call, err error) error) mutation {
	return mutation{eval: func(c call) ([]store.Value, error) {
		reply, err := c.right()
		if err != nil && of(c.s) {
			err = change(c, err)
		}
		return reply, err
	}}
}

// replies changes the replies of calls. A Go form replies with integers: tokens, the time, and
// what each rule's key held.
func replies(of which, change func(c call, reply []store.Value)) mutation {
	return mutation{eval: func(c call) ([]store.Value, error) {
		reply, err := c.right()
		if err == nil && of(c.s) {
			change(c, reply[len(c.reply):])
		}
		return reply, err
	}}
}

// batches makes each call of a batch wrong.
func batches(one func(c call, e *store.Eval)) mutation {
	return mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		for i := range calls {
			one(f.of(ctx, &calls[i]), &calls[i])
		}
	}}
}

// values changes what MGet returns.
func values(change func(f *fake, keys []string, got []store.Value)) mutation {
	return mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		got, err := f.Store.MGet(ctx, keys, values)
		if err == nil {
			change(f, keys, got[len(values):])
		}
		return got, err
	}}
}

// torn runs the scripts of that name in two steps: one that reads, and one that writes.
func torn(name string) mutation {
	return mutation{eval: func(c call) ([]store.Value, error) {
		if c.s.Name() != name {
			return c.right()
		}
		var puts []func(tx store.Tx)
		read := store.NewScript("read", "", func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
			return c.s.GoForm()(writeLater{tx, &puts}, args, reply)
		})
		reply, err := c.f.Store.Eval(c.ctx, read, c.keys, c.args, c.reply)
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
		_, err = c.f.Store.Eval(c.ctx, write, c.keys, nil, nil)
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

func (w writeLater) Keep(i int, n store.Nums) { w.later(func(tx store.Tx) { tx.Keep(i, n) }) }

func (w writeLater) Del(i int) { w.later(func(tx store.Tx) { tx.Del(i) }) }

func (w writeLater) Add(i int, m store.Member, ttl time.Duration) {
	w.later(func(tx store.Tx) { tx.Add(i, m, ttl) })
}

func (w writeLater) Remove(i int, text string) { w.later(func(tx store.Tx) { tx.Remove(i, text) }) }

func (w writeLater) Trim(i int, n int64) { w.later(func(tx store.Tx) { tx.Trim(i, n) }) }

// lasting keeps the TTL of every key that exists.
type lasting struct{ store.Tx }

func (k lasting) Put(i int, n store.Nums, ttl time.Duration) {
	if _, ok, err := k.Get(i); ok && err == nil {
		k.Keep(i, n)
		return
	}
	k.Tx.Put(i, n, ttl)
}

func (k lasting) Add(i int, m store.Member, ttl time.Duration) {
	if _, all, err := k.Count(i, 0); all > 0 && err == nil {
		ttl = 0
	}
	k.Tx.Add(i, m, ttl)
}

// clean deletes keys.
func clean(f *fake, ctx context.Context, keys ...string) {
	for _, key := range keys {
		_, _ = f.Store.Eval(ctx, scripts.Clean, []string{key}, []store.Arg{store.IntArg(1)}, nil)
	}
}

// put sets a key to "p1 1".
func put(c call, key string) {
	_, _ = call{c.f, c.ctx, scripts.Put, []string{key}, []store.Arg{scripts.LongMillis, store.IntArg(1)}, nil}.right()
}
