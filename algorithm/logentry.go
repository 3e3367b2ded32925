package algorithm

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-go/weir/store"
)

// A logEntry is an entry of a sorted set: see slidinglog.lua.
type logEntry struct{ time, number, before, cost, gen, back, age int64 }

// total returns the tokens consumed up to and including the entry.
func (e logEntry) total() int64 { return (e.before + e.cost) % logMod }

func (e logEntry) member() store.Member {
	b := fmt.Appendf(make([]byte, 0, 64), "l3 %016d %07d %d %d", e.time, e.number, e.before, e.cost)
	if e.gen > 0 || e.back > 0 || e.age > 0 {
		b = fmt.Appendf(b, " %d %d %d", e.gen, e.back, e.age)
	}
	return store.Member{Score: e.time, Text: string(b)}
}

// logMinus returns a-b modulo logMod.
func logMinus(a, b int64) int64 { return (a - b) & (logMod - 1) }

// logDistance returns how many entries after b the entry a is.
func logDistance(a, b int64) int64 { return (a - b) & (logNumbers - 1) }

// logBit returns the number of entries in the block of an entry: the largest power of two
// that divides its NUMBER.
func logBit(number int64) int64 { return (number | logNumbers) & -(number | logNumbers) }

// logAt returns an entry. fromEnd counts from the end. TIME must be at most latest. ok is
// false if there is no such entry.
func logAt(tx store.Tx, key int, fromEnd, latest int64) (e logEntry, ok bool, err error) {
	m, ok, err := tx.At(key, fromEnd)
	if err != nil || !ok {
		return e, false, err
	}
	if e, ok = parseLogEntry(m.Text); !ok || e.time > latest {
		return e, false, store.ForeignAt(key)
	}
	return e, true, nil
}

// parseLogEntry returns the entry with this text. ok is false if it is no entry.
func parseLogEntry(text string) (e logEntry, ok bool) {
	rest, ok := strings.CutPrefix(text, "l3")
	var n [7]int64
	count := 0
	for ; ok && rest != ""; count++ { // like store.ParseNums, but with leading zeros
		if count == len(n) || rest[0] != ' ' {
			return e, false
		}
		i, v := 1, int64(0)
		for ; i < len(rest) && '0' <= rest[i] && rest[i] <= '9'; i++ {
			if v = v*10 + int64(rest[i]-'0'); v > MaxTokens {
				return e, false
			}
		}
		if i == 1 {
			return e, false
		}
		n[count], rest = v, rest[i:]
	}
	e = logEntry{n[0], n[1], n[2], n[3], n[4], n[5], n[6]}
	ok = count == 4 || count == 7
	return e, ok && e.time < logMod && e.number < logNumbers && e.before < logMod && e.age < logNumbers
}

// A logWalk walks over the entries in the window. first is the oldest of them, and later
// is the number of entries after it.
type logWalk struct {
	tx            store.Tx
	key           int
	first, newest logEntry
	later         int64
}

// get returns entry i, counted from the first, which is 0.
func (w *logWalk) get(i int64) (logEntry, error) {
	e, ok, err := logAt(w.tx, w.key, w.later-i, w.newest.time)
	if err == nil && (!ok || logDistance(e.number, w.first.number) != i) {
		err = store.ForeignAt(w.key)
	}
	return e, err
}

// to returns TIME of the first entry that makes the tokens of the entries up to it at
// least need. If there is none, it returns 0. sum is then the number of all tokens.
func (w *logWalk) to(need int64) (at, sum int64, err error) {
	e, i := w.first, int64(0)
	for {
		bit, end := logBit(e.number), w.newest.total()
		var next logEntry
		if i+bit <= w.later {
			if next, err = w.get(i + bit); err != nil {
				return 0, 0, err
			}
			end = next.before
		}
		block := logMinus(end-e.before, e.back)
		if sum+block >= need {
			return w.within(e, i, bit, need-sum)
		}
		sum += block
		if i += bit; i > w.later {
			return 0, sum, nil
		}
		e = next
	}
}

// within is to for the block of bit entries that begins with e, which is entry i.
func (w *logWalk) within(e logEntry, i, bit, need int64) (at, sum int64, err error) {
	for bit /= 2; bit > 0; bit /= 2 {
		if i+bit > w.later {
			continue
		}
		next, err := w.get(i + bit)
		if err != nil {
			return 0, 0, err
		}
		half := logMinus(next.before-e.before, e.back-next.back)
		if half >= need {
			e.back -= next.back
		} else {
			e, i, need = next, i+bit, need-half
		}
	}
	return e.time, 0, nil
}

// parseDigits parses an integer from 0 to 2^53-1, which has only digits.
func parseDigits(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 53)
	return int64(n), err == nil
}
