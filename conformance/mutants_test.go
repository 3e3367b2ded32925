package conformance

import (
	"context"
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

func (w writeLater) Del(i int) { w.later(func(tx store.Tx) { tx.Del(i) }) }

func (w writeLater) Add(i int, m store.Member) { w.later(func(tx store.Tx) { tx.Add(i, m) }) }

func (w writeLater) Remove(i int, rank, n int64) {
	w.later(func(tx store.Tx) { tx.Remove(i, rank, n) })
}

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

var mutants = slices.Concat(storeMutants, batchMutants, gcraMutants, fixedWindowMutants, metadataWindowMutants, slidingCounterMutants,
	slidingBucketsMutants, slidingLogMutants, tokenBucketMutants, leakyBucketMutants, concurrencyMutants, limiterMutants, verbMutants, hygieneMutants)

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
	eachCovered(t, Rules(), covered)
}

// eachCovered checks that a mutant breaks each rule.
func eachCovered(t *testing.T, rules []string, covered map[string]bool) {
	t.Helper()
	for _, name := range rules {
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
			wg.Go(func() { m.wrong.backend().breaks(t, r, name, name == m.rule) }) // most of a rule's time is spent waiting
		}
	}
	wg.Wait()
}

// breaks checks that a mutant breaks r, its own rule, which is called name, or, if it
// is not its own, keeps it.
func (b Backend) breaks(t *testing.T, r rule, name string, own bool) {
	t.Helper()
	b.brief = !own
	c := check(t, b, r)
	for try := 0; try < 3 && own && len(c.failures) == 0; try++ {
		c = check(t, b, r) // a rule that looks at real time can miss something on a busy machine
	}
	switch failed := len(c.failures) > 0; {
	case own && !failed:
		t.Errorf("%s passed (skipped %q)", name, c.skipped)
	case !own && failed:
		t.Errorf("%s failed, which has nothing to do with it:\n%s", name, strings.Join(c.failures, "\n"))
	}
}
