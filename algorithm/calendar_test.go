package algorithm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
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
		{"the last minutes of a month", month("", 0), "2026-01-31T23:02:00Z", "2026-02-01T00:00:00Z"},
		{"the 17th in Berlin", month("Europe/Berlin", 17), "2026-03-01T00:00:00+01:00", "2026-03-17T00:00:00+01:00"},
		{"the 31st of February", month("", 31), "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z"},
		{"the 31st of March after that", month("", 31), "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"},
		{"the 30th of a February with a leap day", month("", 30), "2028-02-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"the 29th of February 2100, which has none", month("", 29), "2100-02-01T00:00:00Z", "2100-02-28T00:00:00Z"},
		{"a year from 29 February on", algorithm.Calendar{Limit: 1, Every: algorithm.Year, Month: 2, Day: 29}, "2026-02-28T00:00:00Z", "2027-02-28T00:00:00Z"},
		{"a fiscal year in Britain", algorithm.Calendar{Limit: 1, Every: algorithm.Year, Month: 4, Day: 6, Zone: "Europe/London"}, "2026-04-05T23:59:59+01:00", "2026-04-06T00:00:00+01:00"},
		{"a quarter", algorithm.Calendar{Limit: 1, Every: algorithm.Quarter}, "2026-11-24T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"a quarter of a fiscal year from November on", algorithm.Calendar{Limit: 1, Every: algorithm.Quarter, Month: 11}, "2026-11-24T00:00:00Z", "2027-02-01T00:00:00Z"},
		{"a week from Monday on", algorithm.Calendar{Limit: 1, Every: algorithm.Week, Day: 1}, "2026-11-24T12:00:00Z", "2026-11-30T00:00:00Z"},
		{"a week from Sunday on", algorithm.Calendar{Limit: 1, Every: algorithm.Week, Day: 7}, "2026-11-24T12:00:00Z", "2026-11-29T00:00:00Z"},
		{"a day from six o'clock on", algorithm.Calendar{Limit: 1, Every: algorithm.Day, At: 6 * time.Hour, Zone: "Asia/Kolkata"}, "2026-11-24T05:59:59+05:30", "2026-11-24T06:00:00+05:30"},
		{"a day of 23 hours", days("Europe/Berlin"), "2025-03-30T00:00:00+01:00", "2025-03-31T00:00:00+02:00"},
		{"a day of 25 hours", days("Europe/Berlin"), "2025-10-26T00:00:00+02:00", "2025-10-27T00:00:00+01:00"},
		{"a midnight that is skipped", days("Africa/Cairo"), "2025-04-24T00:00:00+02:00", "2025-04-25T01:00:00+03:00"},
		{"the day after it", days("Africa/Cairo"), "2025-04-25T01:00:00+03:00", "2025-04-26T00:00:00+03:00"},
		{"the first of two midnights", days("America/Havana"), "2025-11-01T12:00:00-04:00", "2025-11-02T00:00:00-04:00"},
		{"between two midnights", days("America/Havana"), "2025-11-02T00:30:00-04:00", "2025-11-03T00:00:00-05:00"},
		{"the second of two midnights", days("America/Havana"), "2025-11-02T00:00:00-05:00", "2025-11-03T00:00:00-05:00"},
		{"clocks that are set back to the day before", days("America/Sao_Paulo"), "2018-02-17T23:30:00-02:00", "2018-02-18T00:00:00-03:00"},
		{"a day that is skipped", days("Pacific/Apia"), "2011-12-29T23:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"a month whose last day is skipped", month("Pacific/Apia", 30), "2011-12-01T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"the month after it", month("Pacific/Apia", 30), "2011-12-31T00:00:00+14:00", "2012-01-30T00:00:00+14:00"},
		{"a day that is skipped", days("Pacific/Kwajalein"), "1993-08-20T12:00:00-12:00", "1993-08-22T00:00:00+12:00"},
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

// If a field changes, the current period keeps its end and its count. The key is the same
// for all zones.
func TestCalendarChanged(t *testing.T) {
	t.Parallel()
	was := algorithm.Calendar{Limit: 5, Every: algorithm.Month, Zone: "Europe/Berlin", Day: 17}
	b := newBench(t, was)
	b.take(epoch, 4)
	end := time.Date(2026, 1, 16, 23, 0, 0, 0, time.UTC).UnixMicro()
	for _, tt := range []struct {
		name string
		to   algorithm.Calendar
	}{
		{"zone", algorithm.Calendar{Limit: 5, Every: algorithm.Month, Zone: "Asia/Tokyo", Day: 17}},
		{"zone, to UTC", algorithm.Calendar{Limit: 5, Every: algorithm.Month, Day: 17}},
		{"day", algorithm.Calendar{Limit: 5, Every: algorithm.Month, Zone: "Europe/Berlin", Day: 2}},
		{"period", algorithm.Calendar{Limit: 5, Every: algorithm.Day, Zone: "Europe/Berlin"}},
		{"limit", algorithm.Calendar{Limit: 4, Every: algorithm.Month, Zone: "Europe/Berlin", Day: 17}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changed := *b
			changed.t = t
			changed.change(tt.to)
			left := tt.to.Limit - 4
			if got := changed.peek(end-1, 1); got.Remaining != max(left-1, 0) && got.Remaining != left || got.ResetAfter != us {
				t.Errorf("1 µs before the end: got %+v, want %d left", got, left)
			}
			if got := changed.peek(end, 5); got.Allowed != (tt.to.Limit == 5) || got.ResetAfter != 0 {
				t.Errorf("at the end: got %+v, want a new period", got)
			}
		})
	}
}

// An error of NewLimit names the field, and says what would be right.
func TestCalendarInvalid(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		c    algorithm.Calendar
		want string
	}{
		{algorithm.Calendar{Every: algorithm.Day}, "Calendar.Limit is 0: it must be from 1 to 9007199254740991"},
		{algorithm.Calendar{Limit: algorithm.MaxTokens + 1, Every: algorithm.Day}, "Calendar.Limit is 9007199254740992: it must be"},
		{algorithm.Calendar{Limit: 1}, `Calendar.Every is "": it must be algorithm.Day, Week, Month, Quarter or Year`},
		{algorithm.Calendar{Limit: 1, Every: "monthly"}, `Calendar.Every is "monthly": it must be algorithm.Day`},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Day, Zone: "Europe/Berln"}, `Calendar.Zone is "Europe/Berln": unknown time zone Europe/Berln: it must be a name of the IANA database, for example "Europe/Berlin"`},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Day, Zone: "../etc/passwd"}, `Calendar.Zone is "../etc/passwd": `},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Day, Zone: "Local"}, `Calendar.Zone is "Local": it must name a time zone, for example "Europe/Berlin", because`},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Day, Day: 1}, "Calendar.Day is 1: it must be 0, because every day is a period"},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Day, Month: 1}, `Calendar.Month is 1: it must be 0, because it applies only to a quarter or a year, and Calendar.Every is "day"`},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Week}, "Calendar.Day is 0: it must be the day on which a week starts, from 1 (Monday) to 7 (Sunday)"},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Week, Day: 8}, "Calendar.Day is 8: it must be the day on which a week starts"},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Week, Day: -1}, "Calendar.Day is -1: it must be the day on which a week starts"},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Month, Day: 32}, "Calendar.Day is 32: it must be the day of the month on which a month starts, from 1 to 31, or 0 for the first day"},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Month, Day: -1}, "Calendar.Day is -1: it must be the day of the month"},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Month, Month: 4}, `Calendar.Month is 4: it must be 0, because it applies only to a quarter or a year, and Calendar.Every is "month"`},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Year, Month: 13}, "Calendar.Month is 13: it must be the month in which a year starts, from 1 to 12, or 0 for January"},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Quarter, Month: -1}, "Calendar.Month is -1: it must be the month in which a quarter starts"},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Day, At: 6}, "Calendar.At is 6ns: it must be a time of day, in whole microseconds, from 0 to below 24h: 6*time.Hour is six o'clock"},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Day, At: 24 * time.Hour}, "Calendar.At is 24h0m0s: it must be"},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Day, At: -time.Hour}, "Calendar.At is -1h0m0s: it must be"},
	} {
		l, err := tt.c.NewLimit()
		if l != nil || !errors.Is(err, algorithm.ErrInvalidLimit) || !strings.HasPrefix(fmt.Sprint(err), tt.want) {
			t.Errorf("%+v: got %v, %v; want %s", tt.c, l, err, tt.want)
		}
	}
}
