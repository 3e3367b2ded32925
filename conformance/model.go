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

// A model is a limit written in the plainest way, to compare an algorithm with. Times
// are in microseconds since the Unix epoch. A cost is 1 or more.
type model interface {
	limit() int64
	window() time.Duration

	// retry returns how long from now until a request passes that may wait for wait:
	// 0 if it passes now, weir.Never if it never does.
	retry(now, cost int64, wait time.Duration) time.Duration

	// take consumes cost tokens.
	take(now, cost int64)

	// left returns how many whole tokens are left, and how long it takes until the
	// limit is fully reset.
	left(now int64) (int64, time.Duration)
}

// A delayed model reserves tokens ahead of time: delay is how long an allowed request
// waits for them. Other models ignore the wait of a request.
type delayed interface {
	delay(now, cost int64) time.Duration
}

// A spanned model limits over several spans. pick returns the span that the answer to
// a request is about, before the request consumes anything.
type spanned interface {
	pick(now, cost int64) algorithm.Span
	leftOf(now int64, s algorithm.Span) int64
}

// decide returns what a limiter with these rules must answer to r at now, and what it
// must answer for each rule. There is one model for each rule. Consume changes them.
func decide(rules []weir.Rule, models []model, now int64, r weir.Request) (weir.Result, []weir.Result) {
	ok, delay := true, time.Duration(0)
	each, costs := make([]weir.Result, len(models)), make([]int64, len(models))
	for i, m := range models {
		if costs[i] = rules[i].Cost; costs[i] == 0 {
			costs[i] = max(r.Cost, 1)
		}
		retry := m.retry(now, costs[i], r.MaxWait)
		each[i] = weir.Result{Allowed: retry == 0, RetryAfter: retry, Limit: m.limit(), Window: m.window(), Rule: rules[i].Name}
		if s, ok := m.(spanned); ok {
			span := s.pick(now, costs[i])
			each[i].Limit, each[i].Window = span.Limit, span.Window
		}
		if d, ok := m.(delayed); ok && retry == 0 {
			each[i].Delay = d.delay(now, costs[i])
		}
		if retry > 0 {
			ok, each[i].Delay = false, weir.Never
		}
		delay = max(delay, each[i].Delay)
	}
	res, granted := 0, int64(-1)
	for i, m := range models {
		e := &each[i]
		if ok && r.Op == weir.Consume {
			m.take(now, costs[i])
			e.Granted = costs[i]
		}
		e.Remaining, e.ResetAfter = m.left(now)
		if s, ok := m.(spanned); ok {
			e.Remaining = s.leftOf(now, algorithm.Span{Window: e.Window, Limit: e.Limit})
		}
		if rules[i].Cost == 0 {
			granted = e.Granted
		}
		if ok && e.Remaining < each[res].Remaining || !ok && e.RetryAfter > each[res].RetryAfter {
			res = i
		}
	}
	one := each[res]
	if one.Delay = weir.Never; ok {
		one.Delay = delay
	}
	if granted >= 0 {
		one.Granted = granted
	}
	return one, each
}

// windowOf returns the time in which n tokens come back at rate, rounded down.
func windowOf(n int64, rate algorithm.Rate) time.Duration {
	w := new(big.Int).Mul(big.NewInt(n), big.NewInt(rate.Period.Nanoseconds()))
	if w.Div(w, big.NewInt(rate.Count)); !w.IsInt64() {
		return weir.Never
	}
	return time.Duration(w.Int64())
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

func (b *bucket) limit() int64          { return b.burst }
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

// A counted is FixedWindow as a count and the end of its window.
type counted struct {
	algorithm.FixedWindow
	count int64
	end   int64
}

func (c *counted) limit() int64          { return c.Limit }
func (c *counted) window() time.Duration { return c.Window }

// used returns the count of the current window.
func (c *counted) used(now int64) int64 {
	if now >= c.end {
		return 0
	}
	return c.count
}

func (c *counted) retry(now, cost int64, _ time.Duration) time.Duration {
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

// A logged is SlidingLog as a plain list of when each token was consumed.
type logged struct {
	algorithm.SlidingLog
	taken []int64
}

func (l *logged) limit() int64          { return l.Limit }
func (l *logged) window() time.Duration { return l.Window }

// live returns the tokens that count at now, the oldest first. Time never goes back
// before the newest.
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

func (l *logged) retry(now, cost int64, _ time.Duration) time.Duration {
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

func (c *tallies) limit() int64          { return c.least().Limit }
func (c *tallies) window() time.Duration { return c.least().Window }

// least returns the span with the smallest limit, the first of equals.
func (c *tallies) least() algorithm.Span {
	return slices.MinFunc(c.Spans, func(a, b algorithm.Span) int { return cmp.Compare(a.Limit, b.Limit) })
}

// bucket returns the number of the current bucket: the clock's, or a later one that was
// used.
func (c *tallies) bucket(now int64) int64 { return max(now/c.Width.Microseconds(), c.newest) }

// used returns what the buckets of s hold, if bucket is the current one.
func (c *tallies) used(bucket int64, s algorithm.Span) int64 {
	sum := int64(0)
	for b, n := range c.counts {
		if b <= bucket && b > bucket-int64(s.Window/c.Width) {
			sum += n
		}
	}
	return sum
}

// spanRetry returns how long from now until a request passes s.
func (c *tallies) spanRetry(now, cost int64, s algorithm.Span) time.Duration {
	if cost > s.Limit {
		return weir.Never
	}
	first := c.bucket(now)
	b := first
	for c.used(b, s)+cost > s.Limit {
		b++
	}
	if b == first {
		return 0
	}
	return time.Duration(b*c.Width.Microseconds()-now) * time.Microsecond
}

func (c *tallies) retry(now, cost int64, _ time.Duration) time.Duration {
	return c.spanRetry(now, cost, c.pick(now, cost))
}

func (c *tallies) take(now, cost int64) {
	c.newest = c.bucket(now)
	c.counts[c.newest] += cost
}

// pick returns the span that denies for the longest time, or else the one with the
// least left; of equals the first.
func (c *tallies) pick(now, cost int64) algorithm.Span {
	best, longest := c.Spans[0], c.spanRetry(now, cost, c.Spans[0])
	for _, s := range c.Spans[1:] {
		retry := c.spanRetry(now, cost, s)
		if retry > longest || longest == 0 && c.leftOf(now, s) < c.leftOf(now, best) {
			best, longest = s, retry
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
	start         int64 // of the current window; 0 if it was never used
	count, before int64
}

func (w *weighted) limit() int64          { return w.Limit }
func (w *weighted) window() time.Duration { return w.Window }

// at returns the model as it is at now, if nothing is consumed meanwhile.
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

// used returns what counts at now. The rest of a token counts in full.
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

func (w *weighted) retry(now, cost int64, _ time.Duration) time.Duration {
	switch {
	case cost > w.Limit:
		return weir.Never
	case w.used(now)+cost <= w.Limit:
		return 0
	}
	// Within a window, what is used never grows.
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

// A refilled is TokenBucket as how many tokens were consumed since it was full, and how
// many came back since.
type refilled struct {
	algorithm.TokenBucket
	full  int64 // when it was full
	taken int64
	low   int64 // when the period began in which tokens were last consumed
}

func (b *refilled) limit() int64          { return b.Capacity }
func (b *refilled) window() time.Duration { return windowOf(b.Capacity, b.Refill) }

// period returns the shortest time, in microseconds, in which a whole number of tokens
// comes back, and that number.
func (b *refilled) period() (us, n *big.Int) {
	if b.AtOnce {
		return big.NewInt(b.Refill.Period.Microseconds()), big.NewInt(b.Refill.Count)
	}
	r := big.NewRat(b.Refill.Period.Microseconds(), b.Refill.Count)
	return r.Num(), r.Denom()
}

// missing returns how many tokens are not back. Time never goes back before low.
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

// until returns how long it takes until at most n tokens are missing.
func (b *refilled) until(now, n int64) time.Duration {
	return time.Duration(sort.Search(1<<53, func(us int) bool { return b.missing(now+int64(us)) <= n })) * time.Microsecond
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
	past := big.NewInt(max(now, b.low) - b.full)
	b.low = b.full + past.Div(past, us).Mul(past, us).Int64()
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

func (l *leased) limit() int64        { return l.Limit }
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
