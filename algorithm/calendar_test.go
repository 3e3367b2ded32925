package algorithm_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/internal/weirtest"
)

// Days and months that are easily computed wrong.
func TestCalendarDates(t *testing.T) {
	t.Parallel()
	month := func(zone string, day int) algorithm.Calendar {
		return algorithm.Calendar{Limit: 1, Every: algorithm.Month, Zone: zone, Day: day}
	}
	days := func(zone string) algorithm.Calendar {
		return algorithm.Calendar{Limit: 1, Every: algorithm.Day, Zone: zone}
	}
	for _, tt := range []struct {
		what     string
		calendar algorithm.Calendar
		now, end string
	}{
		{"the 17th in Berlin", month("Europe/Berlin", 17), "2026-03-01T00:00:00+01:00", "2026-03-17T00:00:00+01:00"},
		{"the 31st of February", month("", 31), "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z"},
		{"the 29th of February 2100, which has none", month("", 29), "2100-02-01T00:00:00Z", "2100-02-28T00:00:00Z"},
		{"a year from 29 February on", algorithm.Calendar{Limit: 1, Every: algorithm.Year, Month: 2, Day: 29}, "2026-02-28T00:00:00Z", "2027-02-28T00:00:00Z"},
		{"a fiscal year in Britain", algorithm.Calendar{Limit: 1, Every: algorithm.Year, Month: 4, Day: 6, Zone: "Europe/London"}, "2026-04-05T23:59:59+01:00", "2026-04-06T00:00:00+01:00"},
		{"a quarter of a fiscal year from November on", algorithm.Calendar{Limit: 1, Every: algorithm.Quarter, Month: 11}, "2026-11-24T00:00:00Z", "2027-02-01T00:00:00Z"},
		{"a week from Monday on", algorithm.Calendar{Limit: 1, Every: algorithm.Week, Day: 1}, "2026-11-24T12:00:00Z", "2026-11-30T00:00:00Z"},
		{"a day from six o'clock on", algorithm.Calendar{Limit: 1, Every: algorithm.Day, At: 6 * time.Hour, Zone: "Asia/Kolkata"}, "2026-11-24T05:59:59+05:30", "2026-11-24T06:00:00+05:30"},
		{"a day of 23 hours", days("Europe/Berlin"), "2025-03-30T00:00:00+01:00", "2025-03-31T00:00:00+02:00"},
		{"a midnight that is skipped", days("Africa/Cairo"), "2025-04-24T00:00:00+02:00", "2025-04-25T01:00:00+03:00"},
		{"the first of two midnights", days("America/Havana"), "2025-11-01T12:00:00-04:00", "2025-11-02T00:00:00-04:00"},
		{"between two midnights", days("America/Havana"), "2025-11-02T00:30:00-04:00", "2025-11-03T00:00:00-05:00"},
		{"clocks that are set back to the day before", days("America/Sao_Paulo"), "2018-02-17T23:30:00-02:00", "2018-02-18T00:00:00-03:00"},
		{"a day that is skipped", days("Pacific/Apia"), "2011-12-29T23:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"a month whose last day is skipped", month("Pacific/Apia", 30), "2011-12-01T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"a day that occurs twice", days("America/Juneau"), "1983-10-30T01:30:00-07:00", "1983-10-31T00:00:00-09:00"},
		{"the first microsecond", days("America/New_York"), "1970-01-01T00:00:00.000001Z", "1970-01-01T05:00:00Z"},
		{"the last year", algorithm.Calendar{Limit: 1, Every: algorithm.Year, Zone: "America/New_York"}, "2112-09-01T00:00:00Z", "2113-01-01T05:00:00Z"},
	} {
		now, err := time.Parse(time.RFC3339Nano, tt.now)
		if err != nil {
			t.Fatal(err)
		}
		end, err := time.Parse(time.RFC3339Nano, tt.end)
		if err != nil {
			t.Fatal(err)
		}
		b := newBench(t, tt.calendar)
		if got := b.take(now.UnixMicro(), 1); !got.Allowed || got.ResetAfter != end.Sub(now) {
			t.Errorf("%s, at %s: ends in %v, want %v", tt.what, tt.now, got.ResetAfter, end.Sub(now))
		}
		if end.UnixMicro() >= contract.MaxSpan {
			continue
		}
		if got := b.take(end.UnixMicro()-1, 1); got.Allowed || got.RetryAfter != us {
			t.Errorf("%s, 1 µs before its end: got %+v, want a denial for 1 µs", tt.what, got)
		}
		if got := b.take(end.UnixMicro(), 1); !got.Allowed {
			t.Errorf("%s, at its end: got %+v, want it allowed", tt.what, got)
		}
	}
}

var periods = []algorithm.Period{algorithm.Day, algorithm.Week, algorithm.Month, algorithm.Quarter, algorithm.Year}

// calendarZones are zones with all kinds of offsets and changes.
var calendarZones = []string{
	"", "UTC", "Africa/Cairo", "Africa/Casablanca", "Africa/El_Aaiun", "Africa/Johannesburg", "Africa/Monrovia", "America/Adak",
	"America/Argentina/San_Luis", "America/Asuncion", "America/Caracas", "America/Havana", "America/Los_Angeles", "America/New_York",
	"America/Nuuk", "America/Santiago", "America/Sao_Paulo", "America/Scoresbysund", "America/St_Johns", "Antarctica/Casey",
	"Antarctica/Troll", "Asia/Amman", "Asia/Beirut", "Asia/Dhaka", "Asia/Gaza", "Asia/Kathmandu", "Asia/Kolkata", "Asia/Manila",
	"Asia/Pyongyang", "Asia/Shanghai", "Asia/Tehran", "Asia/Tokyo", "Australia/Lord_Howe", "Australia/Sydney", "Europe/Berlin",
	"Europe/Dublin", "Europe/Istanbul", "Europe/London", "Europe/Moscow", "Europe/Volgograd", "Pacific/Apia", "Pacific/Chatham",
	"Pacific/Fakaofo", "Pacific/Kiritimati", "Pacific/Kwajalein", "Pacific/Norfolk", "Pacific/Tongatapu",
}

// calendarTimes yields random calendars in a zone, each with a time: random times, times
// around the end of a period, and times around each change of clocks.
func calendarTimes(r *rand.Rand, zone string) iter.Seq2[model.Dates, time.Time] {
	return func(yield func(model.Dates, time.Time) bool) {
		more := true
		give := func(s model.Dates, at time.Time) {
			at = at.Truncate(us)
			more = more && (at.UnixMicro() < 1 || at.UnixMicro() >= contract.MaxSpan || yield(s, at))
		}
		around := func(s model.Dates, at time.Time) {
			for _, d := range []time.Duration{-us, 0, us} {
				give(s, at.Add(d))
			}
		}
		last := time.UnixMicro(contract.MaxSpan - 1)
		for range 100 {
			s := model.NewDates(model.Usual.CalendarIn(r, zone))
			at := time.UnixMicro(1 + r.Int64N(contract.MaxSpan-1))
			give(s, at)
			around(s, s.End(at))
		}
		s := model.NewDates(model.Usual.CalendarIn(r, zone))
		give(s, time.UnixMicro(1))
		give(s, last)
		for at := model.Bound(time.Unix(0, 0).In(s.Location())); more && !at.IsZero() && at.Before(last); at = model.Bound(at) {
			for _, every := range periods {
				for s.Every = ""; s.Every != every; {
					s.Calendar = model.Usual.CalendarIn(r, zone)
				}
				around(s, at)
				show := s.Wall(at) // a period starts at the change
				if r.IntN(2) == 0 {
					show = s.Wall(at.Add(-us)) // or before clocks are set back
				}
				s.At = show.Sub(show.Truncate(24 * time.Hour))
				around(s, at)
				give(s, at.Add(time.Duration(r.Int64N(int64(100*time.Hour)))-50*time.Hour))
			}
		}
	}
}

// briefly returns zones, or a few of them if the tests are to be short.
func briefly(zones []string) []string {
	if testing.Short() {
		return zones[len(zones)-8:]
	}
	return zones
}

// A period ends when clocks in its zone show the start of the next one, according to
// package time.
func TestCalendarEnds(t *testing.T) {
	t.Parallel()
	for i, zone := range briefly(calendarZones) {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			for s, now := range calendarTimes(rand.New(rand.NewPCG(1, uint64(i))), zone) {
				want := s.End(now)
				if got := newBench(t, s.Calendar).take(now.UnixMicro(), 1); !got.Allowed || got.ResetAfter != want.Sub(now) {
					t.Fatalf("%+v at %v: ends in %v, want %v, at %v", s.Calendar, now.In(s.Location()), got.ResetAfter, want.Sub(now), want.In(s.Location()))
				}
			}
		})
	}
}

// The Lua, in all versions, finds the same ends as the Go.
func TestCalendarLua(t *testing.T) {
	t.Parallel()
	const frame = `
local key
redis = {pcall = function() return false end, call = function(_, _, value) key = value end}
KEYS = {'key'}
local function check(f, edge, ...)
  ARGV = {...}
  f()
  if key ~= 'y1 ' .. edge .. ' 1' then print(key, edge, ...) end
end
`
	var text strings.Builder
	text.WriteString(frame)
	for i, zone := range briefly(calendarZones) {
		open := false
		for s, now := range calendarTimes(rand.New(rand.NewPCG(2, uint64(i))), zone) {
			limit := mustLimit(t, s.Calendar)
			if !open {
				p, err := compose.New([]compose.Rule{{Limit: limit}})
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&text, "do\nlocal function f()\n%s\nend\nlocal all = [[\n", p.Script(script.Consume).Lua())
				open = true
			}
			edge := limit.Kind.(*contract.MeterKind).Meter(limit.Args).Advance(now.UnixMicro(), contract.Cell{}).A
			fmt.Fprintf(&text, "%d", edge)
			for _, arg := range limit.Args {
				fmt.Fprintf(&text, " %s", arg.String())
			}
			fmt.Fprintf(&text, " %d\n", now.UnixMicro())
		}
		text.WriteString("]]\nfor e, l, p, s, m, z, now in string.gmatch(all, '(%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%d+)') do check(f, e, l, p, s, m, z, '1', '0', now) end\nend\n")
	}
	file := filepath.Join(t.TempDir(), "ends.lua")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, lua := range []string{"lua5.1", "lua5.4"} {
		t.Run(lua, func(t *testing.T) {
			t.Parallel()
			if out, err := exec.Command(weirtest.NeedProgram(t, lua), file).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v: what the key holds, the end in Go, and ARGV:\n%.2000s", err, out)
			}
		})
	}
}
