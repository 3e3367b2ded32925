package conformance

import (
	"cmp"
	"math/big"
	"math/bits"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// windowOf returns the time in which n tokens come back at rate, rounded down.
func windowOf(n int64, rate algorithm.Rate) time.Duration {
	w := new(big.Int).Mul(big.NewInt(n), big.NewInt(rate.Period.Nanoseconds()))
	if w.Div(w, big.NewInt(rate.Count)); !w.IsInt64() {
		return weir.Never
	}
	return max(time.Duration(w.Int64()), 1)
}

// A bucket is GCRA as a bucket of tokens that fills continuously, in fractions.
type bucket struct {
	rate   *big.Rat // tokens per microsecond
	burst  int64
	full   time.Duration // how long it takes to fill
	tokens *big.Rat      // at the time at; nil means full
	at     int64
}

func newBucket(g algorithm.GCRA) *bucket {
	rate := big.NewRat(g.Rate.Count, 1)
	rate.Quo(rate, big.NewRat(g.Rate.Period.Nanoseconds(), 1000))
	return &bucket{rate: rate, burst: g.Burst, full: windowOf(g.Burst, g.Rate)}
}

func (b *bucket) limit() int64 { return b.burst }

func (b *bucket) window() time.Duration { return b.full }

// level returns how many tokens there are. It is at most burst, and below 0 if tokens
// are reserved or the clock stepped back.
func (b *bucket) level(now int64) *big.Rat {
	full := big.NewRat(b.burst, 1)
	if b.tokens == nil {
		return full
	}
	l := new(big.Rat).Mul(b.rate, big.NewRat(now-b.at, 1))
	if l.Add(l, b.tokens); l.Cmp(full) > 0 {
		return full
	}
	return l
}

// until returns how long it takes until there are n tokens, rounded up.
func (b *bucket) until(now, n int64) time.Duration {
	lack := new(big.Rat).Sub(big.NewRat(n, 1), b.level(now))
	if lack.Sign() <= 0 {
		return 0
	}
	lack.Quo(lack, b.rate)
	us := new(big.Int).Add(lack.Num(), lack.Denom())
	us.Sub(us, big.NewInt(1))
	return time.Duration(us.Div(us, lack.Denom()).Int64()) * time.Microsecond
}

func (b *bucket) retry(now, cost int64, wait time.Duration) time.Duration {
	if cost > b.burst {
		return weir.Never
	}
	return max(b.until(now, cost)-wait, 0)
}

func (b *bucket) delay(now, cost int64) time.Duration { return b.until(now, cost) }

func (b *bucket) take(now, cost int64) {
	b.tokens, b.at = b.level(now).Sub(b.level(now), big.NewRat(cost, 1)), now
}

func (b *bucket) left(now int64) (int64, time.Duration) {
	l := b.level(now)
	n := new(big.Int).Div(l.Num(), l.Denom()) // rounds down
	return max(n.Int64(), 0), b.until(now, b.burst)
}

// A refilled is TokenBucket as how many tokens were consumed since it was full, and how
// many came back since.
type refilled struct {
	algorithm.TokenBucket
	full  int64 // when it was full
	taken int64
	low   int64 // when the period began in which tokens were last consumed
}

func (b *refilled) limit() int64 { return b.Capacity }

func (b *refilled) window() time.Duration { return windowOf(b.Capacity, b.Refill) }

// period returns the shortest time, in microseconds, in which a whole number of tokens
// comes back, and that number.
func (b *refilled) period() (us, n int64) {
	us, n = b.Refill.Period.Microseconds(), b.Refill.Count
	if b.AtOnce {
		return us, n
	}
	x, y := us, n
	for y > 0 {
		x, y = y, x%y
	}
	return us / x, n / x
}

// missing returns how many tokens are not back. Time never goes back before low.
func (b *refilled) missing(now int64) int64 {
	us, n := b.period()
	past := max(now, b.low) - b.full
	if b.AtOnce {
		past -= past % us
	}
	high, low := bits.Mul64(uint64(past), uint64(n))
	if high >= uint64(us) {
		return 0 // more than 2^64 are back
	}
	back, _ := bits.Div64(high, low, uint64(us))
	return int64(uint64(b.taken) - min(back, uint64(b.taken)))
}

// until returns how long it takes until at most n tokens are missing.
func (b *refilled) until(now, n int64) time.Duration {
	return time.Duration(search(1<<53, func(us int64) bool { return b.missing(now+us) <= n })) * time.Microsecond
}

func (b *refilled) retry(now, cost int64, wait time.Duration) time.Duration {
	if cost > b.Capacity {
		return weir.Never
	}
	return max(b.until(now, b.Capacity-cost)-wait, 0)
}

func (b *refilled) delay(now, cost int64) time.Duration { return b.until(now, b.Capacity-cost) }

func (b *refilled) take(now, cost int64) {
	if b.missing(now) == 0 {
		b.full, b.low, b.taken = now, now, 0
	}
	us, _ := b.period()
	past := max(now, b.low) - b.full
	b.low = b.full + past - past%us
	b.taken += cost
}

func (b *refilled) left(now int64) (int64, time.Duration) {
	return max(b.Capacity-b.missing(now), 0), b.until(now, 0)
}

// A queued is LeakyBucket as a bucket that is full while nobody waits. The next request
// has its turn when the bucket is full, and the queue holds as many turns as there are
// tokens.
type queued struct{ *bucket }

func (q queued) retry(now, cost int64, wait time.Duration) time.Duration {
	if cost > q.burst {
		return weir.Never
	}
	return max(q.delay(now, cost)-wait, q.until(now, cost))
}

func (q queued) delay(now, _ int64) time.Duration { return q.until(now, q.burst) }

func (q queued) left(now int64) (int64, time.Duration) {
	if turn := q.until(now, q.burst); turn > 0 {
		return 0, turn
	}
	return q.burst, 0
}

// A lease is held by a name until a time.
type lease struct {
	until int64
	name  string
}

// A leased is Concurrency as a list of leases, with the expired ones until they are
// removed.
type leased struct {
	algorithm.Concurrency
	all   []lease // by until, then by name
	name  string  // of the request, "" for none
	renew bool    // the request only renews
}

func (l *leased) limit() int64 { return l.Limit }

func (*leased) window() time.Duration { return 0 }

// live returns the leases that have not expired.
func (l *leased) live(now int64) []lease {
	over := sort.Search(len(l.all), func(i int) bool { return l.all[i].until > now })
	return l.all[over:]
}

// held returns when the lease of that name expires, 0 if it is not held.
func (l *leased) held(now int64, name string) int64 {
	for _, one := range l.live(now) {
		if one.name == name {
			return one.until
		}
	}
	return 0
}

func (l *leased) retry(now, cost int64, _ time.Duration) time.Duration {
	live := l.live(now)
	lack := int64(len(live)) + cost - l.Limit
	switch {
	case cost == 1 && l.held(now, l.name) > 0:
		return 0
	case cost > l.Limit || l.renew:
		return weir.Never
	case lack <= 0:
		return 0
	}
	return time.Duration(live[lack-1].until-now) * time.Microsecond
}

// drop removes the lease of that name, expired or not.
func (l *leased) drop(name string) {
	l.all = slices.DeleteFunc(l.all, func(one lease) bool { return one.name == name })
}

func (l *leased) take(now, _ int64) {
	held := l.held(now, l.name)
	if l.drop(l.name); held == 0 {
		live := l.live(now)
		gone := len(l.all) - len(live)
		if len(live) > 0 {
			gone = min(gone, 16)
		}
		l.all = l.all[gone:]
	}
	l.all = append(l.all, lease{max(held, now+l.Lease.Microseconds()), l.name})
	slices.SortFunc(l.all, func(a, b lease) int {
		return cmp.Or(cmp.Compare(a.until, b.until), strings.Compare(a.name, b.name))
	})
}

// release ends the lease of that name, and reports whether it was held.
func (l *leased) release(now int64, name string) bool {
	held := l.held(now, name) > 0
	l.drop(name)
	return held
}

func (l *leased) left(now int64) (int64, time.Duration) {
	live := l.live(now)
	if len(live) == 0 {
		return l.Limit, 0
	}
	return max(l.Limit-int64(len(live)), 0), time.Duration(live[len(live)-1].until-now) * time.Microsecond
}

// newModel returns the model of a, or nil if a is not built in.
func newModel(a algorithm.Algorithm) model {
	switch a := a.(type) {
	case algorithm.GCRA:
		return newBucket(a)
	case algorithm.FixedWindow:
		return &counted{FixedWindow: a}
	case algorithm.Calendar:
		return newDated(a)
	case algorithm.MetadataWindow:
		return &counted{FixedWindow: algorithm.FixedWindow(a)}
	case algorithm.SlidingLog:
		return &logged{SlidingLog: a}
	case algorithm.SlidingCounter:
		return &weighted{SlidingCounter: a}
	case algorithm.TokenBucket:
		return &refilled{TokenBucket: a}
	case algorithm.LeakyBucket:
		return queued{newBucket(algorithm.GCRA{Rate: a.Rate, Burst: a.Queue + 1})}
	case algorithm.Concurrency:
		return &leased{Concurrency: a}
	case algorithm.SlidingBuckets:
		return &tallies{SlidingBuckets: a, counts: map[int64]int64{}}
	}
	return nil
}
