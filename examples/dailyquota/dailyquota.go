// Package dailyquota is an algorithm from outside package algorithm: so many
// tokens a day, anew at midnight where the caller lives. It is composed with
// built-in ones, runs on every store, and is proven by
// [github.com/weir-go/weir/conformance.RunAlgorithm], in a test of a few lines.
package dailyquota

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A Quota allows Limit tokens each day, from midnight to midnight on the clocks
// of Zone. A day is as long as it is there: 23 or 25 hours when clocks change,
// and it begins at one o'clock where they skip midnight.
//
// A request that was denied passes when the day is over, and not before. If the
// clock steps back behind midnight, the new day goes on. If Limit or Zone
// changes under a live key, the day under way keeps its count, and ends when it
// would have.
//
// Callers in several zones share one limiter: each request brings the limit of its
// caller, in [github.com/weir-go/weir.Request].Limits.
//
// What day it is says the clock by which the decision is made, the store's as a
// rule. The caller's clock matters only to NewLimit, which looks up the changes
// of ten years: days are right as long as From is not ahead of the deciding
// clock, and at most ten years behind. Before and after, the first and the last
// offset is taken for ever, so a day can begin an hour off.
type Quota struct {
	// Limit is how many tokens a day has, from 1 to algorithm.MaxTokens.
	Limit int64

	// Zone is where the caller lives.
	Zone *time.Location

	// From is where the ten years begin, from 1970 to 2100. If zero, it is one
	// year before NewLimit is called: a process that runs for nine years, or on a
	// clock that is a year ahead, is right still.
	From time.Time
}

const (
	day     = 24 * 3600 * 1_000_000 // microseconds
	horizon = 10                    // years
)

//go:embed dailyquota.lua
var lua string

// tag begins every value, so that no other algorithm takes it for its own.
var tag = store.Tag{'d', '1'}

// One fragment serves all quotas and zones, so that one limiter does.
var fragment = &algorithm.Fragment{
	Name:   "dailyquota",
	Lua:    lua,
	Args:   3,
	State:  []string{"edge", "count"},
	Check:  check,
	Commit: commit,
	Fit:    fit,
	Take:   take,
	Charge: charge,
	Refund: refund,
}

type limit struct {
	tokens  int64
	offsets store.Arg // the zone's offsets and changes, as dailyquota.lua has them
}

// NewLimit implements [algorithm.Algorithm].
func (q Quota) NewLimit() (algorithm.Limit, error) {
	if q.Limit < 1 || q.Limit > algorithm.MaxTokens {
		return nil, fmt.Errorf("%w: Quota.Limit is %d: it must be from 1 to %d", algorithm.ErrInvalidLimit, q.Limit, int64(algorithm.MaxTokens))
	}
	if q.Zone == nil {
		return nil, fmt.Errorf("%w: Quota.Zone is nil: pass time.UTC, or what time.LoadLocation returns", algorithm.ErrInvalidLimit)
	}
	from := q.From
	if from.IsZero() {
		from = time.Now().AddDate(-1, 0, 0)
	}
	if from.Unix() < 0 || from.Year() > 2100 {
		return nil, fmt.Errorf("%w: Quota.From is %v: it must be from 1970 to 2100", algorithm.ErrInvalidLimit, from)
	}
	offsets, err := offsets(q.Zone, from, from.AddDate(horizon, 0, 0))
	if err != nil {
		return nil, err
	}
	return &limit{q.Limit, store.StringArg(offsets)}, nil
}

// offsets returns the offset of zone at from, and then each change until then:
// its time and the offset after it. All are in microseconds; one day is added to
// offsets, so that none is negative, which moves no midnight.
func offsets(zone *time.Location, from, until time.Time) (string, error) {
	at := from.In(zone)
	_, offset := at.Zone()
	text := strconv.AppendInt(nil, day+int64(offset)*1_000_000, 10)
	for last := (time.Time{}); ; {
		_, change := at.ZoneBounds()
		if change.IsZero() || change.After(until) {
			return string(text), nil
		}
		at = change
		_, after := at.Zone()
		if after == offset {
			continue // another name for the same time
		}
		if change.Sub(last) < 72*time.Hour {
			return "", fmt.Errorf("%w: in Quota.Zone, %v, clocks change twice in three days, at %v", algorithm.ErrInvalidLimit, zone, change)
		}
		offset, last = after, change
		text = strconv.AppendInt(append(text, ' '), change.UnixMicro(), 10)
		text = strconv.AppendInt(append(text, ' '), day+int64(offset)*1_000_000, 10)
	}
}

// midnight returns when the day of now ends, by what offsets returned.
func midnight(offsets string, now int64) int64 {
	number := func() (n int64, ok bool) {
		text, rest, _ := strings.Cut(offsets, " ")
		offsets = rest
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil
	}
	offset, _ := number()
	change, more := number()
	after, _ := number()
	for more && now >= change {
		offset = after
		change, more = number()
		after, _ = number()
	}
	clock := now + offset // what a clock on the wall shows
	clock += day - clock%day
	if edge := clock - offset; !more || edge < change {
		return edge
	}
	return max(change, clock-after) // clocks change first, or skip midnight
}

// Fragment implements [algorithm.Limit].
func (l *limit) Fragment() *algorithm.Fragment { return fragment }

// AppendArgs implements [algorithm.Limit].
func (l *limit) AppendArgs(args []store.Arg, r algorithm.Request) []store.Arg {
	return append(args, store.IntArg(max(l.tokens-r.Cost, -1)), store.IntArg(min(r.Cost, l.tokens)), l.offsets)
}

// Verdict implements [algorithm.Limit].
func (l *limit) Verdict(now int64, committed bool, s algorithm.State, r algorithm.Request) algorithm.Verdict {
	edge, count := s[0], s[1]
	v := algorithm.Verdict{Limit: l.tokens}
	rest := time.Duration(edge-now) * time.Microsecond
	switch {
	case r.Cost > l.tokens:
		v.RetryAfter = algorithm.Never
	case count > l.tokens-r.Cost:
		v.RetryAfter = rest
	default:
		v.Allowed = true
	}
	if committed {
		count += r.Cost
	}
	v.Remaining = max(l.tokens-count, 0)
	if count > 0 {
		v.ResetAfter = rest
	}
	return v
}

// check is the check of dailyquota.lua.
func check(tx store.Tx, key int, now int64, args []store.Arg) (algorithm.State, bool, error) {
	n, ok, err := tx.Get(key, tag)
	if err != nil {
		return algorithm.State{}, false, err
	}
	if ok && n.Len != 2 {
		return algorithm.State{}, false, tx.Foreign(key)
	}
	s := algorithm.State{n.N[0], n.N[1]}
	if now >= s[0] {
		s = algorithm.State{midnight(args[2].String(), now), 0}
	}
	return s, s[1] <= args[0].Int(), nil
}

// commit is the commit of dailyquota.lua.
func commit(tx store.Tx, key int, now int64, args []store.Arg, s algorithm.State, slack time.Duration) {
	// Until the day ends, in whole milliseconds, rounded up.
	tx.Put(key, value(s[0], s[1]+args[1].Int()), time.Duration((s[0]-now+999)/1000)*time.Millisecond+slack)
}

// value is what a key holds: when the day ends, and a count.
func value(edge, count int64) store.Nums {
	return store.Nums{Tag: tag, Len: 2, N: [store.MaxNums]int64{edge, count}}
}

// With fit and take, a Quota can be asked for as much as there is.
func fit(_ int64, args []store.Arg, s algorithm.State) int64 { return args[0].Int() + 1 - s[1] }

func take(args []store.Arg, n int64) { args[1] = store.IntArg(n) }

// With charge and refund, it can be given back what was taken, until the day ends.
func charge(now int64, args []store.Arg, s algorithm.State, _ algorithm.Note) (algorithm.Charge, int64) {
	return algorithm.Charge{s[0], args[1].Int()}, s[0] - now
}

func refund(tx store.Tx, key int, _ int64, _ []store.Arg, s algorithm.State, was algorithm.Charge, _ algorithm.Note) bool {
	if s[0] != was[0] || s[1] == 0 {
		return false
	}
	tx.Put(key, value(s[0], max(s[1]-was[1], 0)), 0) // for as long as before
	return true
}
