package algorithm

import (
	_ "embed"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

//go:embed calendar.lua
var calendarLua string

//go:embed calendarcarry.lua
var calendarCarryLua string

// A zone is a time zone: the kinds of its calendars, and the offsets in the kinds' Lua.
type zone struct {
	offsets []offset // the last has no offset, and starts after all times
	kind    *contract.MeterKind
	carries *contract.MeterKind // of calendars with a Carry; it uses the keys and values of kind
}

// An offset is what is added to a time, from start on, for the local time. Both are
// microseconds.
type offset struct{ start, offset int64 }

// maxZones is the largest number of zones in the cache. The IANA database has fewer
// names.
const maxZones = 1024

// zones is a cache of zones by name.
var zones = struct {
	sync.Mutex
	byName map[string]*zone
}{byName: map[string]*zone{}}

// zoneOf returns the zone with this name. While it is in the cache, all limits in the
// zone have the same kind.
func zoneOf(name string) (*zone, error) {
	zones.Lock()
	z := zones.byName[name]
	zones.Unlock()
	if z != nil {
		return z, nil
	}
	z, err := loadZone(name) // takes a millisecond
	if err != nil {
		return nil, err
	}
	zones.Lock()
	defer zones.Unlock()
	if earlier := zones.byName[name]; earlier != nil {
		return earlier, nil
	}
	if len(zones.byName) == maxZones {
		clear(zones.byName)
	}
	zones.byName[name] = z
	return z, nil
}

// loadZone reads the zone with this name from the time zone data of the process.
func loadZone(name string) (*zone, error) {
	if name == "Local" {
		return nil, contract.Invalid(`Calendar.Zone is "Local": it must name a time zone, for example "Europe/Berlin", because processes can differ in their local zone`)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, contract.Invalid(`Calendar.Zone is %q: %v: it must be a name of the IANA database, for example "Europe/Berlin"; `+
			`if the machine has no time zone data, import the package time/tzdata`, name, err)
	}
	z, err := newZone(loc)
	if err != nil {
		return nil, contract.Invalid("Calendar.Zone is %q: %v", name, err)
	}
	return z, nil
}

// newZone returns the zone with the offsets of loc, from 1970 until two years after the
// latest time of a decision. Without a Carry, a script needs only one of them.
func newZone(loc *time.Location) (*zone, error) {
	z := &zone{}
	var text strings.Builder
	for at := time.Unix(0, 0).In(loc); ; {
		if _, seconds := at.Zone(); len(z.offsets) == 0 || z.offsets[len(z.offsets)-1].offset != int64(seconds)*1e6 {
			if seconds <= -day/1e6 || seconds >= day/1e6 {
				return nil, fmt.Errorf("at %v, its offset is %d s: it must be less than a day", at, seconds)
			}
			z.offsets = append(z.offsets, offset{at.UnixMicro(), int64(seconds) * 1e6})
			fmt.Fprintf(&text, "%010d%06d", at.Unix(), seconds+day/1e6)
		}
		_, end := at.ZoneBounds()
		if end.IsZero() || end.UnixMicro() > maxSpan+800*day {
			break
		}
		if !end.After(at) { // on the last day of a leap year: for ZoneBounds, each year has 365 days
			end = at.AddDate(0, 0, 1)
		}
		at = end
	}
	const last int64 = 9_999_999_999 // seconds: in 2286
	z.offsets = append(z.offsets, offset{start: last * 1e6})
	lua := func(offsets string) string {
		return strings.Replace(calendarLua, "'@ZONE'", fmt.Sprintf("'%s%d'", offsets, last), 1)
	}
	z.kind = &contract.MeterKind{
		Head: contract.Head{
			Name: "calendar", Tag: store.Tag{'y', '1'}, Cell: "edge count", Args: "limit every shift first zone:text",
			Lua: lua(text.String()[:16*(z.at(maxSpan+400*day)+1)]),
		},
		Absolute: true,
		Meter:    func(args []store.Arg) contract.Meter { return newCalendar(z, args) },
	}
	z.carries = &contract.MeterKind{
		Head: z.kind.Head, Carries: true, Meter: func(args []store.Arg) contract.Meter { return newRollOver(z, args) },
	}
	z.carries.Args += " carry"
	z.carries.Lua = strings.ReplaceAll(calendarCarryLua, "@EDGE\n", strings.Split(lua(text.String()), "-- @EDGE\n")[1])
	return z, nil
}

// at returns the index of the offset at the time t, or the first index.
func (z *zone) at(t int64) int {
	after := sort.Search(len(z.offsets), func(i int) bool { return z.offsets[i].start > t })
	return max(after-1, 0)
}
