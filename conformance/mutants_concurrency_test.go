package conformance

import (
	"context"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// badLeases changes the view of scripts of leases alone: of all of them, or of that whose
// name ends in part.
func badLeases(part string, change func(tx store.Tx) store.Tx) mutation {
	return mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if rest, ok := strings.CutPrefix(s.Name(), "concurrency"); !ok || composed(s) || part != "" && rest != part {
			return tx
		}
		return change(tx)
	}}
}

// stranger finds no lease by its name.
func stranger(tx store.Tx) store.Tx {
	return txFunc{Tx: tx, score: func(int, string) (int64, bool, error) { return 0, false, nil }}
}

// badConcurrency changes what a Concurrency answers.
func badConcurrency(change func(ans *contract.Answer, a contract.Ask)) mutation {
	return bad[algorithm.Concurrency](flaw{step: func(b *badStep, _ []store.Arg) {
		b.answer = func(now int64, s contract.State, n int64, a contract.Ask) contract.Answer {
			ans := b.Step.Answer(now, s, n, a)
			change(&ans, a)
			return ans
		}
	}})
}

// A badLeaseTime changes how long leases are held.
func badLeaseTime(change func(args []store.Arg)) mutation {
	return bad[algorithm.Concurrency](flaw{limit: func(l *contract.Limit) { change(l.Args) }})
}

var concurrencyMutants = []mutant{
	{"a lease expires late", "Concurrency/Same", nil, badLeaseTime(func(args []store.Arg) { args[1] = store.ConstArg(args[1].Int() + 1) })},
	{"a retry takes a second place", "Concurrency/Same", nil, badLeases("", stranger)},
	{"a renewal lasts no longer", "Concurrency/Same", nil, bad[algorithm.Concurrency](flaw{step: func(b *badStep, _ []store.Arg) {
		b.write = func(tx store.Tx, key int, now int64, s contract.State, n int64, a contract.Ask, gen int64, slack time.Duration) error {
			if a.Renew {
				return nil
			}
			return b.Step.Write(tx, key, now, s, n, a, gen, slack)
		}
	}})},
	{"a release does nothing", "Concurrency/Same", nil, badLeases(".release", func(tx store.Tx) store.Tx { return txFunc{Tx: tx, remove: func(int, string) {}} })},
	{"a release frees the oldest", "Concurrency/Same", nil, badLeases(".release", func(tx store.Tx) store.Tx {
		_, all, _ := tx.Count(0, 0)
		oldest, _, _ := tx.At(0, all-1)
		return txFunc{Tx: tx, remove: func(i int, _ string) { tx.Remove(i, oldest.Text) }}
	})},
	{"a release leaves an expired lease", "Concurrency/Same", nil, badLeases(".release", func(tx store.Tx) store.Tx {
		return txFunc{Tx: tx, remove: func(i int, text string) {
			if expires, _, _ := tx.Score(i, text); expires > tx.Now() {
				tx.Remove(i, text)
			}
		}}
	})},
	{"a crashed holder holds on", "Concurrency/Same", nil, badLeases("", func(tx store.Tx) store.Tx {
		return txFunc{Tx: tx, count: func(i int, _ int64) (above, all int64, err error) { return tx.Count(i, 0) }}
	})},
	{"any cost is one lease", "Concurrency/Huge", nil, bad[algorithm.Concurrency](flaw{limit: func(l *contract.Limit) { l.MaxCost = 0 }})},
	{"one expired lease goes at a time", "Concurrency/Same", nil, badLeases("", func(tx store.Tx) store.Tx {
		return txFunc{Tx: tx, trim: func(i int, n int64) { tx.Trim(i, min(n, 1)) }}
	})},
	{"a changed limit is not heeded", "Concurrency/Same", nil, stale("concurrency")},
	{"any member is a lease", "Concurrency/Layout", nil, badLeases("", func(tx store.Tx) store.Tx {
		return txFunc{Tx: tx, at: func(i int, fromEnd int64) (store.Member, bool, error) {
			m, ok, err := tx.At(i, fromEnd)
			m.Text = "c2 a"
			return m, ok, err
		}}
	})},
	{"places are miscounted for one name", "Concurrency/Same", nil, badConcurrency(func(ans *contract.Answer, a contract.Ask) {
		if a.Text == "7" && ans.Limit > 2 {
			ans.Remaining++
		}
	})},
	{"beside a rate nobody holds a lease", "Limiter/Mix", []string{"/Mix", "/Sixteen"}, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if !strings.Contains(s.Name(), "concurrency") || !composed(s) {
			return tx
		}
		return stranger(tx)
	}}},
	{"a release beside a rate finds no lease", "Limiter/Mix", []string{"/Mix", "/Sixteen"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if s.Name() == "concurrency.release" && strings.Contains(keys[0], "{beside") {
			keys = []string{keys[0] + ":missing"}
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"the wait is rounded up", "Concurrency/Exact", nil, bad[algorithm.Concurrency](wholeMillis)},
	{"reads and writes apart", "Concurrency/HotKey", nil, torn("concurrency")},
	{"the clock is fast", "Concurrency/Refill", nil, hasty("concurrency")},
	{"a lease that expires late is not seen", "Concurrency/Backwards", nil, bad[algorithm.Concurrency](flaw{step: func(b *badStep, args []store.Arg) {
		b.read = func(tx store.Tx, key int, now int64, a contract.Ask) (contract.State, error) {
			return b.Step.Read(txFunc{Tx: tx, count: func(i int, after int64) (above, all int64, err error) {
				above, all, err = tx.Count(i, after)
				ahead, _, _ := tx.Count(i, now+args[1].Int())
				return above - ahead, all, err
			}}, key, now, a)
		}
	}})},
	{"never is an hour", "Concurrency/Same", nil, bad[algorithm.Concurrency](mayBeNever)},
	{"the key expires before its leases", "Concurrency/TTL", nil, badLeases("", func(tx store.Tx) store.Tx {
		return txFunc{Tx: tx, add: func(i int, m store.Member, ttl time.Duration) {
			if ttl > 10*time.Second {
				ttl -= 2 * time.Second
			}
			tx.Add(i, m, ttl)
		}}
	})},
}
