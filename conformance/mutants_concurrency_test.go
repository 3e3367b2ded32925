package conformance

import (
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// Views of leases, each wrong in one way.
type (
	stranger struct{ store.Tx } // Find finds nothing
	oldest   struct{ store.Tx } // Find finds the oldest member for any text
	immortal struct{ store.Tx } // no lease is over
	sparing  struct{ store.Tx } // Remove removes one at most
	keeper   struct{ store.Tx } // Remove removes nothing
	leaseAny struct{ store.Tx } // every text is a lease's
	later    struct {           // leases that expire later are not seen
		store.Tx
		than int64
	}
	shortLived struct{ store.Tx } // keys expire 2 s early
)

func (stranger) Find(int, string) (int64, bool, error) { return 0, false, nil }

func (o oldest) Find(i int, _ string) (int64, bool, error) {
	_, ok, err := o.Tx.At(i, 0)
	return 0, ok, err
}

func (f immortal) Count(i int, _ int64) (above, all int64, err error) { return f.Tx.Count(i, 0) }

func (s sparing) Remove(i int, rank, n int64) { s.Tx.Remove(i, rank, min(n, 1)) }

func (keeper) Remove(int, int64, int64) {}

func (l leaseAny) At(i int, rank int64) (store.Member, bool, error) {
	m, ok, err := l.Tx.At(i, rank)
	m.Text = "c1 a"
	return m, ok, err
}

func (l later) Count(i int, after int64) (above, all int64, err error) {
	above, all, err = l.Tx.Count(i, after)
	ahead, _, _ := l.Tx.Count(i, l.than)
	return above - ahead, all, err
}

func (s shortLived) Expire(i int, ttl time.Duration) {
	if ttl > 10*time.Second {
		ttl -= 2 * time.Second
	}
	s.Tx.Expire(i, ttl)
}

// badLeases changes the view that scripts on leases alone get: all of them, or
// that of which the name ends in part.
func badLeases(part string, change func(tx store.Tx) store.Tx) mutation {
	return mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if rest, ok := strings.CutPrefix(s.Name(), "concurrency"); !ok || composed(s) || part != "" && rest != part {
			return tx
		}
		return change(tx)
	}}
}

func badConcurrency(verdict func(v algorithm.Verdict, r algorithm.Request) algorithm.Verdict) mutation {
	return bad[algorithm.Concurrency](badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, r algorithm.Request) algorithm.Verdict {
		return verdict(v, r)
	}})
}

var concurrencyMutants = []mutant{
	{"a lease is over late", "Concurrency/Trace", []string{"Concurrency/", "Limiter/Mix", "Limiter/Refund"}, bad[algorithm.Concurrency](badAlgorithm{args: func(args []store.Arg) { args[1] = store.IntArg(args[1].Int() + 1) }})},
	{"a retry takes a second place", "Concurrency/Retried", []string{"Concurrency/", "Limiter/Mix", "Limiter/Refund"}, badLeases("", func(tx store.Tx) store.Tx { return stranger{tx} })},
	{"a renewal lasts no longer", "Concurrency/Renew", []string{"Concurrency/History", "Concurrency/Lowered"}, bad[algorithm.Concurrency](badAlgorithm{args: func(args []store.Arg) {
		if args[0].Int() < 0 {
			args[1] = store.IntArg(0)
		}
	}})},
	{"a release does nothing", "Concurrency/Release", []string{"Concurrency/", "Limiter/Mix", "Limiter/Refund"}, badLeases(".refund", func(tx store.Tx) store.Tx { return keeper{tx} })},
	{"a release frees the oldest", "Concurrency/LateRelease", []string{"Concurrency/", "Limiter/Mix", "Limiter/Refund"}, badLeases(".refund", func(tx store.Tx) store.Tx { return oldest{tx} })},
	{"a crashed holder holds on", "Concurrency/Crash", []string{"Concurrency/", "Limiter/Mix", "Limiter/Refund"}, badLeases("", func(tx store.Tx) store.Tx { return immortal{tx} })},
	{"any cost and name is taken", "Concurrency/Names", nil, bad[algorithm.Concurrency](badAlgorithm{anyCost: true})},
	{"one lease that is over goes at a time", "Concurrency/Bounded", []string{"Concurrency/History", "Limiter/Mix"}, badLeases("", func(tx store.Tx) store.Tx { return sparing{tx} })},
	{"a lower limit is not heeded", "Concurrency/Lowered", []string{"Concurrency/", "Limiter/Mix", "Limiter/Refund"}, bad[algorithm.Concurrency](badAlgorithm{args: func(args []store.Arg) {
		if args[1].Int() == 10_000_000 && args[0].Int() >= 0 {
			args[0] = store.IntArg(args[0].Int() + 1)
		}
	}})},
	{"any member is a lease", "Concurrency/Layout", nil, badLeases("", func(tx store.Tx) store.Tx { return leaseAny{tx} })},
	{"places are miscounted for one name", "Concurrency/History", []string{"Limiter/Mix"}, badConcurrency(func(v algorithm.Verdict, r algorithm.Request) algorithm.Verdict {
		if r.Lease == "7" && v.Limit > 2 {
			v.Remaining++
		}
		return v
	})},
	{"beside a rate nobody holds a lease", "Limiter/Mix", nil, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if !strings.HasPrefix(s.Name(), "concurrency+") {
			return tx
		}
		return stranger{tx}
	}}},
	{"the wait is rounded up", "Concurrency/Exact", []string{"Concurrency/", "Limiter/Mix", "Limiter/Refund"}, badConcurrency(func(v algorithm.Verdict, _ algorithm.Request) algorithm.Verdict {
		if v.RetryAfter != algorithm.Never {
			v.RetryAfter = (v.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond)
		}
		return v
	})},
	{"reads and writes apart", "Concurrency/HotKey", nil, torn("concurrency")},
	{"the clock is fast", "Concurrency/Refill", []string{"Concurrency/TTL"}, hasty("concurrency")},
	{"a lease taken later is not seen", "Concurrency/Backwards", []string{"Concurrency/History", "Limiter/Mix", "Concurrency/Lowered"}, bad[algorithm.Concurrency](badAlgorithm{check: func(tx store.Tx, now int64, args []store.Arg) store.Tx {
		return later{tx, now + args[1].Int()}
	}})},
	{"never is an hour", "Concurrency/Never", []string{"Concurrency/History"}, bad[algorithm.Concurrency](badAlgorithm{verdict: mayBeNever})},
	{"the key is gone before its leases", "Concurrency/TTL", nil, badLeases("", func(tx store.Tx) store.Tx { return shortLived{tx} })},
}
