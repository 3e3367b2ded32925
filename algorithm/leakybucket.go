package algorithm

import (
	"strings"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// LeakyBucket is a queue that requests leave one after another at Rate. If Rate changes,
// the time until the queue is empty stays the same, as with [GCRA]. A request is allowed at
// once if the queue is empty. Otherwise it is denied, unless it can wait, as with Wait,
// Reserve or Request.MaxWait: then it is allowed, and Delay is the time until its turn. The
// caller waits, not the limiter. Up to Queue requests can wait.
//
// A request of cost n uses n turns, so the next request leaves n intervals later. The
// Limit of a result is Queue+1: one request that leaves at once, and Queue requests that
// wait. Remaining is Queue+1 if the queue is empty, and 0 otherwise.
//
// The state is one string. Requests that wait for their Delay leave one interval apart,
// exact to the microsecond.
//
// In debt, more turns than Queue+1 are used, and the next free turn is after all of them.
// The bounds are those of a [GCRA] whose Burst is Queue+1.
//
// A refund returns only the last turns of the queue, because the other callers keep theirs,
// and nothing if Rate has changed since the decision.
//
// Sources: limit_req of nginx, whose burst is Queue. The name is from Turner, "New
// directions in communications (or which way to the information age?)", IEEE
// Communications Magazine 24(10), 1986.
type LeakyBucket struct {
	// Rate is how fast requests leave. Its Count is at most 2^52/1000.
	Rate Rate

	// Queue is the largest number of requests that can wait, 0 or more. Queue+1 has
	// the same bounds as the Burst of a [GCRA].
	Queue int64
}

var leakyBucketKind, leakyBucketFractionKind = queueKind(gcraKind), queueKind(gcraFractionKind)

// queueKind is a kind of GCRA with the room and the refund of a queue.
func queueKind(k *contract.MeterKind) *contract.MeterKind {
	q, meter := *k, k.Meter
	q.Name, q.Tag, q.Lua, q.Queues = "leakybucket", store.Tag{'q', '2'}, queueLua(k.Lua), true
	q.Meter = func(args []store.Arg) contract.Meter {
		g := meter(args).(*gcra)
		g.queue = true
		return &leakyBucket{g}
	}
	return &q
}

// queueLua returns the Lua of a GCRA with the room and the refund of a queue. The free
// turns are counted from now. The room is at most 0 unless the queue is empty at the time
// at. Only the last requests of the queue can be refunded, because the others already
// know their turns.
func queueLua(lua string) string {
	advance, lua, _ := strings.Cut(lua, "-- room\n")
	room, lua, _ := strings.Cut(lua, "-- take\n")
	take, lua, _ := strings.Cut(lua, "if behind > 0")
	_, rest, _ := strings.Cut(lua, "\n")
	return advance + "-- room\nlocal waits = $tat > at or $tat == at and $rem > 0\nlocal at = now\n" + room +
		"if waits and $room > 0 then $room = 0 end\n-- take\n" + take + "if behind > 0 then back = 0 end\n" + rest
}

// NewLimit implements [Algorithm].
func (b LeakyBucket) NewLimit() (*contract.Limit, error) {
	if _, _, err := b.Rate.interval(); err != nil {
		return nil, err
	}
	if b.Queue < 0 || b.Queue >= MaxTokens {
		return nil, contract.Invalid("LeakyBucket.Queue is %d: it must be from 0 to %d", b.Queue, int64(MaxTokens-1))
	}
	l, err := GCRA{Rate: b.Rate, Burst: b.Queue + 1}.NewLimit()
	if err != nil {
		return nil, contract.Invalid("LeakyBucket with Queue %d at %d per %v cannot be counted exactly, or takes longer than %v years to empty: lower Queue or raise Rate",
			b.Queue, b.Rate.Count, b.Rate.Period, years)
	}
	if l.Kind == gcraKind {
		l.Kind = leakyBucketKind
	} else {
		l.Kind = leakyBucketFractionKind
	}
	l.Carry = refilled(l, 0, contract.Cell{}, "the queue stays", "the time until the queue is empty stays, not its length")
	return l, nil
}

type leakyBucket struct{ *gcra }

func (b *leakyBucket) Room(now, at int64, c contract.Cell) int64 {
	room := b.gcra.Room(now, now, c)
	if c.A > at || c.A == at && c.B > 0 {
		return min(room, 0)
	}
	return room
}

// Ready returns when the turn is at most wait microseconds ahead and the queue has n free
// turns. No turn is needed for n = 0.
func (b *leakyBucket) Ready(now int64, c contract.Cell, n, wait int64) int64 {
	if n == 0 {
		return b.gcra.Ready(now, c, 0, 0)
	}
	return max(b.Ends(c)-wait, b.gcra.Ready(now, c, n, 0))
}
