package integration

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/internal/model"
)

// calendarZones are zones with all kinds of offsets and changes.
var calendarZones = []string{
	"UTC", "Africa/Cairo", "America/Havana", "Europe/Berlin", "Pacific/Apia", "Asia/Gaza", "America/New_York", "Australia/Lord_Howe",
	"Africa/Casablanca", "Africa/El_Aaiun", "Africa/Johannesburg", "Africa/Monrovia", "America/Adak", "America/Argentina/San_Luis",
	"America/Asuncion", "America/Caracas", "America/Juneau", "America/Los_Angeles", "America/Nuuk", "America/Santiago",
	"America/Sao_Paulo", "America/Scoresbysund", "America/St_Johns", "Antarctica/Casey", "Antarctica/Troll", "Asia/Amman",
	"Asia/Beirut", "Asia/Dhaka", "Asia/Kathmandu", "Asia/Kolkata", "Asia/Manila", "Asia/Pyongyang", "Asia/Shanghai", "Asia/Tehran",
	"Asia/Tokyo", "Australia/Sydney", "Europe/Dublin", "Europe/Istanbul", "Europe/London", "Europe/Moscow", "Europe/Volgograd",
	"Pacific/Chatham", "Pacific/Fakaofo", "Pacific/Guam", "Pacific/Kiritimati", "Pacific/Kwajalein", "Pacific/Norfolk", "Pacific/Tongatapu",
}

var firstDay, lastDay = time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// TestCalendarPostgres compares the ends of periods with PostgreSQL's date_trunc and intervals,
// from 1970 to 2100: around each change of clocks with random calendars, and the ends of all
// periods for each first day. PostgreSQL differs from a Calendar in three cases, all of them
// next to a change of clocks, which are counted.
func TestCalendarPostgres(t *testing.T) {
	servers.Need(t)
	t.Parallel()
	server := newestPostgres()
	server.Start(t)
	pool := openPool(t, server.PostgresURL("", "", ""))
	zones, skipped := calendarZones, 0
	if testing.Short() {
		zones = zones[:8]
	}
	for i, zone := range zones {
		o := postgresCalendar{t: t, pool: pool, zone: zone, r: rand.New(rand.NewPCG(1, uint64(i))), seen: map[string]int{}}
		if o.dates = model.NewDates(algorithm.Calendar{Zone: zone}); !o.sameZone() {
			skipped++
			continue
		}
		o.changes()
		o.chains()
		t.Logf("%s: %v", zone, o.seen)
		if t.Failed() {
			return
		}
	}
	if len(zones)-skipped < len(zones)*5/6 {
		t.Errorf("%d of %d zones have other data on the server", skipped, len(zones))
	}
}

// A postgresCalendar compares the calendars of one zone.
type postgresCalendar struct {
	t     *testing.T
	pool  *pgxpool.Pool
	zone  string
	dates model.Dates
	r     *rand.Rand
	seen  map[string]int
}

// wall returns the local time at a time, in microseconds.
func (o *postgresCalendar) wall(at int64) int64 { return o.dates.Wall(time.UnixMicro(at)).UnixMicro() }

// offsetChanges returns when clocks are changed.
func (o *postgresCalendar) offsetChanges() (list []int64) {
	for at := model.Bound(firstDay.In(o.dates.Location())); !at.IsZero() && at.Before(lastDay); at = model.Bound(at) {
		if c := at.UnixMicro(); o.wall(c) != o.wall(c-1)+1 {
			list = append(list, c)
		}
	}
	return list
}

// sameZone reports whether the server has the same offsets.
func (o *postgresCalendar) sameZone() bool {
	var at []int64
	for _, c := range o.offsetChanges() {
		at = append(at, c-1, c)
	}
	for day := firstDay; day.Before(lastDay); day = day.AddDate(0, 0, 5) {
		at = append(at, day.UnixMicro())
	}
	walls := o.ints(`SELECT (extract(epoch FROM (timestamptz 'epoch' + t * interval '1 microsecond') AT TIME ZONE $1) * 1000000)::bigint
FROM unnest($2::bigint[]) WITH ORDINALITY u(t, n) ORDER BY n`, o.zone, at)
	for i, wall := range walls {
		if want := o.wall(at[i]); wall != want {
			o.t.Logf("%s: other data on the server: at %v, it adds %v", o.zone, time.UnixMicro(at[i]).UTC(), contract.Micros(wall-want))
			return false
		}
	}
	return true
}

// ints returns the integers that a query selects.
func (o *postgresCalendar) ints(query string, args ...any) (list []int64) {
	o.t.Helper()
	rows, err := o.pool.Query(context.Background(), query, args...)
	if err != nil {
		o.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			o.t.Fatal(err)
		}
		for _, v := range values {
			list = append(list, v.(int64))
		}
	}
	if err := rows.Err(); err != nil {
		o.t.Fatal(err)
	}
	return list
}

// meter returns the arithmetic of a calendar.
func (o *postgresCalendar) meter(c algorithm.Calendar) contract.Meter {
	c.Limit, c.Zone = 1, o.zone
	l, err := c.NewLimit()
	if err != nil {
		o.t.Fatal(err)
	}
	return l.Kind.(*contract.MeterKind).Meter(l.Args)
}

func end(m contract.Meter, now int64) int64 { return m.Advance(now, contract.Cell{}).A }

// compare compares the end of a period with when PostgreSQL says that the local time target is.
func (o *postgresCalendar) compare(c algorithm.Calendar, m contract.Meter, now, end, target, postgres int64) {
	began := func() bool { // a clock has shown target before now, and was then set back
		for at := now - 2*24*3600*1_000_000; at <= now; at = m.Advance(at, contract.Cell{}).A {
			if o.wall(at) >= target {
				return true
			}
		}
		return false
	}
	what := ""
	switch {
	case end == postgres:
		what = "same"
	case end < postgres && o.wall(end) == target && o.wall(postgres) == target:
		what = "PostgreSQL uses the second of two equal local times"
	case end < postgres && o.wall(end-1) < target && o.wall(end) > target && o.wall(postgres) > target:
		what = "PostgreSQL counts on within a skipped hour"
	case began():
		what = "PostgreSQL starts a period again when clocks are set back"
	default:
		o.t.Fatalf("%+v, %s, at %v: ends at %v, and PostgreSQL says %v", c, o.zone, time.UnixMicro(now).UTC(), time.UnixMicro(end).UTC(), time.UnixMicro(postgres).UTC())
	}
	o.seen[what]++
}

// changes compares random calendars 1 µs before, at and after each change of clocks.
func (o *postgresCalendar) changes() {
	const query = `SELECT (extract(epoch FROM target) * 1000000)::bigint, (extract(epoch FROM target AT TIME ZONE $1) * 1000000)::bigint,
  (extract(epoch FROM date_trunc($2, target AT TIME ZONE $1, $1)) * 1000000)::bigint
FROM unnest($3::bigint[]) WITH ORDINALITY u(t, n),
  LATERAL (SELECT (timestamptz 'epoch' + t * interval '1 microsecond') AT TIME ZONE $1 AS local) l,
  LATERAL (SELECT min(s) AS target FROM (
    SELECT m + make_interval(days => least($4, CASE WHEN $2 IN ('day', 'week') THEN $4 ELSE extract(day FROM m + interval '1 month - 1 day')::int END) - 1)
      + $5 * interval '1 microsecond' AS s
    FROM (SELECT date_trunc($2, local - make_interval(months => $6)) + make_interval(months => $6)
        + k * CASE $2 WHEN 'quarter' THEN interval '3 months' ELSE ('1 ' || $2)::interval END AS m FROM generate_series(-2, 2) k) months
  ) starts WHERE s > local) x
ORDER BY n`
	var times []int64
	for _, c := range o.offsetChanges() {
		times = append(times, c-1, c, c+1, c-o.r.Int64N(48*3600*1e6), c+o.r.Int64N(48*3600*1e6))
	}
	for range 200 {
		times = append(times, firstDay.UnixMicro()+o.r.Int64N(lastDay.UnixMicro()-firstDay.UnixMicro()))
	}
	for _, c := range []algorithm.Calendar{
		{Every: algorithm.Day}, {Every: algorithm.Week, Day: 1}, {Every: algorithm.Month}, {Every: algorithm.Quarter}, {Every: algorithm.Year},
		{Every: algorithm.Day, At: 2 * time.Hour}, {Every: algorithm.Day, At: 2*time.Hour + 30*time.Minute}, {Every: algorithm.Day, At: 30 * time.Minute}, {Every: algorithm.Day, At: 90 * time.Minute},
		{Every: algorithm.Week, Day: 7, At: 2 * time.Hour}, {Every: algorithm.Week, Day: 1 + o.r.IntN(7), At: time.Duration(o.r.Int64N(24*3600*1e6)) * time.Microsecond},
		{Every: algorithm.Month, Day: 1 + o.r.IntN(31), At: time.Duration(o.r.IntN(24)) * time.Hour},
		{Every: algorithm.Quarter, Month: time.Month(1 + o.r.IntN(12)), Day: 1 + o.r.IntN(31), At: time.Duration(o.r.IntN(24)) * time.Hour},
		{Every: algorithm.Year, Month: time.Month(1 + o.r.IntN(12)), Day: 1 + o.r.IntN(31), At: time.Duration(o.r.IntN(24)) * time.Hour},
	} {
		day, months := max(c.Day, 1), max(int(c.Month)-1, 0)
		rows := o.ints(query, o.zone, string(c.Every), times, day, c.At.Microseconds(), months)
		m := o.meter(c)
		for i, now := range times {
			target, postgres, trunc := rows[3*i], rows[3*i+1], rows[3*i+2]
			if day == 1 && months == 0 && c.At == 0 && trunc != postgres {
				o.t.Fatalf("%+v, %s: date_trunc of %v is %v", c, o.zone, time.UnixMicro(postgres).UTC(), time.UnixMicro(trunc).UTC())
			}
			o.compare(c, m, now, end(m, now), target, postgres)
		}
	}
}

// chains compares the ends of all periods, for each first day.
func (o *postgresCalendar) chains() {
	const query = `SELECT (extract(epoch FROM target) * 1000000)::bigint, (extract(epoch FROM target AT TIME ZONE $1) * 1000000)::bigint
FROM generate_series($2::timestamp, timestamp '2100-01-01', $3::interval) WITH ORDINALITY g(m, n),
  LATERAL (SELECT m + make_interval(days => least($4, CASE WHEN $4 = 0 THEN 0 ELSE extract(day FROM m + interval '1 month - 1 day')::int - 1 END)) AS target) x
ORDER BY n`
	compare := func(c algorithm.Calendar, from time.Time, step string) {
		days := max(c.Day-1, 0)
		if c.Every == algorithm.Week {
			days = 0
		}
		rows, m := o.ints(query, o.zone, from, step, days), o.meter(c)
		now := rows[1] - 1 // before the first start
		for i := 0; i < len(rows); i += 2 {
			e := end(m, now)
			if i > 0 && rows[i+1] == rows[i-1] {
				o.seen["a day that is skipped"]++
				continue
			}
			o.compare(c, m, now, e, rows[i], rows[i+1])
			now = e
		}
	}
	compare(algorithm.Calendar{Every: algorithm.Day}, time.Date(1970, 1, 3, 0, 0, 0, 0, time.UTC), "1 day")
	for day := 1; day <= 7; day++ {
		compare(algorithm.Calendar{Every: algorithm.Week, Day: day}, time.Date(1970, 1, 4+day, 0, 0, 0, 0, time.UTC), "7 days")
	}
	for day := 1; day <= 31; day++ {
		compare(algorithm.Calendar{Every: algorithm.Month, Day: day}, time.Date(1970, 2, 1, 0, 0, 0, 0, time.UTC), "1 month")
		first := time.Month(1 + day%12)
		compare(algorithm.Calendar{Every: algorithm.Quarter, Month: first, Day: day}, time.Date(1971, first, 1, 0, 0, 0, 0, time.UTC), "3 months")
		compare(algorithm.Calendar{Every: algorithm.Year, Month: first, Day: day}, time.Date(1971, first, 1, 0, 0, 0, 0, time.UTC), "1 year")
	}
}
