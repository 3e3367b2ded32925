package algorithm

import (
	"cmp"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// A Period is the length of the periods of a [Calendar].
type Period string

// The periods of a [Calendar].
const (
	Day     Period = "day"
	Week    Period = "week"
	Month   Period = "month"
	Quarter Period = "quarter"
	Year    Period = "year"
)

// Calendar allows Limit tokens in each period of the calendar: a day, a week, a month, a
// quarter or a year in a time zone. This is a month that starts on the 17th in Berlin:
//
//	algorithm.Calendar{Limit: 1000, Every: algorithm.Month, Day: 17, Zone: "Europe/Berlin"}
//
// RetryAfter is the time until the period ends. So is ResetAfter, unless nothing was
// consumed in the period: it is then 0. Up to twice Limit tokens can be consumed
// around the end of a period: Limit just before the end, and Limit just after it.
//
// With a Carry, what is left of a period carries over to the next one:
//
//	algorithm.Calendar{Limit: 100, Every: algorithm.Month, Carry: 40}
//
// A month opens with 100 tokens, plus those left of the previous month, at most 40. A key
// that is new, or was not used in the previous month, opens with 140, and after a debt a
// month opens with 100. Result.Limit is 140, and tokens that did not carry over count as
// consumed. For a cost above 100, RetryAfter can be the time until the end of the next
// month. ResetAfter is the time until a month opens with 140, or 0 if all 140 are left.
//
// A period starts at the first instant at which a clock in the zone shows its start or a
// later time. So where clocks are changed, a day can have 23 or 25 hours. A day whose
// midnight is skipped starts when the clocks are set forward, and a midnight that occurs
// twice counts once. The store's clock, or Options.Clock, determines the period.
//
// The state is one string. Result.Window is the longest period, without changes of
// clocks: 24 hours, 7, 31, 92 or 366 days.
//
// The time zone data of a process, from 1970 to 2112, is part of the script, and a server
// keeps every script in memory: about 8 kB for each zone and method, or 20 kB with a
// Carry. A process reads a zone once. After a government has changed a zone, processes can
// have different data. The current period then keeps its stored end, and the process that
// makes the first decision of a period determines its end.
//
// Force can raise the count above Limit plus Carry. The debt ends with the period.
//
// If any field changes, the current period keeps its end and its count. The next period
// ends as the new fields say, so it can be short: for example, after a change of Zone, up
// to Limit more tokens can be consumed within hours. If the clock steps back, the period
// lasts until the clock reaches its end again.
//
// A refund returns the tokens of a decision while its period lasts. With a Carry, it
// returns none if Limit, Every, Month, Day or At has changed since, or Carry from or to 0.
//
// Source: the billing periods of payment providers, where the 31st is the last day of a
// shorter month.
type Calendar struct {
	// Limit is the number of tokens in a period, from 1 to MaxTokens.
	Limit int64

	// Every is the length of a period: Day, Week, Month, Quarter or Year.
	Every Period

	// Zone is the time zone, by its name in the IANA database: "America/New_York". Use
	// the name of a place: "EST" never changes its clocks. The empty string is UTC.
	// "Local" is not valid, because processes can differ in it.
	Zone string

	// Month is the month in which a Quarter or a Year starts. 0 means January. For other
	// periods, it must be 0.
	Month time.Month

	// Day is the day on which a period starts. For a Week, it is from 1 (Monday) to 7
	// (Sunday), and must be set. For a Month, a Quarter or a Year, it is the day of the
	// month, from 1 to 31, or the last day of the month if the month is shorter. 0 means
	// 1. For a Day, it must be 0.
	Day int `weirfile:"day"`

	// At is the time of day at which a period starts, as a clock in the zone shows it:
	// 6*time.Hour is six o'clock. It must be whole microseconds, below 24 hours. 0 means
	// midnight.
	At time.Duration `weirfile:"clock"`

	// Carry is the most tokens that carry over from one period to the next, from 0 to
	// Limit. Limit plus Carry is at most MaxTokens.
	Carry int64
}

// day is the length of a day in microseconds, without changes of clocks.
const day = 24 * 3600 * 1_000_000

// A period has what a Calendar needs to know about a Period.
type period struct {
	every  int64 // the length: 1, 3 or 12 months, or the microseconds of a day or a week
	days   int64 // the longest, in days
	maxDay int   // the highest value of Calendar.Day
	month  bool  // Calendar.Month can be set
}

var periods = map[Period]period{
	Day:     {every: day, days: 1},
	Week:    {every: 7 * day, days: 7, maxDay: 7},
	Month:   {every: 1, days: 31, maxDay: 31},
	Quarter: {every: 3, days: 92, maxDay: 31, month: true},
	Year:    {every: 12, days: 366, maxDay: 31, month: true},
}

// NewLimit implements [Algorithm].
func (c Calendar) NewLimit() (*contract.Limit, error) {
	p := periods[c.Every]
	if err := c.check(p); err != nil {
		return nil, err
	}
	name := cmp.Or(c.Zone, "UTC")
	z, err := zoneOf(name)
	if err != nil {
		return nil, err
	}
	shift, first := c.At.Microseconds(), int64(0)
	switch c.Every {
	case Day:
		shift = 2*day - shift
	case Week: // 5 January 1970 was a Monday
		shift = p.every + (10-int64(c.Day))%7*day + day - shift
	default:
		shift += int64(max(c.Day, 1)-1) * day
		first = int64(max(c.Month, time.January)-time.March+12) % p.every
	}
	kind, args := z.kind, append(consts(c.Limit, p.every, shift, first), store.StringArg(name))
	if c.Carry > 0 {
		kind, args = z.carries, append(args, store.ConstArg(c.Carry))
	}
	window, most := time.Duration(p.days)*24*time.Hour, c.Limit+c.Carry
	return &contract.Limit{
		Kind: kind, Args: args, Capacity: most, MaxDebt: MaxTokens - most, Window: window,
		Carry: counted(most, window, "the count and the end of the current period stay"),
	}, nil
}

// check checks the fields other than Zone. p describes Every.
func (c Calendar) check(p period) error {
	switch {
	case c.Limit < 1 || c.Limit > MaxTokens:
		return contract.Invalid("Calendar.Limit is %d: it must be from 1 to %d", c.Limit, int64(MaxTokens))
	case p.every == 0:
		return contract.Invalid("Calendar.Every is %q: it must be algorithm.Day, Week, Month, Quarter or Year", c.Every)
	case c.Every == Day && c.Day != 0:
		return contract.Invalid("Calendar.Day is %d: it must be 0, because every day is a period", c.Day)
	case c.Every == Week && (c.Day < 1 || c.Day > 7):
		return contract.Invalid("Calendar.Day is %d: it must be the day on which a week starts, from 1 (Monday) to 7 (Sunday)", c.Day)
	case c.Day < 0 || c.Day > p.maxDay:
		return contract.Invalid("Calendar.Day is %d: it must be the day of the month on which a %s starts, from 1 to 31, or 0 for the first day", c.Day, c.Every)
	case !p.month && c.Month != 0:
		return contract.Invalid("Calendar.Month is %d: it must be 0, because it applies only to a quarter or a year, and Calendar.Every is %q", c.Month, c.Every)
	case c.Month < 0 || c.Month > 12:
		return contract.Invalid("Calendar.Month is %d: it must be the month in which a %s starts, from 1 to 12, or 0 for January", c.Month, c.Every)
	case c.At < 0 || c.At >= 24*time.Hour || c.At%time.Microsecond != 0:
		return contract.Invalid("Calendar.At is %v: it must be a time of day, in whole microseconds, from 0 to below 24h: 6*time.Hour is six o'clock", c.At)
	case c.Carry < 0 || c.Carry > min(c.Limit, MaxTokens-c.Limit):
		return contract.Invalid("Calendar.Carry is %d: it must be from 0 to %d: at most Limit, and at most 2^53-1 together with it", c.Carry, min(c.Limit, MaxTokens-c.Limit))
	}
	return nil
}

// A calendar is the Meter of a Calendar. Its cell has the integers edge and count.
type calendar struct {
	fixedWindow
	zone                *zone
	every, shift, first int64
}

func newCalendar(z *zone, args []store.Arg) *calendar {
	return &calendar{fixedWindow{limit: args[0].Int(), align: 1}, z, args[1].Int(), args[2].Int(), args[3].Int()}
}

func (c *calendar) Advance(now int64, cell contract.Cell) contract.Cell {
	if now >= cell.A {
		cell.A, cell.B = c.edge(now), 0
	}
	return cell
}

// edge returns when the period of now ends. It is the first instant after now at which a
// clock shows target, or a later time.
func (c *calendar) edge(now int64) int64 {
	i, latest, target := c.zone.at(now-2*day), now-day, int64(0)
	for found := false; ; i++ {
		o := c.zone.offsets[i]
		stop := c.zone.offsets[i+1].start
		if now >= stop {
			latest = max(latest, stop+o.offset-1)
			continue
		}
		if !found {
			target, found = c.next(max(latest, now+o.offset)), true
		}
		if edge := max(target-o.offset, o.start); edge < stop {
			return edge
		}
	}
}

// next returns the local time at which the next period starts after the local time
// latest.
func (c *calendar) next(latest int64) int64 {
	if c.every > 12 {
		return latest + c.every - (latest+c.shift)%c.every
	}
	time := c.shift % day
	month := (latest-monthStart(0)*day)/julianMonth - 1 // this month or an earlier one
	for month -= (month - c.first) % c.every; ; month += c.every {
		if next := min(monthStart(month)+c.shift/day, monthStart(month+1)-1)*day + time; next > latest {
			return next
		}
	}
}

// julianMonth is the twelfth of 365.25 days, in microseconds.
const julianMonth = 1461 * day / 48

// monthStart returns the number of days from 1 January 1970 to the first day of a month.
// Months are numbered from March 1968 on, so that a leap day is the last day of its year.
func monthStart(month int64) int64 {
	year, m := month/12, month%12
	days := 365*year + year/4 + (153*m+2)/5 - 671
	if year > 131 { // 2100 has no leap day
		days--
	}
	return days
}

// A rollOver is the Meter of a Calendar with a Carry. Its limit is Limit plus Carry, and
// its count is what the period lacks of it.
type rollOver struct {
	calendar
	carry int64
}

func newRollOver(z *zone, args []store.Arg) *rollOver {
	r := &rollOver{*newCalendar(z, args), args[5].Int()}
	r.limit += r.carry
	return r
}

// lacks returns the count with which the period after one with this count opens.
func (r *rollOver) lacks(count int64) int64 { return max(min(count-r.limit+r.carry, r.carry), 0) }

func (r *rollOver) Advance(now int64, c contract.Cell) contract.Cell {
	if now >= c.A { // a cell that has not ended is of the previous period
		c.A, c.B = r.edge(now), r.lacks(c.B)
	}
	return c
}

func (r *rollOver) Ends(c contract.Cell) int64 {
	if r.lacks(c.B) > 0 {
		return r.edge(c.A)
	}
	return c.A
}

func (r *rollOver) Ready(_ int64, c contract.Cell, n, _ int64) int64 {
	if r.limit-r.lacks(c.B) < n {
		return r.edge(c.A)
	}
	return c.A
}

func (r *rollOver) Refund(now int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
	if now >= c.A || c.A != ch.Was.A {
		return c, note
	}
	return r.calendar.Refund(now, c, ch, note)
}
