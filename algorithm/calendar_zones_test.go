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
	"github.com/weir-go/weir/internal/luatool"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/internal/script"
)

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
			if out, err := exec.Command(luatool.Need(t, lua), file).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v: what the key holds, the end in Go, and ARGV:\n%.2000s", err, out)
			}
		})
	}
}
