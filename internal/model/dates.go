package model

import (
	"time"
	_ "time/tzdata" // wherever the tests run

	"github.com/weir-go/weir/algorithm"
)

// Dates finds the ends of the periods of a Calendar by asking package time what clocks show.
type Dates struct {
	algorithm.Calendar
	loc *time.Location
}

// NewDates returns the Dates of c, whose fields must be valid.
func NewDates(c algorithm.Calendar) Dates {
	loc, err := time.LoadLocation(c.Zone)
	if err != nil {
		panic(err)
	}
	return Dates{c, loc}
}

// Location returns the zone of the calendar.
func (s Dates) Location() *time.Location { return s.loc }

// Wall returns what a clock shows at the time now, as if that were UTC.
func (s Dates) Wall(now time.Time) time.Time {
	y, m, d := now.In(s.loc).Date()
	h, minute, sec := now.In(s.loc).Clock()
	return time.Date(y, m, d, h, minute, sec, now.Nanosecond(), time.UTC)
}

// start returns the local time at which the nth period after the period of the time
// around starts.
func (s Dates) start(around time.Time, n int) time.Time {
	y, m, d := around.Date()
	on := func(y int, m time.Month) time.Time {
		last := time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day()
		return time.Date(y, m, min(max(s.Day, 1), last), 0, 0, 0, 0, time.UTC).Add(s.At)
	}
	switch s.Every {
	case algorithm.Day:
		return time.Date(y, m, d+n, 0, 0, 0, 0, time.UTC).Add(s.At)
	case algorithm.Week:
		monday := d - (int(around.Weekday())+6)%7
		return time.Date(y, m, monday+s.Day-1+7*n, 0, 0, 0, 0, time.UTC).Add(s.At)
	case algorithm.Month:
		return on(y, m+time.Month(n))
	case algorithm.Quarter:
		return on(y, max(s.Month, 1)+time.Month(3*(n+(int(m)-int(max(s.Month, 1))+12)/3-4)))
	}
	return on(y+n, max(s.Month, 1))
}

// latest returns the latest local time that clocks showed until now.
func (s Dates) latest(now time.Time) time.Time {
	latest := s.Wall(now)
	for at, i := now, 0; i < 8; i++ { // few zones change their clocks more than twice a year
		start, _ := at.In(s.loc).ZoneBounds()
		if start.IsZero() {
			break
		}
		at = start.Add(-time.Microsecond)
		if before := s.Wall(at); before.After(latest) {
			latest = before
		}
	}
	return latest
}

// Bound returns the end of the offset at the time at, or of a part of it. It is zero if the
// offset has no end.
func Bound(at time.Time) time.Time {
	_, end := at.ZoneBounds()
	if !end.IsZero() && !end.After(at) { // for ZoneBounds, a leap year has 365 days
		return at.Add(24 * time.Hour)
	}
	return end
}

// End returns when the period of now ends.
func (s Dates) End(now time.Time) time.Time {
	latest := s.latest(now)
	n := -2
	for !s.start(latest, n).After(latest) {
		n++
	}
	target := s.start(latest, n)
	for at := now.In(s.loc); ; {
		stop := Bound(at)
		if edge := at.Add(max(target.Sub(s.Wall(at)), 0)); stop.IsZero() || edge.Before(stop) {
			return edge
		}
		at = stop
	}
}
