package algorithm

import (
	"strings"

	"github.com/weir-go/weir/store"
)

// LeakyBucket is a queue that requests leave at Rate. A request goes at once if
// nobody waits and the one before left at least an interval ago; up to Queue more
// wait for their turn, which Verdict.Delay tells; when the queue is full a request
// is denied. Nothing waits here: whoever is allowed has to hold the request back
// for so long.
//
// A request of cost n goes in its turn, and takes n turns: the next may go n
// intervals later. It passes if there is room for all of them, so that no more
// than Queue+1 are ever taken, which is the Limit in results.
//
// Allowed requests, each after its Delay, are one interval apart to the
// microsecond, at three per second too. [Request].MaxWait above 0 denies also
// what would have to wait longer; it cannot lengthen the queue.
//
// Its arithmetic and its value in a store, "g1 …", are those of a [GCRA] with a
// Burst of Queue+1, which lets the same requests pass, and all of them at once. If
// Rate changes under a live key, the time until the queue is empty is carried
// over. Giving back lets nobody share a turn: whoever is behind keeps the one that
// they were told, so only the last in the queue gives back.
//
// Source: limit_req of nginx, whose burst is Queue; Turner, "New directions in
// communications (or which way to the information age?)", IEEE Communications
// Magazine 24(10), 1986, for the name.
type LeakyBucket struct {
	// Rate is how fast requests leave. Its Count is at most 2^52/1000.
	Rate Rate

	// Queue is how many can wait: 0 or more, less than MaxTokens, and such that a
	// full queue is empty within MaxSpan.
	Queue int64
}

// The step is that of GCRA, but for what a refund does: everybody in a queue was told
// a turn, so only the last can give back.
var (
	leakyBucketFragment = queue(gcraFragment, "if waits and tat > late then back = back - (tat - late) end",
		"if tat > late then back = 0 end")
	leakyBucketFractionFragment = queue(gcraFractionFragment, "if waits and behind then back, backrem = back - (tat - late), backrem - (rem - laterem) end",
		"if behind then back, backrem = 0, 0 end")
)

// queue returns the fragment of a queue over f, of whose refund one line is another.
func queue(f *Fragment, line, instead string) *Fragment {
	q := *f
	q.Name = "leakybucket"
	q.Lua = strings.Replace(f.Lua, line, instead, 1)
	q.Refund = leakyBucketRefund
	return &q
}

type leakyBucketLimit struct{ *gcraLimit }

// NewLimit implements [Algorithm].
func (b LeakyBucket) NewLimit() (Limit, error) {
	if _, _, err := b.Rate.interval(); err != nil {
		return nil, err
	}
	if b.Queue < 0 || b.Queue >= MaxTokens {
		return nil, invalid("LeakyBucket.Queue is %d: it must be from 0 to %d", b.Queue, int64(MaxTokens-1))
	}
	l, err := GCRA{Rate: b.Rate, Burst: b.Queue + 1}.NewLimit()
	if err != nil {
		return nil, invalid("LeakyBucket with Queue %d at %d per %v takes longer than %v years to empty: lower Queue or raise Rate",
			b.Queue, b.Rate.Count, b.Rate.Period, int64(MaxSpan)/(365*24*3600*1e6))
	}
	return leakyBucketLimit{l.(*gcraLimit)}, nil
}

func (l leakyBucketLimit) Fragment() *Fragment {
	if l.den == 1 {
		return leakyBucketFragment
	}
	return leakyBucketFractionFragment
}

func (l leakyBucketLimit) AppendArgs(args []store.Arg, r Request) []store.Arg {
	room := len(args)
	args = l.gcraLimit.AppendArgs(args, Request{Cost: r.Cost})
	if wait := r.MaxWait.Microseconds(); r.MaxWait > 0 && args[room].Int() >= wait {
		args[room] = store.IntArg(wait)
		if l.den > 1 {
			args[room+1] = store.IntArg(0)
		}
	}
	return args
}

func (l leakyBucketLimit) Verdict(now int64, committed bool, s State, r Request) Verdict {
	v := l.gcraLimit.Verdict(now, committed, s, Request{Cost: r.Cost})
	at, part := gcraLater(s, now)
	delay := at - now
	if part > 0 {
		delay++
	}
	if over := delay - r.MaxWait.Microseconds(); r.MaxWait > 0 && over > 0 {
		v.Allowed, v.RetryAfter = false, max(v.RetryAfter, micros(over))
	}
	if v.Allowed {
		v.Delay = micros(delay)
	}
	return v
}

func leakyBucketRefund(tx store.Tx, key int, now int64, args []store.Arg, s State, was Charge, note Note) bool {
	return gcraGiveBack(tx, key, now, args, s, was, note, true)
}
