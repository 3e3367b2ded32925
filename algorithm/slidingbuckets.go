package algorithm

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/store"
)

// MaxBuckets is the most buckets that a [SlidingBuckets] can have.
const MaxBuckets = 128

// MaxSpans is the most spans that a [SlidingBuckets] can have.
const MaxSpans = 8

// minWidth is the shortest bucket, in microseconds.
const minWidth = 1000

// A Span is one limit of a [SlidingBuckets]: Limit tokens in any Window.
type Span struct {
	Window time.Duration // a multiple of the width, up to MaxBuckets of them
	Limit  int64         // from 1 to MaxTokens
}

// SlidingBuckets allows, over each of several spans of time at once, a number of
// tokens: 1000 in 1 s, 5000 in 10 s and 7000 in 15 s, for instance.
//
// Time is cut into buckets at the multiples of Width since the Unix epoch, each
// with a count. A span of n buckets holds the current one and the n-1 before
// it, and slides by whole buckets. A request passes if every span has room for
// its cost. So in any interval as long as a span less one bucket, at most its
// Limit passes; in one as long as the span, which can touch one bucket more,
// what passes beyond that is at most what passed in one bucket. A span of one
// bucket is an aligned [FixedWindow]. The shorter the buckets, the sharper the
// spans, and the dearer.
//
// The verdict names one span, with its limit and what it has left: if denied,
// the first that denies, in the order declared; if allowed, the one with the
// least left, the first of equals. A denied request passes at the start of a
// bucket.
//
// If the clock steps back, the bucket that was used last stays the current one
// until the clock is there again. If limits change under a live key, or spans
// other than the longest do, the counts stay. If Width or the longest span
// changes, what was counted is lost, or read as another part of the longest
// span that it fell in.
//
// Its state is a ring of one key per bucket of the longest span. Source: the
// counters per second that are read by one MGET in Redis rate limiting recipes.
type SlidingBuckets struct {
	// Width is the length of a bucket: whole microseconds, from 1 ms. Every span
	// is a multiple of it, and the longest at most MaxBuckets times as long.
	Width time.Duration

	// Spans are the limits, from 1 to MaxSpans, no two with the same Window. All
	// windows are at most MaxSpan long.
	Spans []Span
}

//go:embed slidingbuckets.lua
var slidingBucketsLua string

var slidingBucketsTag = store.Tag{'b', '1'}

type slidingBucketsLimit struct {
	spans    []Span
	width    int64
	least    int64 // the smallest limit
	most     int64 // and the largest
	fragment *Fragment
	one      []store.Arg
}

// NewLimit implements [Algorithm].
func (b SlidingBuckets) NewLimit() (Limit, error) {
	if len(b.Spans) < 1 || len(b.Spans) > MaxSpans {
		return nil, invalid("SlidingBuckets.Spans has %d elements: it must have from 1 to %d", len(b.Spans), MaxSpans)
	}
	l := &slidingBucketsLimit{spans: append([]Span(nil), b.Spans...), least: b.Spans[0].Limit}
	var longest, common int64 // common divides every window
	windows := make([]int64, len(b.Spans))
	for i, s := range b.Spans {
		if s.Limit < 1 || s.Limit > MaxTokens {
			return nil, invalid("SlidingBuckets.Spans[%d].Limit is %d: it must be from 1 to %d", i, s.Limit, int64(MaxTokens))
		}
		window, err := wholeMicros(fmt.Sprintf("SlidingBuckets.Spans[%d].Window", i), s.Window)
		if err != nil {
			return nil, err
		}
		for j := range i {
			if windows[j] == window {
				return nil, invalid("SlidingBuckets.Spans[%d] and [%d] are both of %v: give a window one limit", j, i, s.Window)
			}
		}
		windows[i], longest, common = window, max(longest, window), gcd(window, common)
		l.least, l.most = min(l.least, s.Limit), max(l.most, s.Limit)
	}
	l.width = b.Width.Microseconds()
	if b.Width%time.Microsecond != 0 || l.width < minWidth || common%l.width != 0 || longest/l.width > MaxBuckets {
		return nil, invalid("SlidingBuckets.Width is %v: every window must be a multiple of it, the longest at most %d times as long, and it "+
			"at least 1ms and whole microseconds: %s", b.Width, MaxBuckets, widthHint(l.width, longest, common))
	}
	r := ring{size: int(longest / l.width)}
	for _, window := range windows {
		r.spans = append(r.spans, int(window/l.width))
	}
	l.fragment = r.fragment()
	l.one = constArgs(l.AppendArgs(nil, Request{Cost: 1}))
	return l, nil
}

// widthHint names the shortest width from the one that was asked for on that
// would do, or else the greatest.
func widthHint(asked, longest, common int64) string {
	best := int64(0)
	for parts := int64(1); parts <= MaxBuckets; parts++ {
		w := common / parts
		if common%parts == 0 && w >= minWidth && longest/w <= MaxBuckets && (best == 0 || w >= asked) {
			best = w
		}
	}
	if best == 0 {
		return "no width does for these spans, make the windows multiples of one that is long enough"
	}
	return micros(best).String() + " would do"
}

func (l *slidingBucketsLimit) Fragment() *Fragment { return l.fragment }

func (l *slidingBucketsLimit) AppendArgs(args []store.Arg, r Request) []store.Arg {
	if r.Cost == 1 && l.one != nil {
		return append(args, l.one...)
	}
	cost := min(r.Cost, l.most+1) // enough for no span to have room
	for _, s := range l.spans {
		args = append(args, store.IntArg(s.Limit-cost))
	}
	return append(args, store.IntArg(min(cost, l.least)), store.IntArg(l.width))
}

func (l *slidingBucketsLimit) Verdict(now int64, committed bool, s State, r Request) Verdict {
	at, used, pass, reset := int(s[0]), s[1], s[2], s[3]
	if at >= len(l.spans) {
		at = 0 // no check reports such a span
	}
	span := l.spans[at]
	v := Verdict{Limit: span.Limit, Span: span.Window}
	switch {
	case r.Cost > l.least:
		v.RetryAfter = Never
	case used > span.Limit-r.Cost:
		v.RetryAfter = micros(max(pass-now, 1))
	default:
		v.Allowed = true
	}
	if committed {
		used += r.Cost
		if r.Cost > 0 {
			reset = s[4] + l.width*int64(l.fragment.Keys)
		}
	}
	v.Remaining = max(span.Limit-used, 0)
	v.ResetAfter = micros(max(reset-now, 0))
	return v
}

// A ring is what the script of a SlidingBuckets depends on.
type ring struct {
	size  int   // buckets, and keys
	spans []int // the length of each span in buckets, in the order declared
}

// rings are the fragments of all rings that were asked for, so that limits of one
// shape share theirs.
var rings sync.Map

func (r ring) fragment() *Fragment {
	shape := fmt.Sprint(r.size, r.spans)
	if f, ok := rings.Load(shape); ok {
		return f.(*Fragment)
	}
	f, _ := rings.LoadOrStore(shape, r.newFragment())
	return f.(*Fragment)
}

func (r ring) newFragment() *Fragment {
	return &Fragment{
		Name:   "slidingbuckets",
		Lua:    r.lua(),
		Keys:   r.size,
		Args:   len(r.spans) + 2,
		State:  []string{"span", "used", "pass", "reset", "top", "count"},
		Check:  r.check,
		Commit: r.commit,
		Fit:    r.fit,
		Take:   r.take,
		Charge: r.charge,
		Refund: r.refund,
	}
}

// lua fills in the template.
func (r ring) lua() string {
	fill := strings.NewReplacer(
		"$MGET", r.call("redis.pcall('MGET', ", ")"),
		"$EXISTS", r.call("redis.call('EXISTS', ", ")"),
		"$ZEROS", strings.Repeat(", 0", r.size)[2:],
		"$SIZE", strconv.Itoa(r.size),
		"$COST", fmt.Sprintf("ARGV[%d]", len(r.spans)+1),
		"$WIDTH", fmt.Sprintf("ARGV[%d]", len(r.spans)+2),
		"$SET", r.set("'PX', life", 1, r.size, "  "),
		"$KEEP", r.set("'KEEPTTL'", 1, r.size, "    "),
	)
	var out strings.Builder
	for line := range strings.Lines(slidingBucketsLua) {
		switch {
		case strings.HasPrefix(line, "--") && strings.Contains(line, "$"):
			out.WriteString(line) // about the template itself
		case strings.Contains(line, "$N"):
			for i := range r.size {
				out.WriteString(strings.ReplaceAll(line, "$N", strconv.Itoa(i+1)))
			}
		case strings.Contains(line, "$A"):
			for i, n := range r.spans {
				out.WriteString(strings.NewReplacer("$I", strconv.Itoa(i), "$A", strconv.Itoa(i+1), "$B", strconv.Itoa(n)).Replace(line))
			}
		default:
			out.WriteString(fill.Replace(line))
		}
	}
	return out.String()
}

// manyKeys is how many arguments a call can have beside the locals of fifteen
// other rules: they share the 250 registers of a Lua function.
const manyKeys = 64

// call is a call over all keys: in a function of its own, if there are many.
func (r ring) call(before, after string) string {
	var b strings.Builder
	b.WriteString(before)
	for i := range r.size {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "KEYS[%d]", i+1)
	}
	b.WriteString(after)
	if r.size > manyKeys {
		return "(function() return " + b.String() + " end)()"
	}
	return b.String()
}

// set chooses, by halves, the key to write from those numbered from first to
// last: keys are literals.
func (r ring) set(ttl string, first, last int, indent string) string {
	if first == last {
		return fmt.Sprintf("redis.call('SET', KEYS[%d], value, %s)", first, ttl)
	}
	middle, deeper := (first+last)/2, indent+"  "
	return fmt.Sprintf("if slot <= %d then\n%s%s\n%selse\n%s%s\n%send", middle,
		deeper, r.set(ttl, first, middle, deeper), indent, deeper, r.set(ttl, middle+1, last, deeper), indent)
}

func (r ring) check(tx store.Tx, key int, now int64, args []store.Arg) (State, bool, error) {
	var sums [MaxBuckets]int64 // sums[i] is that of the newest i+1 buckets
	width := args[len(r.spans)+1].Int()
	top := now - now%width
	for {
		ahead, err := r.read(tx, key, top, width, &sums)
		if err != nil {
			return State{}, false, err
		}
		if ahead == top {
			break
		}
		top = ahead
	}

	s := State{4: top, 5: sums[0]}
	least := int64(1 << 53)
	for i, n := range r.spans {
		if left := args[i].Int() - sums[n-1]; least >= 0 && left < least {
			s[0], s[1], least = int64(i), min(sums[n-1], 1<<53), left
		}
	}
	for i, n := range r.spans {
		for age := 0; least < 0 && age < n; age++ {
			if sums[age] > args[i].Int() {
				s[2] = max(s[2], top+int64(n-age)*width)
				break
			}
		}
	}
	for age := range r.size {
		if sums[age] > 0 {
			s[3] = top + int64(r.size-age)*width
			break
		}
	}
	return s, least >= 0, nil
}

// read sums up the buckets from the one that began at top backwards, and
// returns when the newest one began: top, or later if the clock was set back.
func (r ring) read(tx store.Tx, key int, top, width int64, sums *[MaxBuckets]int64) (int64, error) {
	turn := width * int64(r.size)
	start, slot := top-top%turn, int(top%turn/width)
	ahead, total := top, int64(0)
	for age := range r.size {
		n, ok, err := tx.Get(key+slot, slidingBucketsTag)
		switch {
		case err != nil:
			return 0, err
		case !ok: // nothing was counted
		case n.Len != 2 || n.N[0] >= MaxSpan:
			return 0, tx.Foreign(key + slot)
		case n.N[0] == start:
			total += n.N[1]
		case n.N[0]%turn == 0:
			ahead = max(ahead, n.N[0]+int64(slot)*width)
		}
		sums[age] = total
		if slot--; slot < 0 {
			slot, start = r.size-1, start-turn
		}
	}
	return ahead, nil
}

func (r ring) commit(tx store.Tx, key int, now int64, args []store.Arg, s State, slack time.Duration) {
	width := args[len(r.spans)+1].Int()
	turn := width * int64(r.size)
	top, count := s[4], s[5]+args[len(r.spans)].Int()
	n := store.Nums{Tag: slidingBucketsTag, Len: 2, N: [store.MaxNums]int64{top - top%turn, count}}
	tx.Put(key+int(top%turn/width), n, ttl(top+turn-now, slack))
}

func (r ring) fit(_ int64, args []store.Arg, s State) int64 { return args[s[0]].Int() + 1 - s[1] }

func (r ring) take(args []store.Arg, n int64) { args[len(r.spans)] = store.IntArg(n) }

// charge is when the bucket began, and the tokens.
func (r ring) charge(now int64, args []store.Arg, s State, _ Note) (Charge, int64) {
	turn := args[len(r.spans)+1].Int() * int64(r.size)
	return Charge{s[4], args[len(r.spans)].Int()}, s[4] + turn - now
}

func (r ring) refund(tx store.Tx, key int, _ int64, args []store.Arg, s State, was Charge, _ Note) bool {
	width := args[len(r.spans)+1].Int()
	turn := width * int64(r.size)
	if was[0]%width != 0 || was[0]+turn <= s[4] {
		return false
	}
	slot := key + int(was[0]%turn/width)
	n, _, err := tx.Get(slot, slidingBucketsTag)
	if err != nil || n.N[0] != was[0]-was[0]%turn || n.N[1] == 0 {
		return false
	}
	n.N[1] = max(n.N[1]-was[1], 0)
	tx.Put(slot, n, 0)
	return true
}
