package algorithm

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// SlidingLog is the sliding window log: it allows at most Limit tokens in any interval of
// length Window, exactly. It stores the time of each token. A request is allowed if its
// cost plus the number of tokens in the window is at most Limit. A token that was consumed
// exactly Window ago is not in the window. RetryAfter is the time until enough tokens have
// left the window.
//
// A request can cost at most MaxLogCost tokens. TakeUpTo consumes at most MaxLogCost.
//
// The state is one sorted set with an entry for each token, so memory grows with Limit.
// The work of a request grows with its cost. Expired entries are removed a few at a
// time, or all at once if all entries have expired. So a key has up to 15 entries more
// than Limit, or up to 3 more if Limit is at most 5.
//
// In debt, more than Limit tokens are in the window, by at most MaxLogCost, and the key has an
// entry for each of them.
//
// If Limit or Window changes, the stored tokens stay, and the new limit applies to them.
// If Window gets longer, some older tokens may already be removed. If the clock steps
// back, tokens are stored with the time of the newest token. A refund removes the tokens of
// its decision that are still in the window, and no others.
//
// Source: "Better Rate Limiting With Redis Sorted Sets" by ClassDojo (2015).
type SlidingLog struct {
	// Limit is the largest number of tokens in a window, from 1 to MaxLog.
	Limit int64

	// Window is the length of the window. It must be whole microseconds, from 1 µs to
	// MaxSpan.
	Window time.Duration
}

const (
	// MaxLog is the largest Limit of [SlidingLog], [MetadataWindow] and [Concurrency].
	MaxLog = 1_000_000

	// MaxLogCost is the largest cost of a request to a [SlidingLog], and its largest
	// debt.
	MaxLogCost = 1000

	// maxLogForce is the most tokens that a request can consume: a limit of MaxLogCost
	// can go into debt by as many tokens.
	maxLogForce = 2 * MaxLogCost

	// maxLogNumber is the largest NUMBER of an entry: see slidinglog.lua.
	maxLogNumber = 99_999_999

	// If the limit is at most shortLog, up to shortRead entries are read at once.
	// Expired entries are removed when there are shortTrim of them, or longTrim if the
	// limit is higher.
	shortLog, shortRead, shortTrim, longTrim = 5, 8, 4, 16
)

//go:embed slidinglog.lua
var slidingLogLua string

var slidingLogKind = &contract.Kind{
	Name: "slidinglog", Tag: store.Tag{'l', '2'}, Sets: true,
	Cell: "live newest back", Args: "limit:text window", Locals: "log number span short",
	Lua:  slidingLogLua,
	Step: func(args []store.Arg) contract.Step { return slidingLog{args[0].Int(), args[1].Int()} },
}

// NewLimit implements [Algorithm].
func (s SlidingLog) NewLimit() (*contract.Limit, error) {
	if s.Limit < 1 || s.Limit > MaxLog {
		return nil, contract.Invalid("SlidingLog.Limit is %d: it must be from 1 to %d", s.Limit, int64(MaxLog))
	}
	window, err := contract.WholeMicros("SlidingLog.Window", s.Window)
	if err != nil {
		return nil, err
	}
	l := &contract.Limit{Kind: slidingLogKind, Args: consts(s.Limit, window), Capacity: s.Limit, MaxDebt: MaxLogCost, Window: s.Window}
	if s.Limit > MaxLogCost {
		l.MaxCost = MaxLogCost
	}
	return l, nil
}

// A slidingLog is the Step of a SlidingLog. Its state is live, newest and back, as in
// slidinglog.lua, and number, which is not in a reply.
type slidingLog struct{ limit, window int64 }

func (l slidingLog) Read(tx store.Tx, key int, now int64, a contract.Ask) (s contract.State, err error) {
	newest, rest, ok, err := logEntry(tx, key, 0, MaxSpan-1)
	if err != nil || !ok {
		return s, err
	}
	digits, gen, _ := strings.Cut(rest, " ")
	number, counts := parseDigits(digits)
	switch {
	case !counts || number > maxLogNumber || strings.Trim(gen, "0123456789") != "":
		return s, store.ForeignAt(key)
	case newest < now:
		number = 0
	case number > maxLogNumber-maxLogForce:
		newest, number = newest+1, 0 // NUMBER cannot count another request
	}
	after := max(newest, now) - l.window
	live, all, err := tx.Count(key, after)
	if err != nil {
		return s, err
	}
	if l.limit <= shortLog {
		counted := live
		if live = min(all, shortRead); newest <= after {
			live = 0
		}
		for at := int64(0); live > 1; live-- {
			if at, _, _, err = logEntry(tx, key, live-1, newest); err != nil || at > after {
				break
			}
		}
		if live == shortRead {
			live = counted // the limit is in debt
		}
	}
	s = contract.State{live, newest, 0, number}
	if rank := l.limit - a.Cost; err == nil && live > rank && rank >= 0 {
		s[2], _, _, err = logEntry(tx, key, rank, newest)
		s[2] += l.window
	}
	return s, err
}

// logEntry returns the TIME of an entry, and the text after it. fromEnd counts entries from
// the end. TIME must be at most latest. ok is false if there is no such entry.
func logEntry(tx store.Tx, key int, fromEnd, latest int64) (at int64, rest string, ok bool, err error) {
	m, ok, err := tx.At(key, fromEnd)
	if err != nil || !ok {
		return 0, "", false, err
	}
	rest, tagged := strings.CutPrefix(m.Text, "l2 ")
	digits, rest, found := strings.Cut(rest, " ")
	at, counts := parseDigits(digits)
	if !tagged || !found || !counts || at > latest {
		return 0, "", false, store.ForeignAt(key)
	}
	return at, rest, true, nil
}

// parseDigits parses an integer from 0 to 2^53-1, which has only digits.
func parseDigits(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 53)
	return int64(n), err == nil
}

// logText returns the text of an entry. gen is 0 for a decision without a marker.
func logText(at, number, gen int64) string {
	if gen > 0 {
		return fmt.Sprintf("l2 %016d %08d %d", at, number, gen)
	}
	return fmt.Sprintf("l2 %016d %08d", at, number)
}

func (l slidingLog) Room(_ int64, s contract.State, _ contract.Ask) int64 {
	return min(l.limit-s[0], MaxLogCost)
}

func (l slidingLog) Write(tx store.Tx, key int, now int64, s contract.State, n int64, _ contract.Ask, gen int64, slack time.Duration) error {
	_, all, err := tx.Count(key, 0)
	if err != nil {
		return err
	}
	few, live := int64(longTrim), s[0]
	if l.limit <= shortLog && live <= shortRead-shortTrim {
		all, few = min(all, shortRead), shortTrim
	}
	if live == 0 {
		tx.Del(key)
	} else if dead := all - live; dead >= few {
		tx.Trim(key, min(dead, n+few))
	}
	first, ends := l.Mark(now, s, n, gen)
	for i := range n {
		tx.Add(key, store.Member{Score: first.A, Text: logText(first.A, first.B+i, gen)}, contract.TTL(now, ends, slack))
	}
	return nil
}

func (l slidingLog) Answer(now int64, s contract.State, n int64, _ contract.Ask) contract.Answer {
	live, newest, back := s[0]+n, s[1], s[2]
	if n > 0 {
		newest = max(newest, now)
	}
	return answer(now, l.limit, l.window, live, back, newest+l.window)
}

// answer returns the answer of a limit from which used tokens are consumed. pass is when a
// denied request would be allowed. ends is when the limit is fully reset. If the request is
// allowed, package compose clears RetryAfter.
func answer(now, limit, window, used, pass, ends int64) contract.Answer {
	a := contract.Answer{Limit: limit, Window: contract.Micros(window), Remaining: max(limit-used, 0)}
	a.RetryAfter = contract.Micros(max(pass-now, 1))
	if used > 0 {
		a.ResetAfter = contract.Micros(max(ends-now, 1))
	}
	return a
}

// Mark implements [contract.StepRefunder]. The marker has TIME and NUMBER of the first entry.
func (l slidingLog) Mark(now int64, s contract.State, _, _ int64) (contract.Cell, int64) {
	at := max(s[1], now)
	return contract.Cell{A: at, B: s[3] + 1}, at + l.window
}

// Refund implements [contract.StepRefunder].
func (l slidingLog) Refund(tx store.Tx, key int, now int64, s contract.State, _ contract.Ask, mark contract.Cell, n, keep, gen int64) (bool, error) {
	var held []string
	for i := range min(n, maxLogForce) {
		text := logText(mark.A, mark.B+keep+i, gen)
		_, ok, err := tx.Score(key, text)
		if err != nil {
			return false, err
		}
		if ok && mark.A > max(s[1], now)-l.window {
			held = append(held, text)
		}
	}
	for _, text := range held {
		tx.Remove(key, text)
	}
	return len(held) > 0, nil
}
