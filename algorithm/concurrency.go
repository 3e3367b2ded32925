package algorithm

import (
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/store"
)

// Concurrency allows Limit requests to go on at once. A request that passes holds
// a lease, under the name of [Request].Lease, until that is released or the time
// Lease is over, by the store's clock: a holder that crashed frees its place. It is
// Stripe's concurrent requests limiter, of "Scaling your API with rate limiters"
// (2017).
//
// A name holds one lease. To ask again with the name of a lease that is held renews
// it, and passes also when all places are taken: a repeated request takes no second
// place, and a long one keeps its own by asking before the lease is over. With
// [Request].RenewOnly it passes only then. To renew makes no lease shorter. To
// release one takes nothing from any other name. So a name belongs to one holder
// alone: give each request a random one.
//
// A lease is one: a request costs 1, which takes it, or 0, which asks. Remaining is
// how many places are free; a denied request passes, if nobody releases or renews,
// when enough leases are over; ResetAfter is until the last one is. A lease is over
// exactly Lease after it was taken or renewed last. Any other cost is
// [ErrInvalidCost].
//
// A key holds at most Limit leases, those among them that are over and not yet
// removed, which go up to 16 at a time with each that is taken. If Limit is lowered
// under a live key, who holds a lease keeps it, and can renew it. If Lease is
// changed, it is that of leases taken or renewed from then on. If the clock steps
// back, leases last longer by the step, and some that were over go on, no more than
// there are places.
type Concurrency struct {
	// Limit is the most leases at once, from 1 to MaxLog.
	Limit int64

	// Lease is how long one is held that is neither renewed nor released: whole
	// microseconds, from 1 µs to MaxSpan. It should be longer than what it is for
	// takes, or than some renewals are apart.
	Lease time.Duration
}

// MaxLease is the longest name of a lease, in bytes.
const MaxLease = 128

//go:embed concurrency.lua
var concurrencyLua string

const (
	// leaseText is how the text of a lease begins.
	leaseText = "c1 "

	// leaseTrim is the most leases that are removed with each that is taken.
	leaseTrim = 16
)

var concurrencyFragment = &Fragment{
	Name:   "concurrency",
	Lua:    concurrencyLua,
	Args:   3,
	State:  []string{"live", "last", "back", "held"},
	Sets:   true,
	Leases: true,
	Check:  concurrencyCheck,
	Commit: concurrencyCommit,
	Refund: concurrencyRefund,
}

type concurrencyLimit struct {
	limit int64
	lease int64
}

// NewLimit implements [Algorithm].
func (c Concurrency) NewLimit() (Limit, error) {
	if c.Limit < 1 || c.Limit > MaxLog {
		return nil, invalid("Concurrency.Limit is %d: it must be from 1 to %d", c.Limit, int64(MaxLog))
	}
	lease, err := wholeMicros("Concurrency.Lease", c.Lease)
	if err != nil {
		return nil, err
	}
	return &concurrencyLimit{limit: c.Limit, lease: lease}, nil
}

func (l *concurrencyLimit) Fragment() *Fragment { return concurrencyFragment }

// CheckRequest implements [RequestChecker]. Without a name a request can only ask,
// which is for the limiter to see to.
func (l *concurrencyLimit) CheckRequest(r Request) error {
	switch {
	case r.Cost != 0 && r.Cost != 1:
		return fmt.Errorf("%w: %d of a Concurrency, whose requests cost 1, a lease, or 0; beside a limit with other costs, give its rule the Cost 1", ErrInvalidCost, r.Cost)
	case len(r.Lease) > MaxLease:
		return fmt.Errorf("%w: a name of %d bytes: it must have at most %d", ErrInvalidLease, len(r.Lease), MaxLease)
	}
	return nil
}

var noLease = store.StringArg("")

func (l *concurrencyLimit) AppendArgs(args []store.Arg, r Request) []store.Arg {
	name := noLease
	if r.Cost == 1 && r.Lease != "" {
		name = store.StringArg(leaseText + r.Lease)
	}
	return append(args, store.IntArg(l.room(r)), store.IntArg(l.lease), name)
}

// room is how many leases can be alive for r to pass that holds none, -1 if it
// cannot.
func (l *concurrencyLimit) room(r Request) int64 {
	if r.Cost > 1 || r.Cost == 1 && r.RenewOnly {
		return -1
	}
	return l.limit - r.Cost
}

func (l *concurrencyLimit) Verdict(now int64, committed bool, s State, r Request) Verdict {
	live, last, back, held := s[0], s[1], s[2], s[3]
	v := Verdict{Limit: l.limit}
	switch room := l.room(r); {
	case held > 0 || live <= room:
		v.Allowed = true
	case room < 0:
		v.RetryAfter = Never
	default:
		v.RetryAfter = micros(max(back-now, 1))
	}
	if committed {
		if held == 0 {
			live++
		}
		last = max(last, now+l.lease)
	}
	v.Remaining = max(l.limit-live, 0)
	if live > 0 {
		v.ResetAfter = micros(max(last-now, 1))
	}
	return v
}

func concurrencyCheck(tx store.Tx, key int, now int64, args []store.Arg) (State, bool, error) {
	var s State
	room, name := args[0].Int(), args[2].String()
	last, ok, err := tx.At(key, -1)
	if err != nil {
		return s, false, err
	}
	if ok && !strings.HasPrefix(last.Text, leaseText) {
		return s, false, tx.Foreign(key)
	}
	if s[1] = last.Score; s[1] > now {
		if s[0], _, err = tx.Count(key, now); err != nil {
			return s, false, err
		}
		if name != "" {
			own, err := leaseOf(tx, key, name)
			if err != nil {
				return s, false, err
			}
			if own > now {
				s[3] = own
			}
		}
		if s[3] == 0 && room >= 0 && s[0] > room {
			over, _, err := tx.At(key, -1-room)
			if err != nil {
				return s, false, err
			}
			s[2] = over.Score
		}
	}
	return s, s[3] > 0 || s[0] <= room, nil
}

// leaseOf is when the lease with that text expires, 0 if there is none.
func leaseOf(tx store.Tx, key int, text string) (int64, error) {
	rank, ok, err := tx.Find(key, text)
	if !ok {
		return 0, err
	}
	own, _, err := tx.At(key, rank)
	return own.Score, err
}

func concurrencyCommit(tx store.Tx, key int, now int64, args []store.Arg, s State, slack time.Duration) {
	live, last, held := s[0], s[1], s[3]
	expires, text := max(now+args[1].Int(), held), args[2].String()
	switch {
	case live > 0:
		_, all, _ := tx.Count(key, now)
		dead := all - live
		if rank, ok, _ := tx.Find(key, text); ok {
			tx.Remove(key, rank, 1)
			if held == 0 {
				dead--
			}
		}
		if held == 0 && dead > 0 {
			tx.Remove(key, 0, min(dead, leaseTrim))
		}
	case last > 0:
		tx.Del(key)
	}
	tx.Add(key, store.Member{Score: expires, Text: text})
	tx.Expire(key, ttl(max(last, expires)-now, slack))
}

func concurrencyRefund(tx store.Tx, key int, _ int64, args []store.Arg, s State, _ Charge, _ Note) bool {
	rank, ok, _ := tx.Find(key, args[2].String())
	if ok {
		tx.Remove(key, rank, 1)
	}
	return ok && s[3] > 0
}
