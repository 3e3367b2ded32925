package stores

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

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
