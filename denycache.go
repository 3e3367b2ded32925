package weir

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"strings"
	"sync/atomic"
	"time"
)

// A DenyCache remembers denials in the process, so that a blocked caller costs no round
// trip:
//
//	lim = lim.Wrap(weir.DenyCache{}.Wrap)
//
// A denial is remembered until its RetryAfter, for the same key, op, cost and MaxWait. It
// never lets a request through that the store would deny. It can deny for too long, by at
// most MaxAge: if a refund, a reset or a higher limit frees tokens, in another process,
// through another limiter, or for another key of a rule. After a Refund, a Release, a Renew
// or a Reset through the same limiter, the store decides again.
//
// Of a remembered result, RetryAfter and ResetAfter are less by the time since the denial.
// The rest stays: Remaining, and the results of rules that did not deny, are those of the
// denial. A Peek always asks the store. Two denials are not remembered: one of an
// algorithm.Concurrency, because a lease can be released at any time, and one that the
// store did not make, see [Limiter.OnOutage].
//
// [Limiter.With] and [Limiter.Only] return a limiter with a cache of its own. Keep such a
// limiter, for example one for each plan: a limiter that is made for each request
// remembers nothing.
//
// The zero value has the defaults. If a field is not valid, every decision returns an error
// that names it.
type DenyCache struct {
	// MaxAge is how long a denial is remembered at most. The default is 1 s. It must
	// not be negative.
	MaxAge time.Duration

	// MaxKeys is how many denials are remembered, at most 1<<24. It is rounded up to a
	// power of two. The default is 4,096. Denials that have the same place replace each
	// other, so some are forgotten before the cache is full. A denial takes about 600
	// bytes. A key whose segments are longer than 1,024 bytes together is not
	// remembered.
	MaxKeys int

	// Now is the clock by which denials end. The default is time.Now. Set it in tests
	// that set Options.Clock or the clock of the store.
	Now func() time.Time
}

const (
	defaultMaxAge   = time.Second
	defaultDenials  = 4096
	maxDenials      = 1 << 24
	maxDenialKey    = 1024 // bytes
	denialHashPrime = 0x9E3779B97F4A7C15
)

// Wrap returns a [Decider] that answers with remembered denials, and passes other requests
// on to next. It is for [Limiter.Wrap].
func (c DenyCache) Wrap(next Decider) Decider {
	switch {
	case next == nil:
		return nil
	case c.MaxAge < 0:
		return broken{fmt.Errorf("weir: DenyCache.MaxAge is %v: it must be positive, or 0 for %v", c.MaxAge, defaultMaxAge)}
	case c.MaxKeys < 0 || c.MaxKeys > maxDenials:
		return broken{fmt.Errorf("weir: DenyCache.MaxKeys is %d: it must be from 1 to %d, or 0 for %d", c.MaxKeys, maxDenials, defaultDenials)}
	}
	d := &denyCache{next: next, maxAge: c.MaxAge, size: c.MaxKeys, clock: c.Now, seed: maphash.MakeSeed()}
	if d.maxAge == 0 {
		d.maxAge = defaultMaxAge
	}
	if d.size == 0 {
		d.size = defaultDenials
	}
	if d.start = time.Now(); d.clock != nil {
		d.start = d.clock()
	}
	d.size = 1 << bits.Len(uint(d.size-1))
	return d
}

type denyCache struct {
	next   Decider
	maxAge time.Duration
	size   int              // a power of two
	clock  func() time.Time // nil means time.Now
	start  time.Time        // of the cache; times are measured from it
	seed   maphash.Seed
	places atomic.Pointer[[]atomic.Pointer[denial]] // nil until the first denial
}

// A denial is remembered. It does not change.
type denial struct {
	request Request // without ID and Metadata, which do not matter
	result  Result
	each    []Result // nil if the request did not ask for them
	at      time.Duration
	until   time.Duration
}

func (c *denyCache) now() time.Duration {
	if c.clock != nil {
		return c.clock().Sub(c.start)
	}
	return time.Since(c.start) // quicker than time.Now
}

// Decide implements [Decider].
func (c *denyCache) Decide(ctx context.Context, r Request, each []Result) (Result, error) {
	if r.Op != Consume && r.Op != TakeUpTo {
		res, err := c.next.Decide(ctx, r, each)
		if r.Op != Peek {
			c.forget(r.Key)
		}
		return res, err
	}
	start := c.now() // before the decision, so that no denial is remembered for too long
	if d := c.find(&r.Key); d != nil && start >= d.at && start < d.until && d.matches(&r, len(each)) {
		age := start - d.at
		for i := range each[:min(len(each), len(d.each))] {
			each[i] = d.each[i]
			each[i].age(age)
		}
		res := d.result
		res.age(age)
		return res, nil
	}
	clear(each)
	res, err := c.next.Decide(ctx, r, each)
	if err == nil && !res.Allowed {
		c.remember(start, r, res, each)
	} else {
		c.forget(r.Key) // a later denial has a later RetryAfter
	}
	return res, err
}

// matches reports whether d is the denial of r, whose results of each rule go to a slice
// with that length.
func (d *denial) matches(r *Request, each int) bool {
	q := &d.request
	return q.Op == r.Op && q.Cost == r.Cost && q.MaxWait == r.MaxWait && q.Key.equal(&r.Key) &&
		(each == 0 || d.each != nil && each >= len(d.each))
}

// equal is k == other, which compares all places of segments.
func (k *Key) equal(other *Key) bool {
	if k.count != other.count {
		return false
	}
	for i := range min(k.count, MaxSegments) {
		if k.segments[i] != other.segments[i] {
			return false
		}
	}
	return true
}

// age makes r the result of a denial after the time d.
func (r *Result) age(d time.Duration) {
	if r.RetryAfter != Never {
		r.RetryAfter = max(r.RetryAfter-d, 0)
	}
	if r.ResetAfter != Never {
		r.ResetAfter = max(r.ResetAfter-d, 0)
	}
}

// remember keeps a denial that was asked for at the time start, unless it can end at any
// time.
func (c *denyCache) remember(start time.Duration, r Request, res Result, each []Result) {
	life, bytes := min(res.RetryAfter, c.maxAge), 0
	for i := range r.Key.segments {
		bytes += len(r.Key.segments[i])
	}
	if res.Window == 0 || res.Degraded != nil || life <= 0 || bytes > maxDenialKey {
		return
	}
	for i := range r.Key.segments { // a segment can be a part of a long text
		r.Key.segments[i] = strings.Clone(r.Key.segments[i])
	}
	r.ID, r.Metadata = "", ""
	d := &denial{request: r, result: res, at: start, until: start + life}
	for i := range each {
		if each[i].Rule != "" { // there are as many as rules
			d.each = append(d.each, each[i])
		}
	}
	places := c.places.Load()
	if places == nil {
		all := make([]atomic.Pointer[denial], c.size)
		c.places.CompareAndSwap(nil, &all)
		places = c.places.Load()
	}
	(*places)[c.place(&r.Key)].Store(d)
}

// find returns the denial at the place of key, or nil. It can be the denial of another key.
func (c *denyCache) find(key *Key) *denial {
	places := c.places.Load()
	if places == nil {
		return nil
	}
	return (*places)[c.place(key)].Load()
}

// forget removes the denial of key.
func (c *denyCache) forget(key Key) {
	if d := c.find(&key); d != nil && d.request.Key.equal(&key) {
		(*c.places.Load())[c.place(&key)].CompareAndSwap(d, nil)
	}
}

// place returns where the denial of key is.
func (c *denyCache) place(key *Key) uint64 {
	var h uint64
	for i := range min(key.count, MaxSegments) {
		h = h*denialHashPrime + maphash.String(c.seed, key.segments[i])
	}
	return h & uint64(c.size-1)
}
