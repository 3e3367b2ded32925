package algorithm

import (
	"cmp"
	_ "embed"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// SlidingLog is the sliding window log: it allows at most Limit tokens in any interval of
// length Window, exactly. It stores the time and the cost of each decision. A request is
// allowed if its cost plus the number of tokens in the window is at most Limit. A token
// that was consumed exactly Window ago is not in the window. RetryAfter is the time until
// enough tokens have left the window.
//
// The state is one sorted set with an entry for each decision, whatever it costs: if
// every request costs 1, up to Limit entries. An entry has a running total of the costs.
// So if n entries are in the window, an allowed request reads two of them, and a denied
// request reads O(log n).
//
// A key has at most [MaxLog] entries in the window, and up to one expired entry. If
// MaxLog requests in the window were allowed, the next request is denied until the oldest
// of them leaves the window, even if tokens are left. That can happen only if Limit is
// above MaxLog, or if requests were refunded. Only a Force adds entries beyond MaxLog.
//
// If Limit or Window changes, the new limit applies to the stored tokens. If Window gets
// longer, tokens that had already left the shorter window may be missing, and RetryAfter
// can be longer than the real wait. If the clock steps back, tokens are stored with the
// time of the newest token.
//
// A refund returns the tokens of its decision that are still in the window, and no
// others, after any change of the limit. A refund of the newest decision changes or
// removes its entry. Otherwise the entry stays until it has left the window, even if all
// its tokens were refunded. While a refund of an earlier decision is in the window, every
// request reads O(log n) entries.
//
// Source: "Better Rate Limiting With Redis Sorted Sets" by ClassDojo (2015). The sums of
// refunds are a Fenwick tree: "A New Data Structure for Cumulative Frequency Tables" by
// Fenwick (1994).
type SlidingLog struct {
	// Limit is the largest number of tokens in a window, from 1 to MaxLogTokens.
	Limit int64

	// Window is the length of the window. It must be whole microseconds, from 1 µs to
	// MaxSpan.
	Window time.Duration
}

const (
	// MaxLog is the largest Limit of [MetadataWindow] and [Concurrency], and the largest
	// number of entries in the window of a [SlidingLog].
	MaxLog = 1_000_000

	// MaxLogTokens is the largest Limit of a [SlidingLog], and the largest sum of its
	// Limit and its debt: 2^52-1.
	MaxLogTokens int64 = logMod - 1

	// BEFORE and BACK of an entry are modulo logMod, and NUMBER is modulo logNumbers: see
	// slidinglog.lua.
	logMod, logNumbers = 1 << 52, 1 << 23

	// Expired entries are removed when there are logTrim of them, at most logTrimmed at
	// once.
	logTrim, logTrimmed = 2, 16
)

//go:embed slidinglog.lua
var slidingLogLua string

var slidingLogKind = &contract.StepKind{
	Head: contract.Head{Name: "slidinglog", Tag: store.Tag{'l', '3'}, Cell: "used newest last back", Args: "limit window", Lua: slidingLogLua},
	Sets: true, Locals: "entry number total age dead",
	Step: func(args []store.Arg) contract.Step { return slidingLog{args[0].Int(), args[1].Int()} },
}

// NewLimit implements [Algorithm].
func (s SlidingLog) NewLimit() (*contract.Limit, error) {
	window, err := checkWindow("SlidingLog", s.Limit, MaxLogTokens, s.Window)
	if err != nil {
		return nil, err
	}
	carry := func(to *contract.Limit) contract.Carried {
		limit := s.Limit
		if to.Window > s.Window {
			limit = MaxLogTokens // tokens can count again that had left the shorter window
		}
		return counted(limit, to.Window, "the stored tokens stay")(to)
	}
	return &contract.Limit{Kind: slidingLogKind, Args: consts(s.Limit, window), Capacity: s.Limit, MaxDebt: MaxLogTokens - s.Limit, Window: s.Window, Carry: carry}, nil
}

// Divide implements [Divider].
func (s SlidingLog) Divide(n int64) Algorithm {
	s.Limit /= n
	return s
}

// A slidingLog is the Step of a SlidingLog. Its state is used, newest, last and back, as
// in slidinglog.lua, and three integers that are not in a reply: number, total and age.
type slidingLog struct{ limit, window int64 }

func (l slidingLog) Read(tx store.Tx, key int, now int64, a contract.Ask) (s contract.State, err error) {
	newest, ok, err := logAt(tx, key, 0, logMod-1)
	if err != nil || !ok {
		return s, err
	}
	s = contract.State{1: newest.time}
	if newest.time >= now && newest.number == logNumbers-1 {
		s[1], s[2] = s[1]+1, s[1] // the next NUMBER is 0, so this request is stored one microsecond later
	}
	after := max(s[1], now) - l.window
	if newest.time <= after {
		return s, nil
	}
	live, all, err := tx.Count(key, after)
	if err != nil {
		return s, err
	}
	first, ok, err := logAt(tx, key, live-1, s[1])
	if err != nil || !ok {
		return s, cmp.Or(err, store.ForeignAt(key))
	}
	w := logWalk{tx, key, first, newest, logDistance(newest.number, first.number)}
	s[0], s[4], s[5] = logMinus(newest.total(), first.before), newest.number, newest.total()
	if newest.age <= w.later+1+all-live {
		s[6] = newest.age
	}
	refunds := newest.age > 0 && newest.age <= w.later+1
	if refunds {
		if _, s[0], err = w.to(MaxTokens); err != nil {
			return s, err
		}
		if newest.age == 1 && s[0] > 0 {
			if s[2], _, err = w.to(s[0]); err != nil {
				return s, err
			}
		}
	}
	if a.Cost <= l.limit {
		need, pass := s[0]+a.Cost-l.limit, first.time
		if need > 0 && (refunds || need > first.cost) {
			pass, _, err = w.to(need)
		}
		if need > 0 || w.later >= MaxLog-1 {
			s[3] = pass + l.window
		}
	}
	if w.later >= MaxLog-1 {
		s[0] = max(s[0], l.limit)
	}
	return s, err
}

func (l slidingLog) Room(_ int64, s contract.State, _ contract.Ask) int64 { return l.limit - s[0] }

func (l slidingLog) Write(tx store.Tx, key int, now int64, s contract.State, n int64, _ contract.Ask, gen int64, slack time.Duration) error {
	live, all, err := tx.Count(key, max(s[1], now)-l.window)
	if err != nil {
		return err
	}
	if dead := all - live; live == 0 && all > 0 {
		tx.Del(key)
	} else if dead >= logTrim {
		tx.Trim(key, min(dead, logTrimmed))
	}
	mark, ends := l.Mark(now, s, n, gen)
	e := logEntry{time: mark.A, number: mark.B, before: s[5], cost: n, gen: gen}
	if s[6] > 0 {
		e.age = s[6] + 1
	}
	tx.Add(key, e.member(), contract.TTL(now, ends, slack))
	return nil
}

func (l slidingLog) Answer(now int64, s contract.State, n int64, _ contract.Ask) contract.Answer {
	used, newest, last, back := s[0]+n, s[1], s[2], s[3]
	switch {
	case n > 0:
		last = max(newest, now)
	case last == 0:
		last = newest
	}
	return answer(now, l.limit, l.window, used, back, last+l.window)
}

// answer returns the answer of a limit of which used tokens are consumed. pass is when
// a denied request would be allowed. ends is when the limit is fully reset. If the
// request is allowed, package compose clears RetryAfter.
func answer(now, limit, window, used, pass, ends int64) contract.Answer {
	a := contract.Answer{Limit: limit, Window: contract.Micros(window), Remaining: max(limit-used, 0)}
	a.RetryAfter = contract.Micros(max(pass-now, 1))
	if used > 0 {
		a.ResetAfter = contract.Micros(max(ends-now, 1))
	}
	return a
}

// Mark implements [contract.StepRefunder]. The marker has TIME and NUMBER of the entry.
func (l slidingLog) Mark(now int64, s contract.State, _, _ int64) (contract.Cell, int64) {
	at := max(s[1], now)
	return contract.Cell{A: at, B: (s[4] + 1) % logNumbers}, at + l.window
}

// Refund implements [contract.StepRefunder].
func (l slidingLog) Refund(tx store.Tx, key int, now int64, s contract.State, _ contract.Ask, mark contract.Cell, n, _, gen int64) (bool, error) {
	live, all, err := tx.Count(key, max(s[1], now)-l.window)
	place := logDistance(s[4], mark.B) // counted from the newest entry
	if err != nil || n < 1 || place >= all || mark.A <= max(s[1], now)-l.window {
		return false, err
	}
	// get returns the entry that is i places before the newest.
	get := func(i int64) (logEntry, bool) {
		m, ok, err := tx.At(key, i)
		e, parsed := parseLogEntry(m.Text)
		return e, ok && err == nil && parsed
	}
	mine, ok := get(place)
	newest, found := get(0)
	if !ok || !found || mine.gen != gen || mine.time != mark.A || mine.number != mark.B {
		return false, nil
	}
	var removes, adds []store.Member
	change := func(old, e logEntry) {
		if e != old {
			removes, adds = append(removes, old.member()), append(adds, e.member())
		}
	}
	switch {
	case s[0] <= n && live == all:
		tx.Del(key)
	case place > 0:
		for i := place; i < all; {
			e, ok := get(i)
			if !ok {
				return false, nil
			}
			more := e
			more.back = (e.back + n) % logMod
			change(e, more)
			i += logBit(e.number)
		}
		if s[6] == 0 || s[6] > place+1 {
			e := newest
			e.age = place + 1
			change(newest, e)
		}
	case mine.cost > n:
		e := mine
		e.cost -= n
		change(mine, e)
	default:
		removes = append(removes, mine.member())
		if s[6] > 0 {
			before, ok := get(1)
			if !ok {
				return false, nil
			}
			e := before
			e.age = s[6] - 1
			change(before, e)
		}
	}
	for i := range adds {
		tx.Add(key, adds[i], 0)
	}
	for i := range removes {
		tx.Remove(key, removes[i].Text)
	}
	return true, nil
}
