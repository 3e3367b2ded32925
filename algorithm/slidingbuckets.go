package algorithm

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// MaxBuckets and MaxSpans are the bounds of a [SlidingBuckets].
const (
	MaxBuckets = 128  // the largest number of buckets
	MaxSpans   = 8    // the largest number of spans
	minWidth   = 1000 // the shortest bucket, in microseconds
	maxRings   = 64   // the largest number of rings in the cache
)

// A Span is one limit of a [SlidingBuckets]: Limit tokens in a window of length Window.
type Span struct {
	Window time.Duration // a multiple of Width, at most MaxBuckets times as long
	Limit  int64         // from 1 to MaxTokens
}

// SlidingBuckets limits several windows at once, for example 1000 tokens in 1 s, 5000 in
// 10 s and 7000 in 15 s. Each of these limits is a [Span].
//
// It counts tokens in buckets, which are Width long and start at multiples of Width since
// the Unix epoch. A span of n buckets covers the current bucket and the n-1 buckets
// before it. A request is allowed if its cost plus the count of each span is at most the
// Limit of the span, so a cost above the smallest Limit is never allowed.
//
// A span moves on by whole buckets. So an interval of its length may contain a part of
// one more bucket, and the tokens of that part beyond Limit. An interval that is one
// bucket shorter has at most Limit tokens. Shorter buckets are more exact, and need more
// keys. A span of one bucket is an aligned FixedWindow.
//
// The Limit, Window and Remaining of a result describe one span. After a denial, it is
// the first with the longest wait, and otherwise the first with the fewest tokens left.
// RetryAfter ends at the start of a bucket.
//
// The state is one string for each bucket of the longest span, and one MGET reads all of
// them. The lengths of the spans, in buckets, are part of the script, and a server keeps
// every script in memory. So let operators choose Width and the windows, and let tenants
// choose only the limits.
//
// In debt, the count of a span is above its Limit, and the debt ends as buckets leave the
// span.
//
// If a Limit or a shorter span changes, the counts stay. If Width or the longest span
// changes, some counts are lost, and others are counted in other buckets, until the old
// limit's longest span has passed. RetryAfter can then be longer than the real wait. If
// the clock steps back, the newest bucket stays the current one until the clock reaches
// it again.
//
// A refund lowers the count of the bucket of its decision while the longest span covers
// that bucket, unless Width or the longest span has changed since.
//
// Source: Redis recipes that keep a counter for each second, and read the counters with
// one MGET.
type SlidingBuckets struct {
	// Width is the length of a bucket. It must be whole microseconds, at least 1 ms.
	// Every window is a multiple of Width. The longest window has at most MaxBuckets
	// buckets.
	Width time.Duration

	// Spans are the limits, from 1 to MaxSpans. No two spans have the same Window. A
	// Window is at most MaxSpan.
	Spans []Span
}

//go:embed slidingbuckets.lua
var slidingBucketsLua string

// NewLimit implements [Algorithm].
func (b SlidingBuckets) NewLimit() (*contract.Limit, error) {
	if len(b.Spans) < 1 || len(b.Spans) > MaxSpans {
		return nil, contract.Invalid("SlidingBuckets.Spans has %d elements: it must have from 1 to %d", len(b.Spans), MaxSpans)
	}
	var longest, common, most int64 // common divides every window; most is the highest limit
	var args, windows []int64
	least := b.Spans[0]
	for i, s := range b.Spans {
		window, err := checkWindow(fmt.Sprintf("SlidingBuckets.Spans[%d]", i), s.Limit, MaxTokens, s.Window)
		if err != nil {
			return nil, err
		}
		if j := slices.Index(windows, window); j >= 0 {
			return nil, contract.Invalid("SlidingBuckets.Spans[%d] and Spans[%d] have the same Window, %v: each must have another Window", j, i, s.Window)
		}
		args, windows = append(args, s.Limit), append(windows, window)
		longest, common, most = max(longest, window), gcd(window, common), max(most, s.Limit)
		if s.Limit < least.Limit {
			least = s
		}
	}
	width := b.Width.Microseconds()
	if b.Width%time.Microsecond != 0 || width < minWidth || common%width != 0 || longest/width > MaxBuckets {
		return nil, contract.Invalid("SlidingBuckets.Width is %v: it must be whole microseconds, at least 1ms, and every window must be a multiple of it, "+
			"of at most %d buckets: %s", b.Width, MaxBuckets, widthHint(width, longest, common))
	}
	lengths := make([]int, len(windows))
	for i, window := range windows {
		lengths[i] = int(window / width)
	}
	return &contract.Limit{Kind: ringKind(lengths), Args: consts(append(args, width)...), Capacity: least.Limit, MaxDebt: MaxTokens - most, Window: least.Window, Carry: b.carry}, nil
}

// carry is the Limit.Carry. If the buckets change, a count can move to a later bucket.
func (b SlidingBuckets) carry(to *contract.Limit) (c contract.Carried) {
	kind, _ := to.Kind.(*contract.StepKind)
	if kind == nil || kind.Name != "slidingbuckets" {
		return c
	}
	now := kind.Step(to.Args).(*slidingBuckets)
	longest := slices.MaxFunc(b.Spans, func(x, y Span) int { return cmp.Compare(x.Window, y.Window) })
	if contract.Micros(now.width) != b.Width || contract.Micros(now.turn) != longest.Window {
		c.Text = "the width or the longest window changes: some counts are lost, and others move to other buckets"
		c.Wait = contract.Micros(2 * now.turn)
		return c
	}
	c.Exact, c.Text = true, "the counts stay"
	for i, limit := range now.limits {
		window := contract.Micros(now.width * int64(now.lengths[i]))
		if !slices.ContainsFunc(b.Spans, func(s Span) bool { return s.Limit < limit && s.Window >= window }) {
			c.Wait = max(c.Wait, window)
		}
	}
	return c
}

// widthHint returns a text that names a valid width: the shortest that is at least asked.
// If there is none, it names the longest valid width.
func widthHint(asked, longest, common int64) string {
	best := int64(0)
	for parts := int64(1); parts <= MaxBuckets; parts++ {
		w := common / parts
		if common%parts == 0 && w >= minWidth && longest/w <= MaxBuckets && (best == 0 || w >= asked) {
			best = w
		}
	}
	if best == 0 {
		return "no width is valid for these windows: make all windows multiples of a longer width"
	}
	return contract.Micros(best).String() + " would be valid"
}

// A ring is the part of a SlidingBuckets that its script depends on.
type ring struct {
	size    int   // the number of buckets, and of keys
	lengths []int // the lengths of the spans, in buckets, in the order of Spans
	kind    *contract.StepKind
}

// rings is a cache of the most recently used rings. The most recent is the last.
var rings struct {
	sync.Mutex
	list []*ring
}

// ringKind returns the kind for spans of these lengths. While it is in the cache, limits
// with the same lengths share it.
func ringKind(lengths []int) *contract.StepKind {
	rings.Lock()
	defer rings.Unlock()
	at := slices.IndexFunc(rings.list, func(r *ring) bool { return slices.Equal(r.lengths, lengths) })
	if at < 0 {
		rings.list = append(rings.list, newRing(lengths))
		at = len(rings.list) - 1
	}
	r := rings.list[at]
	rings.list = append(slices.Delete(rings.list, at, at+1), r)
	rings.list = slices.Delete(rings.list, 0, max(len(rings.list)-maxRings, 0))
	return r.kind
}

func newRing(lengths []int) *ring {
	r := &ring{size: slices.Max(lengths), lengths: lengths}
	r.kind = &contract.StepKind{
		Head: contract.Head{
			Name: "slidingbuckets", Tag: store.Tag{'b', '2'}, Cell: "span used pass reset",
			Args: strings.Join(strings.Split(spanLetters[:len(lengths)], ""), " ") + " width",
			Lua:  r.lua(),
		},
		Keys: r.size, Locals: "top ring turn count owner",
		Step: func(args []store.Arg) contract.Step {
			b := &slidingBuckets{ring: r, width: args[len(lengths)].Int()}
			b.turn = b.width * int64(r.size)
			for i := range lengths {
				b.limits = append(b.limits, args[i].Int())
			}
			return b
		},
	}
	return r
}

// spanLetters are the names of the spans' limits in Lua.
const spanLetters = "abcdefgh"

// manyKeys is the largest number of arguments of a call in the script's main function. A
// Lua function has 250 registers, for the arguments and for the locals of 15 other rules.
// Calls with more arguments are made in a separate function.
const manyKeys = 48

// lua returns the Lua of the ring: slidingbuckets.lua with its placeholders replaced.
func (r *ring) lua() string {
	fill := []string{"@SIZE", strconv.Itoa(r.size), "@ZEROS", "{" + strings.Repeat(", 0", r.size)[2:] + "}", "@(", "", "@)", ""}
	if r.size > manyKeys {
		fill[5], fill[7] = "(function() return ", " end)()"
		fill[3] = fill[5] + fill[3] + fill[7]
	}
	var keys, out strings.Builder
	for i := range r.size {
		fmt.Fprintf(&keys, ", $key%d", i+1)
	}
	all := strings.NewReplacer(append(fill, "@KEYS", keys.String()[2:])...)
	_, sections, _ := strings.Cut(slidingBucketsLua, "\n\n")
	for line := range strings.Lines(sections) {
		switch {
		case strings.Contains(line, "@N"):
			for i := range r.size {
				out.WriteString(strings.ReplaceAll(line, "@N", strconv.Itoa(i+1)))
			}
		case strings.Contains(line, "@B"):
			for i, n := range r.lengths {
				span := strings.NewReplacer("@I", strconv.Itoa(i), "@L", spanLetters[i:i+1], "@B", strconv.Itoa(n))
				out.WriteString(span.Replace(line))
			}
		default:
			out.WriteString(all.Replace(line))
		}
	}
	return out.String()
}

// A slidingBuckets is the Step of a SlidingBuckets. Its state is span, used, pass and
// reset, as in slidingbuckets.lua, and three integers that are not in a reply: top and
// owner, as in slidingbuckets.lua, and by how much another span has a smaller room than
// span.
type slidingBuckets struct {
	*ring
	limits      []int64
	width, turn int64
}

func (b *slidingBuckets) Read(tx store.Tx, key int, now int64, a contract.Ask) (s contract.State, err error) {
	var sums [MaxBuckets]int64 // sums[i] is the sum of the newest i+1 buckets
	top, owner := now-now%b.width, int64(0)
	for ahead := int64(-1); ahead != top; {
		top = max(top, ahead)
		if ahead, owner, err = b.sum(tx, key, top, &sums); err != nil {
			return s, err
		}
	}
	s = contract.State{4: top, 5: owner}
	least, room := int64(MaxTokens+1), int64(MaxTokens)
	for i, n := range b.lengths {
		limit, sum, pass := b.limits[i], sums[n-1], int64(0)
		room = min(room, limit-sum)
		switch {
		case a.Cost > limit:
			pass = MaxTokens
		case sum > limit-a.Cost:
			age := slices.IndexFunc(sums[:], func(sum int64) bool { return sum > limit-a.Cost })
			pass = top + int64(n-age)*b.width
		}
		if pass > s[2] || pass == s[2] && pass == 0 && limit-sum < least {
			s[0], s[1], s[2], least = int64(i), sum, pass, limit-sum
		}
	}
	s[1] = min(s[1], MaxTokens)
	s[6] = b.limits[s[0]] - s[1] - room
	if age := slices.IndexFunc(sums[:b.size], func(sum int64) bool { return sum > 0 || top > now }); age >= 0 {
		s[3] = top + int64(b.size-age)*b.width
	}
	return s, nil
}

// place returns the index of the key of the bucket that began at begin, and the begin of
// its turn of the ring.
func (b *slidingBuckets) place(begin int64) (slot int, turn int64) {
	return int(begin % b.turn / b.width), begin - begin%b.turn
}

// sum sets sums[i] to the number of tokens in the i+1 newest buckets. The newest bucket
// began at top. ahead is when the newest stored bucket began, which is later than top if
// the clock stepped back. owner is the GEN of the bucket that began at top.
func (b *slidingBuckets) sum(tx store.Tx, key int, top int64, sums *[MaxBuckets]int64) (ahead, owner int64, err error) {
	total, ahead := int64(0), top
	for age := range b.size {
		slot, turn := b.place(top + b.turn - int64(age)*b.width)
		turn -= b.turn
		n, ok, err := tx.Get(key + slot)
		begin := n.N[0] + int64(slot)*b.width
		switch {
		case err != nil:
			return 0, 0, err
		case !ok: // nothing was consumed
		case n.Tag != b.kind.Tag || n.Len < 2 || n.Len > 3 || n.N[0] >= maxSpan:
			return 0, 0, store.ForeignAt(key + slot)
		case n.N[0] == turn:
			total += n.N[1]
			if age == 0 {
				owner = n.N[2]
			}
		case n.N[0]%b.turn == 0 && begin > ahead:
			if ahead = begin; ahead >= maxSpan {
				return 0, 0, store.ForeignAt(key + slot)
			}
		}
		sums[age] = total
	}
	return ahead, owner, nil
}

func (b *slidingBuckets) Room(_ int64, s contract.State, _ contract.Ask) int64 {
	return b.limits[b.span(s)] - s[1] - s[6]
}

// span returns the index of the span that s describes. If the index is out of range,
// which no script replies, it returns the last span.
func (b *slidingBuckets) span(s contract.State) int { return min(int(s[0]), len(b.limits)-1) }

func (b *slidingBuckets) Write(tx store.Tx, key int, now int64, s contract.State, n int64, _ contract.Ask, gen int64, slack time.Duration) error {
	mark, ends := b.Mark(now, s, n, gen)
	slot, turn := b.place(mark.A)
	held, _, err := tx.Get(key + slot)
	if err != nil {
		return err
	}
	value := store.Nums{Tag: b.kind.Tag, Len: 2, N: [store.MaxNums]int64{turn, n, mark.B}}
	if held.N[0] == turn {
		value.N[1] += held.N[1]
	}
	if mark.B > 0 {
		value.Len = 3
	}
	tx.Put(key+slot, value, contract.TTL(now, ends, slack))
	return nil
}

func (b *slidingBuckets) Answer(now int64, s contract.State, n int64, _ contract.Ask) contract.Answer {
	at, used, pass, reset := b.span(s), s[1]+n, s[2], s[3]
	if n > 0 {
		reset = max(reset, now-now%b.width+b.turn)
	}
	ans := answer(now, b.limits[at], b.width*int64(b.lengths[at]), used, pass, reset)
	ans.ResetAfter = contract.Micros(max(reset-now, 0))
	return ans
}

// Mark implements [contract.StepRefunder]. The marker has the time when the bucket began,
// and its GEN after the decision.
func (b *slidingBuckets) Mark(_ int64, s contract.State, _, gen int64) (contract.Cell, int64) {
	top, owner := s[4], s[5]
	if owner == 0 {
		owner = gen
	}
	return contract.Cell{A: top, B: owner}, top + b.turn
}

// Refund implements [contract.StepRefunder].
func (b *slidingBuckets) Refund(tx store.Tx, key int, _ int64, s contract.State, _ contract.Ask, mark contract.Cell, n, _, _ int64) (bool, error) {
	slot, turn := b.place(mark.A)
	held, _, err := tx.Get(key + slot)
	if err != nil || held.Len != 3 || held.N[0] != turn || held.N[1] == 0 || held.N[2] != mark.B || mark.A+b.turn <= s[4] || mark.A%b.width != 0 {
		return false, err
	}
	held.N[1] = max(held.N[1]-n, 0)
	tx.Keep(key+slot, held)
	return true, nil
}
