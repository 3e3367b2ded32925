package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// The defaults of a [Prefetch].
const (
	DefaultPrefetchTokens = 1000
	DefaultPrefetchAge    = time.Second
	DefaultPrefetchKeys   = 4096
)

const (
	maxPrefetchTokens = 1 << 20
	maxPrefetchAge    = time.Hour
	maxPrefetchKeys   = 1 << 24
)

// A Prefetch says how a limiter consumes tokens ahead of requests: see [Limiter.Prefetch]. The
// zero value has the defaults.
type Prefetch struct {
	// MaxTokens is the largest number of tokens that the process holds for a key, from 2 to
	// 2^20. 0 means DefaultPrefetchTokens, 1,000.
	MaxTokens int64

	// MaxAge is how long a prefetched token can be used, at most one hour. 0 means
	// DefaultPrefetchAge, 1 s. A key must use more than four tokens in each MaxAge, or it is
	// decided as if without Prefetch. So a longer MaxAge saves more round trips, and lets
	// requests be counted that much earlier than they are made.
	MaxAge time.Duration

	// MaxKeys is the number of keys for which the process holds tokens, at most 2^24. It is
	// rounded up to a power of two, at least 4. 0 means DefaultPrefetchKeys, 4,096. If there are more,
	// the other keys are decided as if without Prefetch. A key takes about 650 bytes, plus 120
	// for each rule. A key whose segments are longer than 1,024 bytes together is not
	// prefetched.
	MaxKeys int

	// Now is the clock by which tokens age. The default is time.Now. Set it in tests that set
	// Options.Clock or the clock of the store.
	Now func() time.Time
}

// Prefetch returns a limiter that consumes tokens ahead of the requests of busy keys, and then
// allows requests without a round trip:
//
//	lim, err = lim.Prefetch(weir.Prefetch{MaxTokens: 1000})
//	if err != nil {
//		return err
//	}
//	// … after the last request:
//	err = lim.ReturnPrefetched(ctx)
//
// A prefetch is one round trip: a TakeUpTo of as many tokens as the key used lately in half of
// p.MaxAge. This number at most doubles from one prefetch to the next, up to p.MaxTokens. The process
// holds these tokens, and requests use them.
//
// # Promise
//
// All processes together never allow more than the store granted. A token is consumed in the store
// before it is used, less than p.MaxAge before:
//   - In any span of time, at most as much is allowed as the limit grants in that span plus
//     p.MaxAge.
//   - For an algorithm.FixedWindow, at most the limit is allowed in each window, because held
//     tokens end with their window.
//   - A process holds at most p.MaxTokens unused tokens of a key. Until they are used or returned, no
//     other process can use them. If the process dies, they are lost. For the limit, they are
//     consumed tokens, so they are refilled, or end with the window.
//   - A prefetch asks for at most a quarter of the process's part of the tokens that remained after the
//     last one. The part is what this process used since the one before, of what all processes
//     consumed. It keeps at most half of the tokens that it finds, or the cost of its request if that
//     is more, and returns the others at once. So if few tokens remain, requests consume them one
//     by one, in whichever process.
//
// # Requests
//
// Held tokens answer a Consume without ID, MaxWait and Metadata, if they cover its cost. Every other
// request is passed on unchanged. So Wait, Reserve, Refund, Settle and Force work as ever, and do not
// change held tokens. For the store, and so for a Peek, held tokens are consumed.
//
// Denials come from the store. To remember them, add a [DenyCache] with Wrap, after Prefetch. A
// request can be denied while other processes hold tokens, or if its cost is above what this process
// holds.
//
// In an answer from held tokens, Remaining is what remained after the prefetch, less what this process
// used since. If other processes consume tokens, it is too high, for less than p.MaxAge. ResetAfter is
// the one after the prefetch, less the time since. The results of each rule are made in the same way.
//
// If a goroutine needs tokens of a key while a prefetch of that key is under way, it waits for the
// prefetch, until its context ends. It does not wait if others already wait for all tokens of the
// prefetch, if it has waited four times, or after a prefetch that brought nothing. No goroutine waits for another key.
//
// A Reset of a key ends the use of the tokens that this limiter holds for the key. Other processes, and
// other keys that share the limit of a rule, can use theirs in addition to the reset limit, for less than
// p.MaxAge.
//
// # Unused tokens
//
// There is no goroutine and no timer. After p.MaxAge, unused tokens are returned with the next call
// that reaches the store, for any key. Such a call takes two round trips instead of one. The second
// takes at most one second. If it fails, only requests with at least twice as much time return tokens
// in the next second.
// [Limiter.ReturnPrefetched] returns all tokens at once. Tokens that have been refilled in the
// meantime are not returned: see [Limiter.Refund].
//
// A prefetch has an ID. So the store keeps one more key for each rule and prefetch, until the tokens
// have been refilled. If a window is hours or days long, choose a longer p.MaxAge, so that there are
// fewer prefetches in a window.
//
// # Errors
//
// If a prefetch fails, its caller gets the error. What it may have consumed is returned later. During
// an outage, held tokens are used up. After that, nothing is prefetched, and [Limiter.OnOutage]
// answers.
//
// Call Prefetch once, after OnOutage and before Wrap. The limiters that With, Only and Wrap return
// share the memory of the limiter. A key has held tokens for each set of limits. A limiter that
// prefetches decides the requests of [Limiter.DoMany] one by one. An [Observer] that was added before
// Prefetch sees each TakeUpTo and Settle. One that was added after it sees every answer.
//
// Prefetch returns an error:
//   - if a field of p is out of range.
//   - if the limiter is already the result of Prefetch.
//   - [ErrUnsupported] if a rule has a Cost, or is a shadow rule.
//   - [ErrUnsupported] if a rule is an algorithm.LeakyBucket, whose requests leave one by one.
//   - [ErrUnsupported] if the algorithm of a rule cannot refund, cannot be in debt, or holds leases,
//     because unused tokens are returned with [Limiter.Settle].
func (l *Limiter) Prefetch(p Prefetch) (*Limiter, error) {
	if l == nil || l.bound == nil {
		return nil, errNoLimiter
	}
	if l.prefetcher() != nil {
		return nil, errors.New("weir: Prefetch: the limiter is already the result of Prefetch: call Prefetch once")
	}
	if err := p.complete(); err != nil {
		return nil, err
	}
	if err := l.bound.canPrefetch(); err != nil {
		return nil, err
	}
	shared := &prefetcher{Prefetch: p, seed: maphash.MakeSeed()}
	if shared.start = time.Now(); p.Now != nil {
		shared.start = p.Now()
	}
	wrappers := append(l.wrappers[:len(l.wrappers):len(l.wrappers)], wrapper{prefetch: shared})
	return newLimiter(l.bound, wrappers), nil
}

// ReturnPrefetched returns all unused tokens to the store: see [Limiter.Prefetch]. It is also for
// the limiters that share the tokens, which With, Only and Wrap returned. Call it at the end of a
// process, after the last request, or when a process becomes idle: later requests prefetch again.
// If the limiter does not prefetch, ReturnPrefetched does nothing.
//
// Each prefetch has one second for its return. If a return fails, for example because one master of a
// cluster is away, ReturnPrefetched goes on with the others until ctx ends, and returns the first
// error. Its errors are the errors of [Limiter.Settle]. After an error, some tokens may not be returned
// yet: call ReturnPrefetched again.
func (l *Limiter) ReturnPrefetched(ctx context.Context) error {
	if l == nil || l.bound == nil {
		return errNoLimiter
	}
	if p := l.prefetcher(); p != nil {
		return p.returnAll(ctx)
	}
	return nil
}

// prefetcher returns the prefetcher of l, or nil.
func (l *Limiter) prefetcher() *prefetcher {
	for _, w := range l.wrappers {
		if w.prefetch != nil {
			return w.prefetch
		}
	}
	return nil
}

// complete checks p, and replaces zero values by the defaults.
func (p *Prefetch) complete() error {
	switch {
	case p.MaxTokens != 0 && (p.MaxTokens < 2 || p.MaxTokens > maxPrefetchTokens):
		return fmt.Errorf("weir: Prefetch.MaxTokens is %d: it must be from 2 to %d, or 0 for %d", p.MaxTokens, maxPrefetchTokens, DefaultPrefetchTokens)
	case p.MaxAge != 0 && (p.MaxAge < time.Millisecond || p.MaxAge > maxPrefetchAge):
		return fmt.Errorf("weir: Prefetch.MaxAge is %v: it must be from 1ms to %v, or 0 for %v", p.MaxAge, maxPrefetchAge, DefaultPrefetchAge)
	case p.MaxKeys < 0 || p.MaxKeys > maxPrefetchKeys:
		return fmt.Errorf("weir: Prefetch.MaxKeys is %d: it must be from 1 to %d, or 0 for %d", p.MaxKeys, maxPrefetchKeys, DefaultPrefetchKeys)
	}
	p.MaxTokens = cmp.Or(p.MaxTokens, DefaultPrefetchTokens)
	p.MaxAge = cmp.Or(p.MaxAge, DefaultPrefetchAge)
	p.MaxKeys = max(1<<bits.Len(uint(cmp.Or(p.MaxKeys, DefaultPrefetchKeys)-1)), prefetchWays)
	return nil
}

// canPrefetch returns an error if tokens of b cannot be consumed ahead of requests.
func (b *bound) canPrefetch() error {
	if len(b.shadows) > 0 {
		return fail(ErrUnsupported, "Prefetch: rule %q is a shadow rule, which decides each request by itself: remove the rule, or do not prefetch", b.shadows[0].rules[0].name)
	}
	for i := range b.rules {
		r := &b.rules[i]
		switch {
		case r.has(leases):
			return unsupported("Prefetch", r, "which holds leases: put the other rules in another limiter")
		case r.cost > 0:
			return fail(ErrUnsupported, "Prefetch: rule %q has the Cost %d for each request, but a prefetch would consume it once: leave Cost out, and give each request its cost", r.name, r.cost)
		case r.has(queues):
			return unsupported("Prefetch", r, "whose requests leave one by one: use algorithm.GCRA or TokenBucket")
		}
	}
	if r := b.can.without(refunds); r != nil {
		return unsupported("Prefetch", r, "which cannot take unused tokens back: use another algorithm")
	}
	if r := b.can.without(debts); r != nil {
		return errNoDebt("Prefetch", r)
	}
	return nil
}

// A prefetcher is the part of Prefetch that the limiters of With, Only and Wrap share.
type prefetcher struct {
	Prefetch
	start    time.Time // times are measured from it
	seed     maphash.Seed
	making   sync.Mutex                                // of holdings
	table    atomic.Pointer[[]atomic.Pointer[holding]] // nil until the first holding
	degraded atomic.Bool                               // the last answer was made without the store
	owed     owed
	failed   atomic.Pointer[failedReturn] // the last return that failed; nil if none did
}

// now returns the time since p.start.
func (p *prefetcher) now() time.Duration {
	if p.Now != nil {
		return p.Now().Sub(p.start)
	}
	return time.Since(p.start) // quicker than time.Now
}
