package model

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// A Tally is a number of tokens that are counted together, and the time that identifies them.
type Tally struct{ At, N int64 }

// A tallier is a model that knows which tokens a refund returns. counts reports whether a tally
// counts.
type tallier interface {
	counts(now int64, t *Tally) bool
}

// Refund refunds n tokens of a decision that t counted, and reports whether it refunded any.
// It refunds none if the tally no longer counts.
func Refund(m Model, now int64, t *Tally, n int64) bool {
	c, ok := m.(tallier)
	if !ok || t.N == 0 || !c.counts(now, t) {
		return false
	}
	t.N = max(t.N-n, 0)
	if l, ok := m.(*log); ok && t.N == 0 && t == l.entries[len(l.entries)-1] {
		l.entries = l.entries[:len(l.entries)-1]
	}
	return true
}

// sum returns the tokens of list.
func sum(list []*Tally) (n int64) {
	for _, t := range list {
		n += t.N
	}
	return n
}

// A window is the model of a FixedWindow, a MetadataWindow or a Calendar. The tally
// belongs to the window that ends at its time.
type window struct {
	algorithm.FixedWindow
	dates Dates // of a Calendar
	lost  int64 // the part of Carry that did not carry over to this period
	*Tally
}

func (w *window) Set(a algorithm.Algorithm) {
	const day = 24 * time.Hour
	switch a := a.(type) {
	case algorithm.FixedWindow:
		w.FixedWindow = a
	case algorithm.MetadataWindow:
		w.FixedWindow = algorithm.FixedWindow(a)
	case algorithm.Calendar:
		w.dates = NewDates(a)
		longest := map[algorithm.Period]time.Duration{algorithm.Day: 1, algorithm.Week: 7, algorithm.Month: 31, algorithm.Quarter: 92, algorithm.Year: 366}
		w.FixedWindow = algorithm.FixedWindow{Limit: a.Limit + a.Carry, Window: longest[a.Every] * day}
	}
	if w.Tally == nil {
		w.Tally = new(Tally)
	}
}

func (w *window) Spans() []algorithm.Span {
	return []algorithm.Span{{Limit: w.Limit, Window: w.Window}}
}

func (w *window) counts(now int64, t *Tally) bool { return t == w.Tally && now < w.At }

func (w *window) Used(at int64, _ algorithm.Span) int64 {
	carry, used := w.dates.Carry, w.lost+w.N
	switch left := max(w.Limit-used, 0); {
	case at < w.At:
		return used
	case left < carry && at < w.dates.End(time.UnixMicro(w.At)).UnixMicro():
		return carry - left
	}
	return 0
}

func (w *window) Take(now, n int64) *Tally {
	length := w.Window.Microseconds()
	if used := w.Used(now, algorithm.Span{}); used == 0 || now >= w.At {
		w.lost = used
		switch w.Tally = new(Tally); {
		case w.dates.loc != nil:
			w.At = w.dates.End(time.UnixMicro(now)).UnixMicro()
		case w.Aligned:
			w.At = now - now%length + length
		default:
			w.At = now + length
		}
	}
	if over := w.At % length; w.Aligned && over > 0 { // another limit started the window
		w.At = min(w.At-over+length, algorithm.MaxTokens)
	}
	w.N += n
	return w.Tally
}

// A counter is the model of a SlidingCounter: the tallies of a window, which starts at its
// time, and of the window before.
type counter struct {
	algorithm.SlidingCounter
	current, before *Tally
}

func (c *counter) Set(a algorithm.Algorithm) {
	if c.SlidingCounter = a.(algorithm.SlidingCounter); c.current == nil {
		c.current, c.before = new(Tally), new(Tally)
	}
}

func (c *counter) Spans() []algorithm.Span {
	return []algorithm.Span{{Limit: c.Limit, Window: c.Window}}
}

// windows returns the window of the time at, and the window before.
func (c *counter) windows(at int64) (current, before *Tally) {
	length := c.Window.Microseconds()
	switch start := c.current.At; {
	case at >= start+2*length || c.current.N+c.before.N == 0:
		return &Tally{At: at - at%length}, new(Tally)
	case at >= start+length:
		return &Tally{At: start + length}, c.current
	}
	return c.current, c.before
}

func (c *counter) counts(now int64, t *Tally) bool {
	current, before := c.windows(now)
	return t == current || t == before
}

// Used adds the part of the previous window that is less than a window old. That part
// falls in at most 2^20 steps.
func (c *counter) Used(at int64, _ algorithm.Span) int64 {
	current, before := c.windows(at)
	length := c.Window.Microseconds()
	step := (length + 1<<20 - 1) >> 20
	steps := (length + step - 1) / step
	return current.N + (before.N*(steps-max(at-current.At, 0)/step)+steps-1)/steps
}

func (c *counter) Take(now, n int64) *Tally {
	c.current, c.before = c.windows(now)
	c.current.N += n
	return c.current
}

// A log is the model of a SlidingLog: a tally for each decision.
type log struct {
	algorithm.SlidingLog
	entries []*Tally
}

func (l *log) Set(a algorithm.Algorithm) { l.SlidingLog = a.(algorithm.SlidingLog) }

func (l *log) Spans() []algorithm.Span {
	return []algorithm.Span{{Limit: l.Limit, Window: l.Window}}
}

// time returns the later of at and the time of the newest entry.
func (l *log) time(at int64) int64 {
	if n := len(l.entries); n > 0 {
		return max(at, l.entries[n-1].At)
	}
	return at
}

func (l *log) counts(now int64, t *Tally) bool { return slices.Contains(l.live(now), t) }

// live returns the entries of the window.
func (l *log) live(at int64) []*Tally {
	after := l.time(at) - l.Window.Microseconds()
	return l.entries[sort.Search(len(l.entries), func(i int) bool { return l.entries[i].At > after }):]
}

func (l *log) Used(at int64, _ algorithm.Span) int64 { return sum(l.live(at)) }

func (l *log) Take(now, n int64) *Tally {
	t := &Tally{l.time(now), n}
	l.entries = append(l.entries, t)
	return t
}

// A ring is the model of a SlidingBuckets: the tally of each bucket, oldest first, which
// starts at its time.
type ring struct {
	algorithm.SlidingBuckets
	buckets []*Tally
}

func (r *ring) Set(a algorithm.Algorithm) { r.SlidingBuckets = a.(algorithm.SlidingBuckets) }

func (r *ring) Spans() []algorithm.Span { return r.SlidingBuckets.Spans }

// current returns the start of the bucket of the time at, or of a later one that was used.
func (r *ring) current(at int64) int64 {
	at -= at % r.Width.Microseconds()
	if n := len(r.buckets); n > 0 {
		return max(at, r.buckets[n-1].At)
	}
	return at
}

// within returns the buckets of a span.
func (r *ring) within(at int64, span time.Duration) []*Tally {
	after := r.current(at) - span.Microseconds()
	return r.buckets[sort.Search(len(r.buckets), func(i int) bool { return r.buckets[i].At > after }):]
}

func (r *ring) counts(now int64, t *Tally) bool {
	longest := slices.MaxFunc(r.Spans(), func(a, b algorithm.Span) int { return cmp.Compare(a.Window, b.Window) })
	return slices.Contains(r.within(now, longest.Window), t)
}

func (r *ring) Used(at int64, s algorithm.Span) int64 { return sum(r.within(at, s.Window)) }

func (r *ring) Take(now, n int64) *Tally {
	start := r.current(now)
	if i := len(r.buckets) - 1; i >= 0 && r.buckets[i].At == start {
		r.buckets[i].N += n
		return r.buckets[i]
	}
	r.buckets = append(r.buckets, &Tally{start, n})
	return r.buckets[len(r.buckets)-1]
}

// Leases is the model of a Concurrency: the leases, with expired ones until they are removed.
type Leases struct {
	algorithm.Concurrency
	Name  string // of the request, "" for none
	Renew bool   // the request renews a lease, and acquires none
	all   []lease
}

type lease struct {
	until int64
	name  string
}

// Set implements Model.
func (l *Leases) Set(a algorithm.Algorithm) { l.Concurrency = a.(algorithm.Concurrency) }

// Spans implements Model.
func (l *Leases) Spans() []algorithm.Span { return []algorithm.Span{{Limit: l.Limit}} }

// Used implements Model.
func (l *Leases) Used(at int64, _ algorithm.Span) (n int64) {
	for _, one := range l.all {
		if one.until > at {
			n++
		}
	}
	return n
}

// held returns when the lease of that name expires, or 0 if it is not held.
func (l *Leases) held(now int64, name string) int64 {
	for _, one := range l.all {
		if one.name == name && one.until > now {
			return one.until
		}
	}
	return 0
}

// Release ends the lease of that name, and reports whether it was held.
func (l *Leases) Release(now int64, name string) bool {
	held := l.held(now, name) > 0
	l.all = slices.DeleteFunc(l.all, func(one lease) bool { return one.name == name })
	return held
}

// Take implements Model. A new lease replaces up to 16 expired ones, or all of them if no
// lease is held. So no more than Limit are held after the clock stepped back.
func (l *Leases) Take(now, _ int64) *Tally {
	held := l.held(now, l.Name)
	if l.Release(now, l.Name); held == 0 {
		live := int(l.Used(now, algorithm.Span{}))
		expired := len(l.all) - live
		if live > 0 {
			expired = min(expired, 16)
		}
		l.all = l.all[expired:]
	}
	l.all = append(l.all, lease{max(held, now+l.Lease.Microseconds()), l.Name})
	slices.SortFunc(l.all, func(a, b lease) int {
		return cmp.Or(cmp.Compare(a.until, b.until), strings.Compare(a.name, b.name))
	})
	return nil
}
