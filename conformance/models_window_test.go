package conformance

import (
	"cmp"
	"math/big"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/internal/test/weirtest"
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
		if _, leases := m.(*leased); leases {
			each[i].Type = weir.LeaseRule
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

// predict returns what a limiter of a alone must answer to r at now, of Release only
// whether the lease was held.
func predict(a algorithm.Algorithm, m model, now int64, r weir.Request) weir.Result {
	l, leases := m.(*leased)
	if leases {
		l.name, l.renew = r.ID, r.Op == weir.Renew
	}
	renew := r.Op == weir.Renew
	switch {
	case r.Op == weir.Release:
		return weir.Result{Allowed: l.release(now, r.ID)}
	case renew:
		r = weir.Request{}
	case r.Op == weir.TakeUpTo:
		r = upToRequest(a, m, now, max(r.Cost, 1))
	}
	want, _ := decide([]weir.Rule{decisions.One(a)}, []model{m}, now, r)
	if renew {
		want.Granted = 0
	}
	return want
}

// upToRequest returns the request that has the same answer as TakeUpTo of most tokens.
func upToRequest(a algorithm.Algorithm, m model, now, most int64) weir.Request {
	most = min(most, m.limit())
	fits := search(most, func(n int64) bool { return m.retry(now, n+1, 0) > 0 })
	return weir.Request{Cost: max(fits, 1)}
}

// search is sort.Search for numbers that an int of 32 bits does not hold.
func search(n int64, f func(int64) bool) int64 {
	from := int64(0)
	for from < n {
		if i := from + (n-from)/2; f(i) {
			n = i
		} else {
			from = i + 1
		}
	}
	return from
}

// A counted is FixedWindow as a count and the end of its window.
type counted struct {
	algorithm.FixedWindow
	count int64
	end   int64
}

func (c *counted) limit() int64 { return c.Limit }

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

// A dated is Calendar as a count and the end of its period, according to package time.
type dated struct {
	counted
	dates weirtest.Dates
}

func newDated(c algorithm.Calendar) *dated {
	limit, err := c.NewLimit()
	if err != nil {
		panic(err)
	}
	return &dated{counted{FixedWindow: algorithm.FixedWindow{Limit: c.Limit, Window: limit.Window}}, weirtest.NewDates(c)}
}

func (d *dated) take(now, cost int64) {
	if now >= d.end {
		d.count, d.end = 0, d.dates.End(time.UnixMicro(now)).UnixMicro()
	}
	d.count += cost
}

// A logged is SlidingLog as a plain list of when tokens were consumed, and how many.
type logged struct {
	algorithm.SlidingLog
	taken []taken
}

type taken struct{ at, cost int64 }

func (l *logged) limit() int64 { return l.Limit }

func (l *logged) window() time.Duration { return l.Window }

// live returns what counts at now, the oldest first, and its sum. Time never goes back before
// the newest.
func (l *logged) live(now int64) (live []taken, sum int64) {
	if n := len(l.taken); n > 0 {
		now = max(now, l.taken[n-1].at)
	}
	for _, t := range l.taken {
		if now-t.at < l.Window.Microseconds() {
			live, sum = append(live, t), sum+t.cost
		}
	}
	return live, sum
}

func (l *logged) retry(now, cost int64, _ time.Duration) time.Duration {
	live, sum := l.live(now)
	if cost > l.Limit {
		return weir.Never
	}
	wait := time.Duration(0)
	for i := 0; sum+cost > l.Limit; i++ {
		sum -= live[i].cost
		wait = time.Duration(live[i].at+l.Window.Microseconds()-now) * time.Microsecond
	}
	return wait
}

func (l *logged) take(now, cost int64) {
	if n := len(l.taken); n > 0 {
		now = max(now, l.taken[n-1].at)
	}
	l.taken = append(l.taken, taken{now, cost})
}

func (l *logged) left(now int64) (int64, time.Duration) {
	live, sum := l.live(now)
	if len(live) == 0 {
		return l.Limit, 0
	}
	return l.Limit - sum, time.Duration(live[len(live)-1].at+l.Window.Microseconds()-now) * time.Microsecond
}

// tallies is SlidingBuckets as a count for each bucket, all of them kept.
type tallies struct {
	algorithm.SlidingBuckets
	counts map[int64]int64 // by the number of the bucket since the epoch
	newest int64
}

func (c *tallies) limit() int64 { return c.least().Limit }

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

func (w *weighted) limit() int64 { return w.Limit }

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
			n := search(end-from, func(i int64) bool { return w.used(from+i)+cost <= w.Limit })
			return time.Duration(from+n-now) * time.Microsecond
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
