package algorithm

import (
	_ "embed"
	"strings"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// LeakyBucket is a queue that requests leave at Rate. A request passes at once if the
// one before left at least an interval ago. Otherwise it is denied, unless it may wait:
// with Request.MaxWait, and in Wait and Reserve, it is allowed and told in Delay when to
// go. Up to Queue requests can wait. Nothing waits in the limiter: the caller holds the
// request back for Delay.
//
// A request of cost n goes in its turn and takes n turns: the next goes n intervals
// later. No more than Queue+1 turns are ever taken, which is the Limit in results.
// Remaining is Queue+1 if the queue is empty, and otherwise 0: nothing more passes at once.
//
// Allowed requests, each after its Delay, are one interval apart to the microsecond, at
// three per second too. If Rate changes under a live key, the time until the queue is
// empty stays. A refund returns the last turns of the queue only: everybody else keeps
// the turn that they were told.
//
// Cost: one string key. Source: limit_req of nginx, whose burst is Queue; Turner, "New
// directions in communications (or which way to the information age?)", IEEE
// Communications Magazine 24(10), 1986, for the name.
type LeakyBucket struct {
	// Rate is how fast requests leave. Its Count is at most 2^52/1000.
	Rate Rate

	// Queue is how many requests can wait: 0 or more, and such that Queue+1 would do
	// as the Burst of a GCRA.
	Queue int64
}

//go:embed leakybucket.lua
var leakyBucketLua string

var leakyBucketKind = &contract.Kind{
	Name: "leakybucket", Tag: store.Tag{'q', '2'}, Cell: gcraKind.Cell, Note: gcraKind.Note,
	Args: gcraFractionKind.Args, Lua: queueLua(), Reserves: true, Absolute: true,
	Meter: func(args []store.Arg) contract.Meter {
		return leakyBucket{gcra{num: args[0].Int(), parts: args[1].Int(), total: args[2].Int(), queue: true}}
	},
}

// queueLua is gcrafraction.lua with the room and the refund of a queue.
func queueLua() string {
	settle, rest, _ := strings.Cut(gcraFractionLua, "-- room\n")
	_, rest, _ = strings.Cut(rest, "-- take\n")
	rest = strings.Replace(rest, "if ahead > $total and behind > 0 then back = back - behind end", "if behind > 0 then back = 0 end", 1)
	return settle + leakyBucketLua + "-- take\n" + rest
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
		num, total := l.Args[0].Int(), l.Args[1].Int()
		l.Args = consts(num, 1, total)
	}
	l.Kind = leakyBucketKind
	return l, nil
}

type leakyBucket struct{ gcra }

func (b leakyBucket) Room(now, at int64, c contract.Cell) int64 {
	if c.A > at || c.A == at && c.B > 0 {
		return 0
	}
	return b.gcra.Room(now, now, c)
}

// Ready is when the turn is at most wait ahead, and the queue holds all n turns.
func (b leakyBucket) Ready(now int64, c contract.Cell, n, wait int64) int64 {
	return max(b.Ends(c)-wait, b.gcra.Ready(now, c, n, 0))
}
