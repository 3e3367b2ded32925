// Package denycache remembers denials in the process, so that a blocked caller costs no
// round trip:
//
//	lim, err = lim.Wrap(denycache.New(nil).Wrap)
//
// A denial is remembered until its RetryAfter, and for at most [Options].MaxAge. It
// answers requests with the same key, op, cost, Costs and MaxWait. A Peek always reaches
// the store, and so does a Wait or a Reserve with a deadline, because its MaxWait is
// different each time.
//
// The cache never allows a request that the store would deny. But it can deny a request
// that the store would allow, for at most MaxAge:
//   - if a refund, a reset, a resume or a higher limit frees tokens in another process or
//     through another limiter. A Settle to a lower cost and a prefetch.Pool that returns
//     tokens also refund.
//   - if a refund, a reset or a resume of another key frees tokens of a limit that both
//     keys share: see [weir.Rule].By.
//   - if the request repeats an earlier decision: see [weir.Request].ID.
//
// After a Force, Refund, Settle, Finish, Release, Renew, Pause, Resume or Reset of the
// same key through the same limiter, the store decides again. The same holds after a
// prefetch.Pool in the limiter has returned tokens of the key.
//
// In a remembered result, RetryAfter and ResetAfter count down, and all other fields stay
// as they were at the denial. If a request asks for the result of each rule, the cache
// answers it only until the shortest RetryAfter or ResetAfter has passed.
//
// The cache does not remember denials of an outage, denials of repeated requests, or
// denials by an algorithm.Concurrency, whose leases can be released at any time. Denials
// by other rules of such a policy answer requests with any ID.
//
// Of the requests of DoMany, those without a remembered denial are one batch. Limiters
// from With and Only share the capacity of the cache, but each answers only from its own
// denials. Raise MaxKeys if there are many such limiters, and keep them: a limiter that is
// made for each request remembers nothing.
package denycache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
)

// Options are the settings of a [Cache]. The zero value is the default.
type Options struct {
	// MaxAge is how long a denial is remembered at most. 0 means DefaultMaxAge, 1 s.
	MaxAge time.Duration

	// MaxKeys is how many denials all limiters of the Cache remember, at most 1<<24. It
	// is rounded up to a power of two. 0 means DefaultMaxKeys, 4,096. Each key of a
	// limiter has one place, for its last denial. Several can have the same place, so
	// some denials are forgotten before the cache is full. A denial takes about 480
	// bytes, plus 80 for each rule if the request asks for the result of each rule. A key
	// whose segments are longer than 1,024 bytes together is not remembered.
	MaxKeys int

	// Now is the clock by which denials end. The default is time.Now. Set it in tests
	// that set weir.Options.Clock or the clock of the store.
	Now func() time.Time
}

// The defaults of [Options].
const (
	DefaultMaxAge  = time.Second
	DefaultMaxKeys = 4096
)

const (
	maxKeys    = 1 << 24
	maxKeySize = 1024 // bytes
)

// A Cache makes limiters remember denials. Make one with [New].
type Cache struct {
	opts     Options // with the defaults; MaxKeys is a power of two
	invalid  error   // the error of Wrap if the Options are not valid
	answers  atomic.Int64
	limiters atomic.Int64             // how many were wrapped
	places   []atomic.Pointer[denial] // MaxKeys of them

	// freed counts the refunds and resets of the keys whose places have the same
	// remainder. A denial that was then under way may be older.
	freed [64]atomic.Uint32
}

// Answers returns the number of requests that remembered denials have answered, in all
// limiters of c. An observer around c counts them as denied, so the store has denied the
// others. If c is nil, Answers returns 0.
func (c *Cache) Answers() int64 {
	if c == nil {
		return 0
	}
	return c.answers.Load()
}

// New returns a Cache. If opts is nil, the defaults are used. If a field is not valid,
// [Cache.Wrap] returns an error that names it.
func New(opts *Options) *Cache {
	c := new(Cache)
	if opts != nil {
		c.opts = *opts
	}
	switch o := &c.opts; {
	case o.MaxAge < 0:
		c.invalid = fmt.Errorf("denycache: Options.MaxAge is %v: it must be positive, or 0 for %v", o.MaxAge, DefaultMaxAge)
	case o.MaxKeys < 0 || o.MaxKeys > maxKeys:
		c.invalid = fmt.Errorf("denycache: Options.MaxKeys is %d: it must be from 1 to %d, or 0 for %d", o.MaxKeys, maxKeys, DefaultMaxKeys)
	default:
		o.MaxAge = cmp.Or(o.MaxAge, DefaultMaxAge)
		o.MaxKeys = 1 << bits.Len(uint(cmp.Or(o.MaxKeys, DefaultMaxKeys)-1))
		c.places = make([]atomic.Pointer[denial], o.MaxKeys)
	}
	return c
}

// Wrap is a [weir.Wrapper], which answers with remembered denials of the same limiter.
//
// Wrap returns an error if a field of the Options is not valid, or if next has a Cache.
func (c *Cache) Wrap(_ *weir.Limiter, next weir.Decider) (weir.Decider, error) {
	switch {
	case c == nil, c.invalid == nil && c.opts.MaxKeys == 0:
		return nil, errors.New("denycache: the Cache is nil or a zero value: make one with New")
	case c.invalid != nil:
		return nil, c.invalid
	}
	if _, twice := weir.Find[*decider](next); twice {
		return nil, errors.New("denycache: the limiter already has a Cache: wrap it in one, once")
	}
	d := &decider{Cache: c, id: c.limiters.Add(1), next: next, seed: maphash.MakeSeed()}
	if d.start = time.Now(); c.opts.Now != nil {
		d.start = c.opts.Now()
	}
	if pool, ok := weir.Find[freer](next); ok {
		pool.OnFree(func(key *weir.Key) { d.free(d.place(key), key) })
	}
	return d, nil
}

// A freer is a Decider that returns tokens to the store on its own, such as a
// prefetch.Pool's. It calls the function with their keys.
type freer interface{ OnFree(func(key *weir.Key)) }

// A decider is the Decider of a limiter with a Cache.
type decider struct {
	*Cache
	id    int64 // of the limiter
	next  weir.Decider
	start time.Time    // times are measured from it
	seed  maphash.Seed // spreads the same keys of several limiters
}

// A denial is remembered. It does not change.
type denial struct {
	by      int64        // the id of the limiter
	request weir.Request // without ID and Metadata, which do not matter
	result  weir.Result
	each    []weir.Result // nil if the request did not ask for them
	at      time.Duration
	life    time.Duration // of result
	lives   time.Duration // of each
}

// Unwrap returns the next Decider, for [weir.Find].
func (d *decider) Unwrap() weir.Decider { return d.next }

// StandsIn implements [weir.StandIn].
func (*decider) StandsIn() {}

func (d *decider) now() time.Duration {
	if d.opts.Now != nil {
		return d.opts.Now().Sub(d.start)
	}
	return time.Since(d.start) // quicker than time.Now
}

// An asked is a request that the next Decider decides.
type asked struct {
	place  uint64
	start  time.Duration // before the decision, so that no denial is remembered for too long
	before uint32        // the counter of place at the time start
}

// Decide implements [weir.Decider].
func (d *decider) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	q := d.ask(&r)
	res, ok, err := d.answer(ctx, &q, &r, each)
	if ok {
		return res, err
	}
	if remembers(r.Op) {
		clear(each)
	}
	res, err = d.next.Decide(ctx, r, each)
	d.decided(&q, &r, &res, each, err)
	return res, err
}

// DecideMany implements [weir.ManyDecider]. It answers what it can, and decides the others
// together.
func (d *decider) DecideMany(ctx context.Context, requests []weir.Request, answers []weir.Answer) {
	var all []asked
	var rest []int
	for i := range requests {
		q, ok, a := d.ask(&requests[i]), false, &answers[i]
		if a.Result, ok, a.Err = d.answer(ctx, &q, &requests[i], nil); !ok {
			all, rest = append(all, q), append(rest, i)
		}
	}
	gate.Rest(ctx, d.next, requests, answers, rest)
	for n, i := range rest {
		d.decided(&all[n], &requests[i], &answers[i].Result, nil, answers[i].Err)
	}
}

// remembers reports whether denials of requests with that op are remembered.
func remembers(op weir.Op) bool { return op == weir.Consume || op == weir.TakeUpTo }

// ask returns what d notes before it decides r.
func (d *decider) ask(r *weir.Request) asked {
	q := asked{place: d.place(&r.Key)}
	if remembers(r.Op) {
		q.start, q.before = d.now(), d.freedOf(q.place).Load()
	}
	return q
}

// answer answers q, the request r, with a remembered denial. If ok is false, the next
// Decider must decide r.
func (d *decider) answer(ctx context.Context, q *asked, r *weir.Request, each []weir.Result) (res weir.Result, ok bool, err error) {
	old := d.find(q.place)
	if !remembers(r.Op) || old == nil || !old.matches(r, q.start-old.at, len(each)) {
		return weir.Result{}, false, nil
	}
	if err := ctx.Err(); err != nil {
		return weir.Result{}, true, fmt.Errorf("denycache: %w", err)
	}
	age := q.start - old.at
	for i := range each[:min(len(each), len(old.each))] {
		each[i] = old.each[i]
		each[i].Age(age)
	}
	res = old.result
	res.Age(age)
	d.answers.Add(1)
	return res, true, nil
}

// decided notes what the next Decider has answered to r.
func (d *decider) decided(q *asked, r *weir.Request, res *weir.Result, each []weir.Result, err error) {
	switch {
	case remembers(r.Op):
		if err == nil && !res.Allowed && !res.Replayed { // another ID has another answer
			d.remember(q.place, q.start, r, res, each)
		}
		if err != nil || res.Allowed || d.freedOf(q.place).Load() != q.before {
			d.forget(q.place, &r.Key) // a later denial has a later RetryAfter
		}
	case r.Op != weir.Peek:
		d.free(q.place, &r.Key)
	}
}

// matches reports whether old, after the time age, is the denial of r, whose results of
// each rule go to a slice with that length.
func (old *denial) matches(r *weir.Request, age time.Duration, each int) bool {
	q := &old.request
	return age >= 0 && age < old.life &&
		q.Op == r.Op && cost(q) == cost(r) && q.MaxWait == r.MaxWait && q.Key.Equal(&r.Key) && q.Costs == r.Costs &&
		(each == 0 || old.each != nil && each >= len(old.each) && age < old.lives)
}

// cost returns r.Cost, or its default. A negative Cost is an error, which no denial
// answers.
func cost(r *weir.Request) int64 { return cmp.Or(r.Cost, 1) }

// life returns how long the result of a denial agrees with itself, at most most: until
// its rule allows the request, or has all its tokens.
func life(r *weir.Result, most time.Duration) time.Duration {
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
func (d *decider) remember(place uint64, start time.Duration, r *weir.Request, res *weir.Result, each []weir.Result) {
	until := life(res, d.opts.MaxAge)
	if res.Type == weir.LeaseRule || res.Degraded != nil || res.Replayed || until <= 0 || r.Key.Size() > maxKeySize {
		return
	}
	old := &denial{by: d.id, request: *r, result: *res, at: start, life: until, lives: until}
	old.request.Key, old.request.ID, old.request.Metadata = r.Key.Clone(), "", ""
	old.result.Shadow = nil // no shadow rule decides a request that the cache answers
	for i := range each {
		if each[i].Rule != "" { // there are as many as rules
			old.each = append(old.each, each[i])
			old.lives = life(&each[i], old.lives)
		}
	}
	d.places[place].Store(old)
}

// find returns the denial of d in a place, or nil. Keys can share a place.
func (d *decider) find(place uint64) *denial {
	if old := d.places[place].Load(); old != nil && old.by == d.id {
		return old
	}
	return nil
}

// place returns the place of a key.
func (d *decider) place(key *weir.Key) uint64 { return key.Hash(d.seed) & uint64(d.opts.MaxKeys-1) }

// freedOf returns the counter of a place.
func (d *decider) freedOf(place uint64) *atomic.Uint32 { return &d.freed[place%uint64(len(d.freed))] }

// free notes that tokens of key, which has that place, may have been freed.
func (d *decider) free(place uint64, key *weir.Key) {
	d.freedOf(place).Add(1)
	d.forget(place, key)
}

// forget removes the denial of key, which has that place.
func (d *decider) forget(place uint64, key *weir.Key) {
	if old := d.find(place); old != nil && old.request.Key.Equal(key) {
		d.places[place].CompareAndSwap(old, nil)
	}
}
