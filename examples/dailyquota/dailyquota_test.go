package dailyquota_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // wherever the tests run

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/examples/dailyquota"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// TestConformance is a complete test: a Quota keeps the same promises as the built-in
// algorithms.
func TestConformance(t *testing.T) {
	t.Parallel()
	var zones []*time.Location
	for _, name := range []string{"UTC", "Europe/Berlin", "Africa/Cairo", "America/Havana", "Asia/Kathmandu"} {
		zones = append(zones, zone(t, name))
	}
	conformance.RunAlgorithm(t, conformance.Backend{
		New: func(*testing.T) store.Store { return memory.New(nil) },
		Keys: func(_ *testing.T, st store.Store, part string) map[string]time.Duration {
			keys := map[string]time.Duration{}
			for key, ttl := range st.(*memory.Store).All() {
				if strings.Contains(key, part) {
					keys[key] = ttl
				}
			}
			return keys
		},
	}, conformance.Subject{
		New: func(r *rand.Rand) algorithm.Algorithm {
			return dailyquota.Quota{
				Limit: 1 + r.Int64N(20),
				Zone:  zones[r.IntN(len(zones))],
				From:  time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC),
			}
		},
		Unit: func(algorithm.Algorithm) time.Duration { return 6 * time.Hour },
		Huge: []algorithm.Algorithm{dailyquota.Quota{Limit: algorithm.MaxTokens, Zone: time.UTC}},
	})
}

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// If a day is used up, requests are denied until it ends.
func TestDays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		zone, used string
		rest       time.Duration
		what       string
	}{
		{"UTC", "2026-01-01T00:00:00Z", 24 * time.Hour, "a day"},
		{"UTC", "2026-01-01T23:59:59.999999Z", time.Microsecond, "its last microsecond"},
		{"Europe/Berlin", "2026-01-15T00:00:00+01:00", 24 * time.Hour, "a day in winter"},
		{"Europe/Berlin", "2026-07-15T00:00:00+02:00", 24 * time.Hour, "a day in summer"},
		{"Europe/Berlin", "2026-03-28T00:00:00+01:00", 24 * time.Hour, "the day before clocks go forward"},
		{"Europe/Berlin", "2026-03-29T00:00:00+01:00", 23 * time.Hour, "the day on which they do"},
		{"Europe/Berlin", "2026-03-29T01:59:59.999999+01:00", 21*time.Hour + time.Microsecond, "just before they do"},
		{"Europe/Berlin", "2026-03-29T03:00:00+02:00", 21 * time.Hour, "when they do"},
		{"Europe/Berlin", "2026-03-30T00:00:00+02:00", 24 * time.Hour, "the day after"},
		{"Europe/Berlin", "2026-10-25T00:00:00+02:00", 25 * time.Hour, "the day on which they go back"},
		{"Europe/Berlin", "2026-10-25T02:30:00+02:00", 22*time.Hour + 30*time.Minute, "half past two"},
		{"Europe/Berlin", "2026-10-25T02:30:00+01:00", 21*time.Hour + 30*time.Minute, "half past two again"},
		{"America/New_York", "2026-03-08T00:00:00-05:00", 23 * time.Hour, "west of Greenwich"},
		{"America/New_York", "2026-11-01T00:00:00-04:00", 25 * time.Hour, "west of Greenwich"},
		{"Australia/Lord_Howe", "2026-04-05T00:00:00+11:00", 24*time.Hour + 30*time.Minute, "clocks go back by half an hour"},
		{"Asia/Kathmandu", "2026-05-01T00:00:00+05:45", 24 * time.Hour, "an odd offset"},
		{"Pacific/Kiritimati", "2026-05-01T12:00:00+14:00", 12 * time.Hour, "the easternmost"},
		{"Africa/Cairo", "2026-04-23T00:00:00+02:00", 24 * time.Hour, "the day before midnight is skipped"},
		{"Africa/Cairo", "2026-04-24T01:00:00+03:00", 23 * time.Hour, "a day that begins at one"},
		{"Africa/Cairo", "2026-10-29T12:00:00+03:00", 13 * time.Hour, "a day whose last hour is there twice"},
		{"America/Havana", "2026-11-01T00:30:00-04:00", 24*time.Hour + 30*time.Minute, "a day whose first hour is there twice"},
		{"America/Havana", "2026-11-01T00:30:00-05:00", 23*time.Hour + 30*time.Minute, "and the second time"},
	} {
		now, err := time.Parse(time.RFC3339Nano, tt.used)
		if err != nil {
			t.Fatal(err)
		}
		clock := now
		lim, err := weir.New("api", memory.New(nil), dailyquota.Quota{
			Limit: 1, Zone: zone(t, tt.zone), From: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC),
		}, &weir.Options{Clock: func() time.Time { return clock }})
		if err != nil {
			t.Fatal(err)
		}
		want := []bool{true, false, false, true}
		for i, at := range []time.Time{now, now, now.Add(tt.rest - time.Microsecond), now.Add(tt.rest)} {
			clock = at
			res, err := lim.Allow(t.Context(), "ann")
			if err != nil || res.Allowed != want[i] || i == 1 && res.RetryAfter != tt.rest {
				t.Errorf("%s, %s, %s: at %v: got %+v, %v; want it to last %v", tt.zone, tt.used, tt.what, at.Sub(now), res, err, tt.rest)
			}
		}
	}
}

// A day ends when the date changes according to package time, for ten years and in zones with
// unusual changes.
func TestDates(t *testing.T) {
	t.Parallel()
	from := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range []string{
		"Europe/Berlin", "America/New_York", "America/Havana", "Africa/Cairo", "Asia/Beirut", "Australia/Lord_Howe",
		"Africa/Casablanca", "America/Santiago", "America/Nuuk", "Asia/Gaza", "Pacific/Chatham", "Antarctica/Troll", "Asia/Tokyo",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, 2))
			loc := zone(t, name)
			clock := from
			lim, err := weir.New("api", memory.New(nil), dailyquota.Quota{Limit: 1, Zone: loc, From: from},
				&weir.Options{Clock: func() time.Time { return clock }})
			if err != nil {
				t.Fatal(err)
			}
			for clock.Before(from.AddDate(10, 0, -2)) {
				// Offsets are whole quarters of an hour.
				end := clock.Truncate(15 * time.Minute)
				for today := clock.In(loc).Day(); end.In(loc).Day() == today; {
					end = end.Add(15 * time.Minute)
				}
				res, err := lim.Allow(t.Context(), "ann")
				if err != nil || !res.Allowed || res.ResetAfter != end.Sub(clock) {
					t.Fatalf("at %v: got %+v, %v; the day ends in %v", clock.In(loc), res, err, end.Sub(clock))
				}
				clock = end.Add(time.Duration(r.Int64N(int64(26*time.Hour.Microseconds()))) * time.Microsecond)
			}
		})
	}
}

// The day of each caller ends at midnight in the caller's zone. If the zone of a caller
// changes, the current day keeps its end.
func TestZones(t *testing.T) {
	t.Parallel()
	from := time.Date(2025, 6, 1, 0, 0, 0, 0, time.UTC)
	now := time.Date(2026, 6, 1, 18, 0, 0, 0, time.UTC)
	lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "api", Rules: []weir.Rule{
		{Name: "burst", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}},
		{Name: "day", Algorithm: dailyquota.Quota{Limit: 1, Zone: time.UTC}},
	}}, &weir.Options{Clock: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		who, zone string
		rest      time.Duration
	}{
		{"ann", "UTC", 6 * time.Hour},
		{"bob", "Asia/Tokyo", 21 * time.Hour},
		{"eve", "America/Los_Angeles", 13 * time.Hour},
		{"ann", "Asia/Tokyo", 6 * time.Hour},
	} {
		theirs, err := lim.With(weir.Rule{Name: "day", Algorithm: dailyquota.Quota{Limit: 1, Zone: zone(t, tt.zone), From: from}})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := theirs.Allow(t.Context(), tt.who); err != nil {
				t.Fatal(err)
			}
		}
		if res, err := theirs.Allow(t.Context(), tt.who); err != nil || res.Rule != "day" || res.RetryAfter != tt.rest {
			t.Errorf("%s in %s: got %+v, %v; want a denial for %v", tt.who, tt.zone, res, err, tt.rest)
		}
	}
}

// Outside of the ten years, a day ends at most one hour early or late.
func TestOutside(t *testing.T) {
	t.Parallel()
	for _, year := range []int{1971, 2000, 2060, 2111} {
		clock := time.Date(year, 7, 1, 12, 0, 0, 0, time.UTC)
		lim, err := weir.New("api", memory.New(nil), dailyquota.Quota{Limit: 1, Zone: zone(t, "Europe/Berlin")},
			&weir.Options{Clock: func() time.Time { return clock }})
		if err != nil {
			t.Fatal(err)
		}
		res, err := lim.Allow(t.Context(), "ann")
		if least, most := 10*time.Hour, 11*time.Hour; err != nil || res.ResetAfter < least || res.ResetAfter > most {
			t.Errorf("%d: got %+v, %v; want the day to end in %v to %v", year, res, err, least, most)
		}
	}
}

// NewLimit finds the changes of ten years that include the last day of a leap year, for which
// package time gives bounds that have passed.
func TestLeapYear(t *testing.T) {
	t.Parallel()
	from := time.Date(2036, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := (dailyquota.Quota{Limit: 1, Zone: zone(t, "Europe/Berlin"), From: from}).NewLimit(); err != nil {
		t.Error(err)
	}
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	for _, q := range []dailyquota.Quota{
		{},
		{Limit: 1},
		{Limit: -1, Zone: time.UTC},
		{Limit: algorithm.MaxTokens + 1, Zone: time.UTC},
		{Limit: 1, Zone: time.UTC, From: time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)},
		{Limit: 1, Zone: time.UTC, From: time.Date(2101, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		if l, err := q.NewLimit(); l != nil || !errors.Is(err, algorithm.ErrInvalidLimit) {
			t.Errorf("%+v: got %v, %v, want ErrInvalidLimit", q, l, err)
		}
	}
}
