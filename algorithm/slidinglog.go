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
// time, or all at once when nothing is left in it, so that a key holds fewer
// than twice Limit entries and as many more as Limit says, from 8 to 64.
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
	// MaxLog is the largest Limit of a [SlidingLog] or a [MetadataWindow].
	MaxLog = 1_000_000

	// MaxLogCost is the largest cost of a request to a [SlidingLog].
	MaxLogCost = 1000
)

//go:embed slidinglog.lua
var slidingLogLua string

// logText is the text of a log's entries, behind which its number stands in 16 digits.
const logText = "l1 "

var slidingLogFragment = &Fragment{
	Name:   "slidinglog",
	Lua:    slidingLogLua,
	Args:   6,
	State:  []string{"live", "newest", "back"},
	Sets:   true,
	Check:  slidingLogCheck,
	Commit: slidingLogCommit,
}

type slidingLogLimit struct {
	limit  int64
	window int64
	renew  int64       // the TTL is renewed once in this many microseconds
	trim   int64       // what has left is removed once in this many entries
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
	l := &slidingLogLimit{limit: s.Limit, window: window, renew: (window + 7) / 8, trim: min(max(s.Limit, 8), 64)}
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
	cost := min(r.Cost, l.limit+1)
	return append(args, store.IntArg(l.limit-cost), store.IntArg(cost-l.limit-1),
		store.IntArg(l.window), store.IntArg(cost), store.IntArg(l.renew), store.IntArg(l.trim))
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
	last, ok, err := tx.At(key, -1)
	if err != nil {
		return s, false, err
	}
	if ok {
		if _, ok := logNumber(last); !ok {
			return s, false, tx.Foreign(key)
		}
		s[1] = last.Score
		if s[0], _, err = tx.Count(key, max(last.Score, now)-args[2].Int()); err != nil {
			return s, false, err
		}
	}
	room := args[0].Int()
	if s[0] <= room {
		return s, true, nil
	}
	if room >= 0 {
		leaves, _, err := tx.At(key, args[1].Int())
		if err != nil {
			return s, false, err
		}
		s[2] = leaves.Score + args[2].Int()
	}
	return s, false, nil
}

func slidingLogCommit(tx store.Tx, key int, now int64, args []store.Arg, s State, slack time.Duration) {
	live, newest, at := s[0], s[1], max(s[1], now)
	window, cost, renew, trim := args[2].Int(), args[3].Int(), args[4].Int(), args[5].Int()
	last, _, _ := tx.At(key, -1)
	number, _ := logNumber(last)
	switch {
	case live == 0 && newest > 0:
		tx.Del(key)
		number, newest = 0, 0
	case number%trim+cost >= trim:
		if _, all, _ := tx.Count(key, 0); all > live {
			tx.Trim(key, min(all-live, cost+trim))
		}
	}
	for i := range cost {
		tx.Add(key, store.Member{Score: at, Text: fmt.Sprintf(logText+"%016d", number+i+1)})
	}
	if newest < at-at%renew {
		tx.Expire(key, ttl(at+window+renew-now, slack))
	}
}

// logNumber is the number of an entry of a log, false if it is none.
func logNumber(m store.Member) (int64, bool) {
	digits, ok := strings.CutPrefix(m.Text, logText)
	n, err := strconv.ParseUint(digits, 10, 53)
	return int64(n), ok && err == nil
}
