package algorithm

import (
	_ "embed"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// Concurrency is a concurrency limit: at most Limit requests run at once. An allowed
// request holds a lease until the caller releases it, or until it expires after the time
// Lease. So if a holder crashes, its lease becomes free.
//
// The request's ID is the name of the lease. Give each holder its own name, for example a
// random one: a request whose lease is held renews it, and is allowed even if no lease is
// free. Renewing never shortens a lease, and releasing it does not affect others.
//
// A request costs 1. Remaining is the number of free leases. RetryAfter is the time until
// enough leases expire, if no holder releases or renews one. ResetAfter is the time until
// the last lease expires.
//
// The state is one sorted set with an entry for each lease. Before a lease is added, up
// to 16 expired entries are removed. So there are at most Limit entries, unless Limit was
// lowered. A Concurrency cannot be in debt, because every lease belongs to a request that
// runs.
//
// If Limit is lowered while leases are held, their holders keep them and can renew them.
// A changed Lease applies to leases that are acquired or renewed after the change. If the
// clock steps back, leases last longer by the same time, and leases that had expired
// count as held again, but never more than Limit.
//
// Source: the concurrent requests limiter of "Scaling your API with rate limiters" by
// Stripe (2017).
type Concurrency struct {
	// Limit is the largest number of leases at once, from 1 to MaxLog.
	Limit int64

	// Lease is the time until a lease expires, unless it is renewed. It must be
	// whole microseconds, from 1 µs to MaxSpan. Choose it longer than a request
	// takes, or longer than the time between two renewals.
	Lease time.Duration
}

// MaxLease is the largest length of the name of a lease, in bytes.
const MaxLease = 128

//go:embed concurrency.lua
var concurrencyLua string

var concurrencyKind = &contract.StepKind{
	Head: contract.Head{Name: "concurrency", Tag: store.Tag{'c', '2'}, Cell: "live last back held", Args: "limit lease", Lua: concurrencyLua},
	Sets: true, Leases: true, Locals: "name",
	Step: func(args []store.Arg) contract.Step { return concurrency{args[0].Int(), args[1].Int()} },
}

// NewLimit implements [Algorithm].
func (c Concurrency) NewLimit() (*contract.Limit, error) {
	if c.Limit < 1 || c.Limit > MaxLog {
		return nil, contract.Invalid("Concurrency.Limit is %d: it must be from 1 to %d", c.Limit, int64(MaxLog))
	}
	lease, err := contract.WholeMicros("Concurrency.Lease", c.Lease)
	if err != nil {
		return nil, err
	}
	l := &contract.Limit{
		Kind: concurrencyKind, Args: consts(c.Limit, lease), Capacity: c.Limit, Lease: c.Lease,
		Carry: counted(c.Limit, c.Lease, "the leases stay until they are released or expire"),
	}
	if c.Limit > 1 {
		l.MaxCost = 1
	}
	return l, nil
}

// Divide implements [Divider].
func (c Concurrency) Divide(n int64) Algorithm {
	c.Limit /= n
	return c
}

// A concurrency is the Step of a Concurrency. Its state is live, last, back and held: see
// concurrency.lua.
type concurrency struct{ limit, lease int64 }

func (c concurrency) Read(tx store.Tx, key int, now int64, a contract.Ask) (s contract.State, err error) {
	newest, ok, err := tx.At(key, 0)
	if err != nil || !ok {
		return s, err
	}
	if !strings.HasPrefix(newest.Text, "c2 ") {
		return s, store.ForeignAt(key)
	}
	if s[1] = newest.Score; s[1] <= now {
		return s, nil
	}
	if s[0], _, err = tx.Count(key, now); err != nil {
		return s, err
	}
	if a.Cost == 1 && a.Text != "" {
		if s[3], _, err = tx.Score(key, "c2 "+a.Text); s[3] <= now {
			s[3] = 0
		}
	}
	if rank := c.limit - a.Cost; err == nil && s[3] == 0 && s[0] > rank && rank >= 0 && !a.Renew {
		newest, _, err = tx.At(key, rank)
		s[2] = newest.Score
	}
	return s, err
}

func (c concurrency) Room(_ int64, s contract.State, a contract.Ask) int64 {
	if live, held := s[0], s[3]; held == 0 && !a.Renew {
		return c.limit - live
	} else if held == 0 {
		return 0
	}
	return a.Cost // renewing acquires no second lease
}

func (c concurrency) Write(tx store.Tx, key int, now int64, s contract.State, _ int64, a contract.Ask, _ int64, slack time.Duration) error {
	live, last, held := s[0], s[1], s[3]
	_, all, err := tx.Count(key, now)
	if err != nil {
		return err
	}
	if live == 0 && last > 0 {
		tx.Del(key)
	} else if live > 0 && held == 0 {
		tx.Trim(key, min(all-live, 16))
	}
	expires := max(now+c.lease, held)
	tx.Add(key, store.Member{Score: expires, Text: "c2 " + a.Text}, contract.TTL(now, max(expires, last), slack))
	return nil
}

func (c concurrency) Answer(now int64, s contract.State, n int64, a contract.Ask) contract.Answer {
	live, last, back, held := s[0], s[1], s[2], s[3]
	if n > 0 {
		last = max(last, now+c.lease)
		if held == 0 {
			live++
		}
	}
	ans := answer(now, c.limit, 0, live, back, last)
	if a.Renew {
		ans.RetryAfter = contract.Never
	}
	return ans
}

// Mark implements [contract.StepRefunder]. Leases have no marker.
func (c concurrency) Mark(int64, contract.State, int64, int64) (contract.Cell, int64) {
	return contract.Cell{}, 0
}

// Refund implements [contract.StepRefunder]: it releases the lease named by a.Text.
func (c concurrency) Refund(tx store.Tx, key int, _ int64, s contract.State, a contract.Ask, _ contract.Cell, _, _, _ int64) (bool, error) {
	text := "c2 " + a.Text
	if _, ok, err := tx.Score(key, text); !ok || err != nil { // the call changes nothing
		return false, err
	}
	tx.Remove(key, text)
	return s[3] > 0, nil
}
