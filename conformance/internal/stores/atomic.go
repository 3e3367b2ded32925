package stores

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

// checkAtomic checks that a history of concurrent fetch-and-adds is linearizable: every
// value is returned once, both keys agree, and a call that began after another had ended
// gets a greater value, and a later time.
func checkAtomic(t *suite.T) { linearizable(t, t.Store) }

// steps notes where the times of the calls on a key went back. Some clocks step back at
// times. Valkey 9.1's did so 6 times in 5 million scripts, by up to 61 µs on an idle
// machine. A store that reads its clock too early, or several clocks, does so often.
type steps struct {
	n     int
	at    int64
	first string // what was seen at the first of them
}

// back notes that the call that read n, or one that only read then, had an earlier time
// than the call before.
func (s *steps) back(n int64, format string, args ...any) {
	if s.n > 0 && s.at == n {
		return // another call in the same step
	}
	if s.n++; s.n == 1 {
		s.first = fmt.Sprintf(format, args...)
	}
	s.at = n
}

func (s *steps) check(t *suite.T) {
	const most = 2
	if s.n > most {
		t.Errorf("the time of calls on a key went back %d times, and a clock that steps back may do so %d times. The first time, %s", s.n, most, s.first)
	}
}

// linearizable counts with concurrent calls to all of stores. All callers have two keys in common,
// and each has a key of its own, which can be locked before them or after them. Two other
// keys are deleted when they would reach four, and a third counts the calls on them.
func linearizable(t *suite.T, stores ...store.Store) {
	const workers, each = 8, 40
	type op struct {
		n, now     int64 // a call that only reads gets the n of the next call; its now is 0, which has no order
		read       int64 // the clock of a call that only reads
		turn       int64 // the number of calls before, of a call on the keys that are deleted
		begin, end time.Time
	}
	ops, turns := make([][]op, workers), make([][]op, workers) // turns are on the keys that are deleted
	var wg sync.WaitGroup
	for w := range workers {
		call := func(s *store.Script, keys []string, args ...store.Arg) op {
			if w%4 > 1 { // half of the callers name the keys in the other order
				slices.Reverse(keys)
				slices.Reverse(args)
			}
			o, st, c := op{begin: time.Now()}, stores[w%len(stores)], []store.Eval{{Script: s, Keys: keys, Args: args}}
			if b, ok := st.(store.Batcher); ok && w%4%3 == 0 {
				b.EvalBatch(t.Ctx, c)
			} else {
				c[0].Reply, c[0].Err = st.Eval(t.Ctx, s, keys, args, nil)
			}
			reply := c[0].Reply
			if o.end = time.Now(); c[0].Err != nil || len(reply) != len(keys)+1 {
				t.Fatalf("Eval %s of %d keys, beside others: got reply %v and error %v, want %d integers and no error", s.Name(), len(keys), reply, c[0].Err, len(keys)+1)
			}
			if w%4 > 1 {
				slices.Reverse(reply[:len(keys)])
			}
			o.turn = reply[len(keys)-1].Int()
			if o.n, o.now = max(reply[0].Int(), 0), reply[len(keys)].Int(); reply[0] != reply[1] {
				t.Errorf("a script is not atomic: it read %d and %d from two keys that always change together", reply[0].Int(), reply[1].Int())
			}
			return o
		}
		t.Goes(&wg, func() {
			for i := range each {
				ops[w] = append(ops[w], call(scripts.CounterThree, append(t.Keys("a", 2), t.Key("a", "own"+strconv.Itoa(w)))))
				if i%4 == 0 {
					o := call(scripts.Look, t.Keys("a", 2), store.IntArg(2))
					o.now, o.read = 0, o.now
					ops[w] = append(ops[w], o)
					if v := t.MGet(t.Keys("a", 2)...); v[0] != v[1] {
						t.Errorf("MGet is not atomic: it read %v and %v from keys of one slot that always change together", v[0], v[1])
					}
				}
				turns[w] = append(turns[w], call(scripts.CounterThree, append(t.Keys("turn", 2), t.Key("turn", "calls")), store.IntArg(4), store.IntArg(4), store.IntArg(0)))
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	all := slices.Concat(ops...)
	slices.SortFunc(all, func(a, b op) int {
		return cmp.Or(cmp.Compare(a.n, b.n), cmp.Compare(a.now, b.now), a.begin.Compare(b.begin))
	})
	latest := time.Time{}        // the latest begin of all ops with smaller values
	n, now := int64(0), int64(0) // of the calls before
	var clock steps
	for _, o := range all {
		switch {
		case o.n < n:
			t.Fatalf("a script is not atomic: two calls that add 1 to the keys read the same value %d, so the step of one was lost", o.n)
		case o.n > n:
			t.Fatalf("no call that adds 1 to the keys read the value %d, and one read %d: a step ran twice", n, o.n)
		case o.now > 0 && o.now < now:
			clock.back(n, "the call that read the value %d had the time %d µs, and the next call, which read %d, had %d µs, which is %d µs earlier. Either the clock is read before the keys are locked, or not all calls use the same clock", n-1, now, o.n, o.now, now-o.now)
		case o.read > 0 && o.read < now:
			clock.back(n, "a read-only call read what was written at %d µs, and its own time was %d µs, which is %d µs earlier: want its clock to be read after its keys, or after the snapshot of them", now, o.read, now-o.read)
		}
		if o.now > 0 {
			n, now = n+1, o.now
		}
		if o.end.Before(latest) {
			t.Errorf("a call that read the value %d ended before a call began that read a smaller value: a call that begins later must read what earlier ones wrote", o.n)
		}
		if o.begin.After(latest) {
			latest = o.begin
		}
	}
	clock.check(t)
	all = slices.Concat(turns...)
	slices.SortFunc(all, func(a, b op) int { return cmp.Compare(a.turn, b.turn) })
	for i, o := range all {
		if o.turn != int64(i) || o.n != int64(i%4) {
			t.Fatalf("a script is not atomic: each call adds 1 to keys, or deletes them if they would reach 4, and adds 1 to another key; call %d read %d, and %d from the other key, want %d and %d", i, o.n, o.turn, i%4, i)
		}
	}
}

func checkOwnReply(t *suite.T) {
	var wg sync.WaitGroup
	for w := range 8 {
		t.Goes(&wg, func() {
			for i := range 50 {
				want := strconv.Itoa(w) + "/" + strconv.Itoa(i)
				if reply := t.Eval(scripts.Echo, t.Keys(strconv.Itoa(w), 1), store.StringArg(want)); len(reply) != 1 || reply[0].Str() != want {
					t.Fatalf("a script that returns its argument %q, beside others: got reply %v", want, reply)
				}
			}
		})
	}
	wg.Wait()
}

func checkPeer(t *suite.T) {
	peer := t.Peer()
	linearizable(t, t.Store, peer)
	between(t, peer)
	together(t, peer)
}

// between calls peer while a form runs, after the form has read its keys. A store that locks
// them lets the peer wait. A store that compares versions runs the form again.
func between(t *suite.T, peer store.Store) {
	keys := t.Keys("between", 2)
	// fill puts a number into key i, unless the other key holds one.
	fill := func(i int, met func()) *store.Script {
		return scripts.LuaOnly.WithForm(func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
			_, _, err := tx.Get(i)
			_, ok, other := tx.Get(1 - i)
			if met(); !ok && other == nil {
				tx.Put(i, scripts.Nums(scripts.CounterTag, 1), scripts.LongTTL)
			}
			return reply, cmp.Or(err, other)
		})
	}
	if !meet(t, keys, func(met func()) *store.Script { return fill(0, met) }, func() {
		suite.Must[[]store.Value](t, "Eval of the peer")(peer.Eval(t.Ctx, fill(1, func() {}), keys, nil, nil))
	}) {
		return
	}
	if got := t.Look(keys...); got[0].Int() == got[1].Int() {
		t.Errorf("each of two calls puts a number if the other has put none, and the keys hold %d and %d (-1: none): want one of them. A key that a form only reads must not change before the call writes", got[0].Int(), got[1].Int())
	}
	again := keys[:1]
	t.Delete(t.Store, keys...)
	t.Put(again[0], 5)
	meet(t, again, func(met func()) *store.Script {
		return scripts.LuaOnly.WithForm(func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
			n, _, err := tx.Get(0)
			met()
			tx.Put(0, scripts.Nums(scripts.CounterTag, n.N[0]+1), scripts.LongTTL)
			return reply, err
		})
	}, func() {
		t.Delete(peer, again...)
		suite.Must[[]store.Value](t, "Eval of the peer")(peer.Eval(t.Ctx, scripts.Put, again, []store.Arg{scripts.LongMillis, store.IntArg(7)}, nil))
	})
	if got := t.Look(again...)[0].Int(); got != 7 && got != 8 {
		t.Errorf("a call adds 1 to a key that holds 5, and meanwhile the key is deleted and gets 7: it holds %d, want 7 or 8. A key that is made again must not have a version that it had before it was deleted", got)
	}
}

// meet evaluates the script that form returns, and calls other once while it runs, from met. It
// reports whether the store runs forms.
func meet(t *suite.T, keys []string, form func(met func()) *store.Script, other func()) (runs bool) {
	var wg sync.WaitGroup
	defer wg.Wait()
	var once sync.Once
	t.Eval(form(func() {
		once.Do(func() {
			runs = true
			done := make(chan struct{})
			t.Goes(&wg, func() {
				defer close(done)
				other()
			})
			select {
			case <-done:
			case <-time.After(200 * time.Millisecond): // it waits for the keys
			}
		})
	}), keys)
	return runs
}

// together reads two keys that peer always changes together, by a script that changes nothing.
func together(t *suite.T, peer store.Store) {
	keys := t.Keys("together", 2)
	var wg sync.WaitGroup
	var stop atomic.Bool
	defer wg.Wait()
	defer stop.Store(true)
	t.Goes(&wg, func() {
		for !stop.Load() {
			suite.Must[[]store.Value](t, "Eval of the peer")(peer.Eval(t.Ctx, scripts.Counter, keys, nil, nil))
		}
	})
	for range t.Times(200) {
		if got := t.Look(keys...); got[0] != got[1] {
			t.Errorf("a script that changes nothing read %d and %d from two keys that always change together: a call must compare the versions of what it read even then", got[0].Int(), got[1].Int())
			break
		}
	}
}
