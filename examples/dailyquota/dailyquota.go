// Package dailyquota is an algorithm that is not part of the module: a number of tokens
// per day, which resets at midnight in the caller's time zone. It is an example of package
// contract: it is composed with the built-in algorithms, runs on every store, and is
// proven by [github.com/weir-go/weir/conformance.RunAlgorithm] in a test of a few lines.
package dailyquota

import (
	_ "embed"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// A Quota allows Limit tokens each day, from midnight to midnight in Zone. A day has 23
// or 25 hours if the clocks change, and begins at one o'clock if they skip midnight.
//
// A denied request passes when the day ends. If the clock steps back behind midnight, the
// new day goes on. If Limit or Zone changes under a live key, the current day keeps its
// count and its end.
//
// Callers in several zones share one limiter: [github.com/weir-go/weir.Limiter.With] makes
// a limiter of each zone.
//
// The clock of the decision, by default the store's, says what day it is. NewLimit uses the
// process's clock only to look up ten years of time zone changes. Before and after these
// years the first and the last offset are used, so a day can then begin an hour off.
type Quota struct {
	// Limit is how many tokens a day has, from 1 to contract.MaxTokens.
	Limit int64

	// Zone is the time zone of the caller.
	Zone *time.Location

	// From is when the ten years begin, from 1970 to 2100. The zero time means one
	// year before NewLimit is called.
	From time.Time
}

const (
	day     = 24 * 3600 * 1_000_000 // microseconds
	horizon = 10                    // years
)

//go:embed dailyquota.lua
var lua string

// kind is shared by the quotas of all zones.
var kind = &contract.Kind{
	Name: "dailyquota", Tag: store.Tag{'d', '2'}, Cell: "edge count",
	Args: "limit offsets:text", Lua: lua, Absolute: true,
	Meter: func(args []store.Arg) contract.Meter {
		return meter{limit: args[0].Int(), offsets: args[1].String()}
	},
}

// NewLimit implements [algorithm.Algorithm].
func (q Quota) NewLimit() (*contract.Limit, error) {
	if q.Limit < 1 || q.Limit > contract.MaxTokens {
		return nil, contract.Invalid("Quota.Limit is %d: it must be from 1 to %d", q.Limit, int64(contract.MaxTokens))
	}
	if q.Zone == nil {
		return nil, contract.Invalid("Quota.Zone is nil: pass time.UTC, or what time.LoadLocation returns")
	}
	from := q.From
	if from.IsZero() {
		from = time.Now().AddDate(-1, 0, 0)
	}
	if from.Unix() < 0 || from.Year() > 2100 {
		return nil, contract.Invalid("Quota.From is %v: it must be from 1970 to 2100", from)
	}
	offsets, err := offsets(q.Zone, from, from.AddDate(horizon, 0, 0))
	if err != nil {
		return nil, err
	}
	args := []store.Arg{store.ConstArg(q.Limit), store.StringArg(offsets)}
	return &contract.Limit{Kind: kind, Args: args, Capacity: q.Limit, Window: 24 * time.Hour}, nil
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
			return "", contract.Invalid("in Quota.Zone, %v, clocks change twice in three days, at %v", zone, change)
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

// A meter works on cells of edge and count: when the day ends, and the tokens consumed
// in it. It is dailyquota.lua in Go.
type meter struct {
	limit   int64
	offsets string
}

// Settle implements [contract.Meter].
func (m meter) Settle(now int64, c contract.Cell) contract.Cell {
	if now >= c.A {
		c = contract.Cell{A: midnight(m.offsets, now)}
	}
	return c
}

// Room implements [contract.Meter].
func (m meter) Room(_, _ int64, c contract.Cell) int64 { return m.limit - c.B }

// Take implements [contract.Meter].
func (m meter) Take(c contract.Cell, n int64) contract.Cell {
	c.B += n
	return c
}

// Ends implements [contract.Meter].
func (m meter) Ends(c contract.Cell) int64 { return c.A }

// Ready implements [contract.Meter].
func (m meter) Ready(_ int64, c contract.Cell, _, _ int64) int64 { return c.A }

// Refund implements [contract.Refunder].
func (m meter) Refund(_ int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
	if c.A == ch.Was.A {
		if c.B = max(c.B-ch.N, 0); c.B == 0 {
			c.A = 0
		}
	}
	return c, note
}
