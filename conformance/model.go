package conformance

import (
	"cmp"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// A model is a limit written in the plainest way, to compare an algorithm
// with. Times are in microseconds.
type model interface {
	// room is how long from now until cost tokens fit: 0 if they do, weir.Never
	// if they never will.
	room(now, cost int64) time.Duration
	take(now, cost int64)
	// left is how many whole tokens are left, and how long until it is as new.
	left(now int64) (int64, time.Duration)
	limit() int64
}

// A spanned model limits over several spans, of which it picks the one to
// report for a request, before that takes anything.
type spanned interface {
	pick(now, cost int64) algorithm.Span
	leftOf(now int64, s algorithm.Span) int64
}

// A delayed model lets requests pass whose turn is only to come.
type delayed interface{ delay(now int64) time.Duration }

// decide is what a limiter over models, one per rule, must answer. costs has
// one element per rule.
func decide(names []string, models []model, now int64, costs []int64, cost int64, take bool) (weir.Result, []weir.Result) {
	ok, wait, delay := true, time.Duration(0), time.Duration(0)
	each := make([]weir.Result, len(models))
	for i, m := range models {
		retry := m.room(now, costs[i])
		each[i] = weir.Result{Allowed: retry == 0, RetryAfter: retry, Limit: m.limit(), Rule: names[i]}
		if s, ok := m.(spanned); ok {
			span := s.pick(now, costs[i])
			each[i].Limit, each[i].Span = span.Limit, span.Window
		}
		if d, ok := m.(delayed); ok && retry == 0 {
			each[i].Delay = d.delay(now)
			delay = max(delay, each[i].Delay)
		}
		ok = ok && retry == 0
		wait = max(wait, retry)
	}
	committed := ok && take
	for i, m := range models {
		if committed {
			m.take(now, costs[i])
			each[i].Granted = costs[i]
		}
		each[i].Remaining, each[i].ResetAfter = m.left(now)
		if s, ok := m.(spanned); ok {
			each[i].Remaining = s.leftOf(now, algorithm.Span{Window: each[i].Span, Limit: each[i].Limit})
		}
	}
	pick := -1
	for i, r := range each {
		if !ok && !r.Allowed && pick < 0 || ok && (pick < 0 || r.Remaining < each[pick].Remaining) {
			pick = i
		}
	}
	res := each[pick]
	res.RetryAfter = wait
	if ok {
		res.Delay = delay
	}
	if committed {
		res.Granted = cost
	}
	return res, each
}

// A bucket is GCRA as a bucket of tokens that fills all the time, in fractions.
type bucket struct {
	rate   *big.Rat // tokens per microsecond
	burst  int64
	tokens *big.Rat // at the time at; it was not full before it was first taken from
	at     int64
}

func newBucket(g algorithm.GCRA) *bucket {
	rate := big.NewRat(g.Rate.Count, 1)
	rate.Quo(rate, big.NewRat(g.Rate.Period.Nanoseconds(), 1000))
	return &bucket{rate: rate, burst: g.Burst}
}

func (b *bucket) limit() int64 { return b.burst }

// level is how many tokens there are, at most burst, and fewer than none
// when the clock stepped back.
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

// until is how long it takes until there are n tokens, rounded up.
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

func (b *bucket) room(now, cost int64) time.Duration {
	if cost > b.burst {
		return weir.Never
	}
	return b.until(now, cost)
}

func (b *bucket) take(now, cost int64) {
	b.tokens, b.at = b.level(now).Sub(b.level(now), big.NewRat(cost, 1)), now
}

func (b *bucket) left(now int64) (int64, time.Duration) {
	l := b.level(now)
	n := new(big.Int).Div(l.Num(), l.Denom()) // rounds down
	return max(n.Int64(), 0), b.until(now, b.burst)
}

// A counted is FixedWindow as a count and the end of its window.
type counted struct {
	algorithm.FixedWindow
	count int64
	end   int64
}

func (c *counted) limit() int64 { return c.Limit }

// used is the count of the current window.
func (c *counted) used(now int64) int64 {
	if now >= c.end {
		return 0
	}
	return c.count
}

func (c *counted) room(now, cost int64) time.Duration {
	switch {
	case cost > c.Limit:
		return weir.Never
	case c.used(now)+cost > c.Limit:
		return time.Duration(c.end-now) * time.Microsecond
	}
	return 0
}

func (c *counted) take(now, cost int64) {
	if now >= c.end {
		start := now
		if c.Aligned {
			start = now / c.Window.Microseconds() * c.Window.Microseconds()
		}
		c.count, c.end = 0, start+c.Window.Microseconds()
	}
	c.count += cost
}

func (c *counted) left(now int64) (int64, time.Duration) {
	n := c.used(now)
	if n == 0 {
		return c.Limit, 0
	}
	return c.Limit - n, time.Duration(c.end-now) * time.Microsecond
}

// A logged is SlidingLog as the plain list of when each token was taken.
type logged struct {
	algorithm.SlidingLog
	taken []int64
}

func (l *logged) limit() int64 { return l.Limit }

// live are the tokens that count at now, the oldest first. Time does not go back
// behind the newest.
func (l *logged) live(now int64) []int64 {
	if n := len(l.taken); n > 0 {
		now = max(now, l.taken[n-1])
	}
	for i, t := range l.taken {
		if now-t < l.Window.Microseconds() {
			return l.taken[i:]
		}
	}
	return nil
}

func (l *logged) room(now, cost int64) time.Duration {
	live := l.live(now)
	lack := int64(len(live)) + cost - l.Limit
	switch {
	case cost > l.Limit:
		return weir.Never
	case lack <= 0:
		return 0
	}
	return time.Duration(live[lack-1]+l.Window.Microseconds()-now) * time.Microsecond
}

func (l *logged) take(now, cost int64) {
	if n := len(l.taken); n > 0 {
		now = max(now, l.taken[n-1])
	}
	for range cost {
		l.taken = append(l.taken, now)
	}
}

func (l *logged) left(now int64) (int64, time.Duration) {
	live := l.live(now)
	if len(live) == 0 {
		return l.Limit, 0
	}
	return l.Limit - int64(len(live)), time.Duration(live[len(live)-1]+l.Window.Microseconds()-now) * time.Microsecond
}

// tallies is SlidingBuckets as a count for each bucket, all of them kept.
type tallies struct {
	algorithm.SlidingBuckets
	counts map[int64]int64 // by the number of the bucket since the epoch
	newest int64
}

func (c *tallies) limit() int64 {
	least := c.Spans[0].Limit
	for _, s := range c.Spans {
		least = min(least, s.Limit)
	}
	return least
}

// bucket is the current one: the clock's, or a later one that was used.
func (c *tallies) bucket(now int64) int64 { return max(now/c.Width.Microseconds(), c.newest) }

// used is what the buckets of s hold, if bucket is the current one.
func (c *tallies) used(bucket int64, s algorithm.Span) int64 {
	sum := int64(0)
	for b, n := range c.counts {
		if b <= bucket && b > bucket-int64(s.Window/c.Width) {
			sum += n
		}
	}
	return sum
}

func (c *tallies) room(now, cost int64) time.Duration {
	if cost > c.limit() {
		return weir.Never
	}
	first := c.bucket(now)
	for b := first; ; b++ {
		fits := true
		for _, s := range c.Spans {
			fits = fits && c.used(b, s)+cost <= s.Limit
		}
		switch {
		case fits && b == first:
			return 0
		case fits:
			return time.Duration(b*c.Width.Microseconds()-now) * time.Microsecond
		}
	}
}

func (c *tallies) take(now, cost int64) {
	c.newest = c.bucket(now)
	c.counts[c.newest] += cost
}

func (c *tallies) pick(now, cost int64) algorithm.Span {
	best := c.Spans[0]
	for _, s := range c.Spans {
		switch n := c.used(c.bucket(now), s); {
		case cost > s.Limit-n:
			return s
		case s.Limit-n < best.Limit-c.used(c.bucket(now), best):
			best = s
		}
	}
	return best
}

func (c *tallies) leftOf(now int64, s algorithm.Span) int64 {
	return max(s.Limit-c.used(c.bucket(now), s), 0)
}

func (c *tallies) left(now int64) (int64, time.Duration) {
	longest := time.Duration(0)
	for _, s := range c.Spans {
		longest = max(longest, s.Window)
	}
	end := c.newest*c.Width.Microseconds() + longest.Microseconds()
	if len(c.counts) == 0 || end <= now {
		return c.limit(), 0
	}
	return c.limit(), time.Duration(end-now) * time.Microsecond
}

// A weighted is SlidingCounter as two counts and fractions.
type weighted struct {
	algorithm.SlidingCounter
	start         int64 // of the window under way; 0: never used
	count, before int64
}

func (w *weighted) limit() int64 { return w.Limit }

// at returns the model as it is at now, if nobody asks meanwhile.
func (w *weighted) at(now int64) *weighted {
	m, window := *w, w.Window.Microseconds()
	if m.start == 0 {
		m.start = now / window * window
	}
	for rolls := 0; now >= m.start+window; rolls++ {
		if rolls == 2 { // both counts are gone
			m.start = now / window * window
			break
		}
		m.start, m.count, m.before = m.start+window, 0, m.count
	}
	return &m
}

// used is what counts at now: the parts of a token that are left over count in full.
func (w *weighted) used(now int64) int64 {
	m, window := w.at(now), w.Window.Microseconds()
	step := (window + 1<<20 - 1) / (1 << 20)
	steps := (window + step - 1) / step
	left := steps - max(now-m.start, 0)/step
	share := new(big.Rat).Mul(big.NewRat(m.before, 1), big.NewRat(left, steps))
	up := new(big.Int).Add(share.Num(), share.Denom())
	up.Sub(up, big.NewInt(1))
	return m.count + up.Div(up, share.Denom()).Int64()
}

func (w *weighted) room(now, cost int64) time.Duration {
	switch {
	case cost > w.Limit:
		return weir.Never
	case w.used(now)+cost <= w.Limit:
		return 0
	}
	// Between two beginnings of a window, the more time has passed the less is used.
	m, window := w.at(now), w.Window.Microseconds()
	from := max(now, m.start)
	for end := m.start + window; ; end += window {
		if w.used(end-1)+cost <= w.Limit {
			n := sort.Search(int(end-from), func(i int) bool { return w.used(from+int64(i))+cost <= w.Limit })
			return time.Duration(from+int64(n)-now) * time.Microsecond
		}
		from = end
	}
}

func (w *weighted) take(now, cost int64) {
	*w = *w.at(now)
	w.count += cost
}

func (w *weighted) left(now int64) (int64, time.Duration) {
	m, window := w.at(now), w.Window.Microseconds()
	end := now
	switch {
	case m.count > 0:
		end = m.start + 2*window
	case m.before > 0:
		end = m.start + window
	}
	return max(w.Limit-w.used(now), 0), time.Duration(end-now) * time.Microsecond
}

// A refilled is TokenBucket as how many tokens were taken since it was full, and how
// many came back since.
type refilled struct {
	algorithm.TokenBucket
	full  int64 // when it was
	taken int64
	low   int64 // when the period began in which any were taken last
}

func (b *refilled) limit() int64 { return b.Capacity }

// period is, in microseconds, when a whole number of tokens comes back after as
// many, and their number.
func (b *refilled) period() (us, n *big.Int) {
	if b.AtOnce {
		return big.NewInt(b.Refill.Period.Microseconds()), big.NewInt(b.Refill.Count)
	}
	r := big.NewRat(b.Refill.Period.Microseconds(), b.Refill.Count)
	return r.Num(), r.Denom()
}

// missing is how many tokens are not back. Time does not go back behind low.
func (b *refilled) missing(now int64) int64 {
	us, n := b.period()
	back := big.NewInt(max(now, b.low) - b.full)
	if b.AtOnce {
		back.Div(back, us).Mul(back, n)
	} else {
		back.Mul(back, n).Div(back, us)
	}
	if back.Cmp(big.NewInt(b.taken)) >= 0 {
		return 0
	}
	return b.taken - back.Int64()
}

// until is how long it takes until at most n tokens are missing.
func (b *refilled) until(now, n int64) time.Duration {
	return time.Duration(sort.Search(1<<53, func(us int) bool { return b.missing(now+int64(us)) <= n })) * time.Microsecond
}

func (b *refilled) room(now, cost int64) time.Duration {
	if cost > b.Capacity {
		return weir.Never
	}
	return b.until(now, b.Capacity-cost)
}

func (b *refilled) take(now, cost int64) {
	if b.missing(now) == 0 {
		b.full, b.low, b.taken = now, now, 0
	}
	us, _ := b.period()
	past := big.NewInt(max(now, b.low) - b.full)
	b.low = b.full + past.Div(past, us).Mul(past, us).Int64()
	b.taken += cost
}

func (b *refilled) left(now int64) (int64, time.Duration) {
	return max(b.Capacity-b.missing(now), 0), b.until(now, 0)
}

// A queued is LeakyBucket as a bucket, whose next turn is when it is full.
type queued struct{ *bucket }

func (q queued) delay(now int64) time.Duration { return q.until(now, q.burst) }

// A lease is until when a name has a place.
type lease struct {
	until int64
	name  string
}

// A leased is Concurrency as the list of leases, those that are over until they are
// removed.
type leased struct {
	algorithm.Concurrency
	all  []lease // by until, then by name
	name string  // of the request
	only bool    // it renews
}

func (l *leased) limit() int64 { return l.Limit }

// live are the leases that are not over.
func (l *leased) live(now int64) []lease {
	over := sort.Search(len(l.all), func(i int) bool { return l.all[i].until > now })
	return l.all[over:]
}

// held is until when name has a lease, 0 if it has none.
func (l *leased) held(now int64, name string) int64 {
	for _, one := range l.live(now) {
		if one.name == name {
			return one.until
		}
	}
	return 0
}

func (l *leased) room(now, cost int64) time.Duration {
	live := l.live(now)
	lack := int64(len(live)) + cost - l.Limit
	switch {
	case cost == 1 && l.held(now, l.name) > 0:
		return 0
	case cost > 1 || cost == 1 && l.only:
		return weir.Never
	case lack <= 0:
		return 0
	}
	return time.Duration(live[lack-1].until-now) * time.Microsecond
}

// drop removes name's lease, over or not.
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

// release reports whether name had a lease.
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

// newModel returns the model of a.
func newModel(a algorithm.Algorithm) model {
	switch a := a.(type) {
	case algorithm.GCRA:
		return newBucket(a)
	case algorithm.FixedWindow:
		return &counted{FixedWindow: a}
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
	panic(fmt.Sprintf("conformance: no model of %T", a))
}

// pick returns one of list.
func pick[E any](r *rand.Rand, list ...E) E { return list[r.IntN(len(list))] }

// anyGCRA returns a random GCRA, awkward fractions and high rates among them.
func anyGCRA(r *rand.Rand) algorithm.Algorithm {
	return algorithm.GCRA{
		Rate: algorithm.Rate{
			Count:  pick(r, 1, 2, 3, 7, 10, 60, 997, 1000, 3_000_000, 1+r.Int64N(1000)),
			Period: pick(r, time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour, 1500*time.Nanosecond, 1+time.Duration(r.Int64N(int64(time.Minute)))),
		},
		Burst: pick(r, 1, 2, 5, 100, 1+r.Int64N(20)),
	}
}

// anyFixedWindow returns a random FixedWindow.
func anyFixedWindow(r *rand.Rand) algorithm.Algorithm {
	return algorithm.FixedWindow{
		Limit:   pick(r, 1, 2, 5, 100, 1+r.Int64N(20)),
		Window:  pick(r, time.Microsecond, 7*time.Microsecond, time.Millisecond, time.Second, time.Minute, 24*time.Hour),
		Aligned: r.IntN(2) == 0,
	}
}

// anySlidingLog returns a random SlidingLog.
func anySlidingLog(r *rand.Rand) algorithm.Algorithm {
	return algorithm.SlidingLog{
		Limit:  pick(r, 1, 2, 5, 100, 1+r.Int64N(20)),
		Window: pick(r, time.Microsecond, 7*time.Microsecond, time.Millisecond, time.Second, time.Minute, 24*time.Hour),
	}
}
