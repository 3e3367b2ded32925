// Package dailyquota is an example of an algorithm that is not part of package algorithm: a
// number of tokens per day, which is reset at midnight in the caller's time zone:
//
//	lim, err := weir.New("api", st, dailyquota.Quota{Limit: 1000, Zone: time.UTC}, nil)
//
// The algorithm can be combined with the built-in algorithms, and runs on every store. A test
// of a few lines checks it with [github.com/weir-go/weir/conformance.RunAlgorithm].
//
// The example shows how the constants of a limit can hold a table. For a quota in a time zone,
// use [github.com/weir-go/weir/algorithm.Calendar], which needs no From.
package dailyquota

import (
	_ "embed"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// A Quota allows Limit tokens each day, from midnight to midnight in Zone. If the clocks
// change, a day has 23 or 25 hours. If the clocks skip midnight, a day starts at one o'clock.
// RetryAfter is the time until the day ends.
//
// If callers live in several zones, make a limiter for each zone with
// [github.com/weir-go/weir.Limiter.With].
//
// The clock of the decision, by default the store's clock, determines the day. NewLimit looks
// up the changes of the time zone in ten years, from the field From on. Outside of these
// years, it uses the first or the last offset, so a day can start one hour early or late.
//
// In debt, the count is above Limit, and the debt ends with the day.
//
// If Limit or Zone changes, the current day keeps its count and its end. If the clock steps
// back to before midnight, the new day stays the current one.
type Quota struct {
	// Limit is the number of tokens in a day, from 1 to contract.MaxTokens.
	Limit int64

	// Zone is the time zone of the caller.
	Zone *time.Location

	// From is the start of the ten years, from 1970 to 2100. The zero time means one
	// year before the call of NewLimit. If requests have an ID, set the same From in all
	// processes: otherwise a process may not recognize the request of another.
	From time.Time
}

const (
	day     = 24 * 3600 * 1_000_000 // microseconds
	horizon = 10                    // years
)

//go:embed dailyquota.lua
var lua string

// kind is the Kind of all quotas, in all zones.
var kind = &contract.MeterKind{
	Head:     contract.Head{Name: "dailyquota", Tag: store.Tag{'d', '2'}, Cell: "edge count", Args: "limit offsets:text", Lua: lua},
	Absolute: true,
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
		return nil, contract.Invalid("Quota.Zone is nil: it must be a time zone, for example time.UTC, or a result of time.LoadLocation")
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
	return &contract.Limit{Kind: kind, Args: args, Capacity: q.Limit, MaxDebt: contract.MaxTokens - q.Limit, Window: 24 * time.Hour}, nil
}

// offsets returns a text: the offset of zone at from, and then the time of each change until
// until, with the offset after it. All numbers are in microseconds. One day is added to each
// offset, so that no offset is negative. That does not change when midnight is.
func offsets(zone *time.Location, from, until time.Time) (string, error) {
	at := from.In(zone)
	_, offset := at.Zone()
	text := strconv.AppendInt(nil, day+int64(offset)*1_000_000, 10)
	for last := (time.Time{}); ; {
		_, change := at.ZoneBounds()
		if !change.IsZero() && !change.After(at) { // on the last day of a leap year: for ZoneBounds, each year has 365 days
			change = at.AddDate(0, 0, 1)
		}
		if change.IsZero() || change.After(until) {
			return string(text), nil
		}
		at = change
		_, after := at.Zone()
		if after == offset {
			continue // only the name of the offset changes
		}
		if change.Sub(last) < 72*time.Hour {
			return "", contract.Invalid("Quota.Zone is %v: its clocks change twice within three days, at %v: choose a zone in which changes are at least three days apart", zone, change)
		}
		offset, last = after, change
		text = strconv.AppendInt(append(text, ' '), change.UnixMicro(), 10)
		text = strconv.AppendInt(append(text, ' '), day+int64(offset)*1_000_000, 10)
	}
}

// midnight returns when the day of now ends. The text is the result of offsets.
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
	clock := now + offset // the local time
	clock += day - clock%day
	if edge := clock - offset; !more || edge < change {
		return edge
	}
	return max(change, clock-after) // clocks change before midnight, or skip midnight
}

// A meter is the Meter of a Quota. Its cell has the integers edge and count: when the day
// ends, and the number of tokens consumed in it. It is dailyquota.lua in Go.
type meter struct {
	limit   int64
	offsets string
}

// Advance implements [contract.Meter].
func (m meter) Advance(now int64, c contract.Cell) contract.Cell {
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
