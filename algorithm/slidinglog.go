package algorithm

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/store"
)

// SlidingLog allows Limit tokens in any span of Window, exactly: it remembers
// when each token was taken. A token taken exactly Window ago no longer counts.
//
// It costs memory for each token, and as much work for a request as the request
// has tokens: at most MaxLogCost. What left the window is removed a few at a
// time, or all at once when nothing is left in it, so that a key holds at most 15
// entries more than Limit, and at most 3 if Limit is up to 5.
//
// A denied request passes when as many tokens have left the window as it lacks.
// If the clock steps back, tokens are taken at the time of the newest. If Limit
// or Window changes under a live key, its tokens are judged by the new one;
// those that had left a shorter Window may be gone.
type SlidingLog struct {
	// Limit is the most tokens in a Window, from 1 to MaxLog.
	Limit int64

	// Window is its length: whole microseconds, from 1 µs to MaxSpan.
	Window time.Duration
}

const (
	// MaxLog is the largest Limit of a [SlidingLog], a [MetadataWindow] or a
	// [Concurrency].
	MaxLog = 1_000_000

	// MaxLogCost is the largest cost of a request to a [SlidingLog].
	MaxLogCost = 1000
)

//go:embed slidinglog.lua
var slidingLogLua string

const (
	// logText is how the text of a log's entries begins.
	logText = "l1 "

	// logDigits is how many digits the number has in which the text ends.
	logDigits = 8

	// A log of a limit up to shortLog is read as a whole, which is no more than
	// the newest shortRead entries.
	shortLog, shortRead = 5, 8

	// When so many entries have left, some are removed.
	shortTrim, longTrim = 4, 16
)

var slidingLogFragment = &Fragment{
	Name:   "slidinglog",
	Lua:    slidingLogLua,
	Args:   3,
	State:  []string{"live", "newest", "back"},
	Sets:   true,
	Check:  slidingLogCheck,
	Commit: slidingLogCommit,
	Fit:    slidingLogFit,
	Take:   slidingLogTake,
	Charge: slidingLogCharge,
	Refund: slidingLogRefund,
}

type slidingLogLimit struct {
	limit  int64
	window int64
	one    []store.Arg // for cost 1
}

// NewLimit implements [Algorithm].
func (s SlidingLog) NewLimit() (Limit, error) {
	if s.Limit < 1 || s.Limit > MaxLog {
		return nil, invalid("SlidingLog.Limit is %d: it must be from 1 to %d", s.Limit, int64(MaxLog))
	}
	window, err := wholeMicros("SlidingLog.Window", s.Window)
	if err != nil {
		return nil, err
	}
	l := &slidingLogLimit{limit: s.Limit, window: window}
	l.one = constArgs(l.AppendArgs(nil, Request{Cost: 1}))
	return l, nil
}

func (l *slidingLogLimit) Fragment() *Fragment { return slidingLogFragment }

// CheckRequest implements [RequestChecker].
func (l *slidingLogLimit) CheckRequest(r Request) error {
	if r.Cost > MaxLogCost && r.Cost <= l.limit {
		return fmt.Errorf("%w: %d tokens at once in a SlidingLog, which takes at most %d", ErrInvalidCost, r.Cost, int64(MaxLogCost))
	}
	return nil
}

func (l *slidingLogLimit) AppendArgs(args []store.Arg, r Request) []store.Arg {
	if r.Cost == 1 && l.one != nil {
		return append(args, l.one...)
	}
	return append(args, store.IntArg(l.limit), store.IntArg(min(r.Cost, l.limit+1)), store.IntArg(l.window))
}

func (l *slidingLogLimit) Verdict(now int64, committed bool, s State, r Request) Verdict {
	live, newest, back := s[0], s[1], s[2]
	v := Verdict{Limit: l.limit}
	switch {
	case r.Cost > l.limit:
		v.RetryAfter = Never
	case live > l.limit-r.Cost:
		v.RetryAfter = micros(max(back-now, 1))
	default:
		v.Allowed = true
	}
	if committed {
		live, newest = live+r.Cost, max(newest, now)
	}
	v.Remaining = max(l.limit-live, 0)
	if live > 0 {
		v.ResetAfter = micros(max(newest+l.window-now, 1))
	}
	return v
}

func slidingLogCheck(tx store.Tx, key int, now int64, args []store.Arg) (State, bool, error) {
	var s State
	limit, cost, window := args[0].Int(), args[1].Int(), args[2].Int()
	last, ok, err := tx.At(key, -1)
	if err != nil {
		return s, false, err
	}
	if ok {
		if !isLogText(last.Text) {
			return s, false, tx.Foreign(key)
		}
		s[1] = last.Score
		if s[0], _, err = tx.Count(key, max(last.Score, now)-window); err != nil {
			return s, false, err
		}
		if limit <= shortLog {
			s[0] = min(s[0], shortRead)
		}
	}
	room := limit - cost
	if s[0] <= room {
		return s, true, nil
	}
	if room >= 0 {
		leaves, _, err := tx.At(key, -1-room)
		if err != nil {
			return s, false, err
		}
		s[2] = leaves.Score + window
	}
	return s, false, nil
}

func slidingLogCommit(tx store.Tx, key int, now int64, args []store.Arg, s State, slack time.Duration) {
	live, newest, at := s[0], s[1], max(s[1], now)
	limit, cost, window := args[0].Int(), args[1].Int(), args[2].Int()
	number := int64(0)
	if at == newest {
		last, _, _ := tx.At(key, -1)
		number = logNumber(last.Text)
	}
	if live > 0 {
		_, all, _ := tx.Count(key, 0)
		few := int64(longTrim)
		if limit <= shortLog {
			all, few = min(all, shortRead), shortTrim
		}
		if dead := all - live; dead >= few {
			tx.Remove(key, 0, min(dead, cost+few))
		}
	} else if newest > 0 {
		tx.Del(key)
	}
	for i := range cost {
		tx.Add(key, store.Member{Score: at, Text: fmt.Sprintf(logText+"%d %0*d", at, logDigits, number+i+1)})
	}
	tx.Expire(key, ttl(at+window-now, slack))
}

// isLogText reports whether text begins as that of a log's entry does: as far as
// every decision looks.
func isLogText(text string) bool {
	rest, ok := strings.CutPrefix(text, logText)
	digits, _, more := strings.Cut(rest, " ")
	return ok && more && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// logNumber is the number in which the text of an entry ends.
func logNumber(text string) int64 {
	n, err := strconv.ParseUint(text[max(len(text)-logDigits, 0):], 10, 63)
	if err != nil {
		return 0
	}
	return int64(n)
}

func slidingLogFit(_ int64, args []store.Arg, s State) int64 {
	return min(args[0].Int()-s[0], MaxLogCost)
}

func slidingLogTake(args []store.Arg, n int64) { args[1] = store.IntArg(n) }

// slidingLogCharge is the time of the entries, and their number.
func slidingLogCharge(now int64, args []store.Arg, s State, _ Note) (Charge, int64) {
	at := max(s[1], now)
	return Charge{at, args[1].Int()}, at + args[2].Int() - now
}

func slidingLogRefund(tx store.Tx, key int, now int64, args []store.Arg, s State, was Charge, _ Note) bool {
	if was[0] <= max(s[1], now)-args[2].Int() {
		return false
	}
	later, all, _ := tx.Count(key, was[0])
	since, _, _ := tx.Count(key, was[0]-1)
	these := min(since-later, was[1])
	if these > 0 {
		tx.Remove(key, all-later-these, these)
	}
	return these > 0
}
