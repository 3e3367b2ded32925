package weir

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"
)

// A DenyCache remembers denials in the process, so that a blocked caller costs no round
// trip:
//
//	lim = lim.Wrap(weir.DenyCache{}.Wrap)
//
// A denial is remembered until its RetryAfter, and for at most MaxAge. It answers requests
// with the same key, op, cost and MaxWait. A Wait or a Reserve with a deadline always
// reaches the store, because its MaxWait is different each time, unless Request.MaxWait is
// shorter. A Peek always reaches the store too.
//
// The cache never allows a request that the store would deny. It can deny a request that
// the store would allow, for at most MaxAge. This happens if tokens are freed:
//   - by a refund, a reset or a higher limit in another process or through another limiter.
//   - by a refund or a reset of another key, if both keys share the limit of a rule: see
//     [Rule].By.
//
// A remembered denial also answers a request that repeats an earlier decision: see
// Request.ID. The store would allow it.
//
// After a Force, a Refund, a Settle, a Release, a Renew or a Reset of the same key through
// the same limiter, the store decides again.
//
// In a remembered result, the time since the denial is subtracted from RetryAfter and
// ResetAfter. The other fields, for example Remaining, are those of the denial. If a request
// asks for the result of each rule, a denial answers the request only until the shortest
// RetryAfter or ResetAfter of the results has passed.
//
// A denial without the store is not remembered: see [Limiter.OnOutage]. Nor is a denial of a
// repeated request: see Request.ID. A denial by an algorithm.Concurrency is not remembered,
// because a lease can be released at any time. If the limiter also has rules with other
// algorithms, denials by these rules are remembered, and answer requests with any ID. After
// such a RetryAfter, the Concurrency can still deny the request.
//
// A limiter with a cache decides the requests of [Limiter.DoMany] one by one.
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
	// power of two. The default is 4,096. Each key has one place, for its last denial.
	// Several keys can have the same place, so some denials are forgotten before the
	// cache is full. A denial takes about 350 bytes, plus 80 for each rule if the
	// request asks for the result of each rule. A key whose segments are longer than
	// 1,024 bytes together is not remembered.
	MaxKeys int

	// Now is the clock by which denials end. The default is time.Now. Set it in tests
	// that set Options.Clock or the clock of the store.
	Now func() time.Time
}

const (
	defaultMaxAge  = time.Second
	defaultDenials = 4096
	maxDenials     = 1 << 24
	maxDenialKey   = 1024 // bytes
	hashFactor     = 0x9E3779B97F4A7C15
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

	// freed counts the refunds and resets of the keys whose places have the same
	// remainder. A denial that was under way meanwhile can be older than they are.
	freed [64]atomic.Uint32
}

// A denial is remembered. It does not change.
type denial struct {
	request Request // without ID and Metadata, which do not matter
	result  Result
	each    []Result // nil if the request did not ask for them
	at      time.Duration
	life    time.Duration // of result
	lives   time.Duration // of each
}

func (c *denyCache) now() time.Duration {
	if c.clock != nil {
		return c.clock().Sub(c.start)
	}
	return time.Since(c.start) // quicker than time.Now
}

// Decide implements [Decider].
func (c *denyCache) Decide(ctx context.Context, r Request, each []Result) (Result, error) {
	place := c.place(&r.Key)
	freed := &c.freed[place%uint64(len(c.freed))]
	if r.Op != Consume && r.Op != TakeUpTo {
		res, err := c.next.Decide(ctx, r, each)
		if r.Op != Peek {
			freed.Add(1)
			c.forget(place, &r.Key)
		}
		return res, err
	}
	start, before := c.now(), freed.Load() // before the decision, so that no denial is remembered for too long
	if d := c.find(place); d != nil && d.matches(&r, start-d.at, len(each)) {
		if err := ctx.Err(); err != nil {
			return Result{}, fmt.Errorf("weir: %w", err)
		}
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
		c.remember(place, start, &r, &res, each)
	}
	if err != nil || res.Allowed || freed.Load() != before {
		c.forget(place, &r.Key) // a later denial has a later RetryAfter
	}
	return res, err
}

// matches reports whether d, after the time age, is the denial of r, whose results of each
// rule go to a slice with that length.
func (d *denial) matches(r *Request, age time.Duration, each int) bool {
	q := &d.request
	return age >= 0 && age < d.life &&
		q.Op == r.Op && q.cost() == r.cost() && q.MaxWait == r.MaxWait && q.Key.equal(&r.Key) &&
		(each == 0 || d.each != nil && each >= len(d.each) && age < d.lives)
}

// cost returns r.Cost, or its default.
func (r *Request) cost() int64 {
	if r.Cost == 0 {
		return 1
	}
	return r.Cost
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

// life returns how long the result of a denial agrees with itself, at most most: until its
// rule allows the request, or has all its tokens.
func (r *Result) life(most time.Duration) time.Duration {
	if !r.Allowed {
		most = min(most, r.RetryAfter)
	}
	if r.ResetAfter > 0 {
		most = min(most, r.ResetAfter)
	}
	return most
}

// remember keeps a denial that was asked for at the time start, unless it can end at any
// time.
func (c *denyCache) remember(place uint64, start time.Duration, r *Request, res *Result, each []Result) {
	life := res.life(c.maxAge)
	if res.Window == 0 || res.Degraded != nil || res.Replayed || life <= 0 || r.Key.bytes() > maxDenialKey {
		return
	}
	d := &denial{request: *r, result: *res, at: start, life: life, lives: life}
	d.request.Key, d.request.ID, d.request.Metadata = r.Key.clone(), "", ""
	d.result.Shadow = nil // no shadow rule decides a request that the cache answers
	for i := range each {
		if each[i].Rule != "" { // there are as many as rules
			d.each = append(d.each, each[i])
			d.lives = each[i].life(d.lives)
		}
	}
	places := c.places.Load()
	if places == nil {
		all := make([]atomic.Pointer[denial], c.size)
		c.places.CompareAndSwap(nil, &all)
		places = c.places.Load()
	}
	(*places)[place].Store(d)
}

// find returns the denial in a place, or nil. Keys can share a place.
func (c *denyCache) find(place uint64) *denial {
	places := c.places.Load()
	if places == nil {
		return nil
	}
	return (*places)[place].Load()
}

// forget removes the denial of key, which has that place.
func (c *denyCache) forget(place uint64, key *Key) {
	if d := c.find(place); d != nil && d.request.Key.equal(key) {
		(*c.places.Load())[place].CompareAndSwap(d, nil)
	}
}

// place returns the place of the denial of key.
func (c *denyCache) place(key *Key) uint64 { return key.hash(c.seed) & uint64(c.size-1) }

// hash returns a hash of k.
func (k *Key) hash(seed maphash.Seed) uint64 {
	var h uint64
	for i := range min(k.count, MaxSegments) {
		h = h*hashFactor + maphash.String(seed, k.segments[i])
	}
	return h
}
