package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gonum.org/v1/plot"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
)

// A calendarRow is a row of the picture of Calendar.
type calendarRow struct {
	label    string
	calendar algorithm.Calendar
}

var calendarRows = []calendarRow{
	{"Month", algorithm.Calendar{Limit: 1, Every: algorithm.Month}},
	{"Month, Day: 17", algorithm.Calendar{Limit: 1, Every: algorithm.Month, Day: 17}},
	{"Month, Day: 31", algorithm.Calendar{Limit: 1, Every: algorithm.Month, Day: 31}},
	{"Week, Day: 1", algorithm.Calendar{Limit: 1, Every: algorithm.Week, Day: 1}},
	{"Quarter", algorithm.Calendar{Limit: 1, Every: algorithm.Quarter}},
}

// starts returns when the periods of c start, from epoch on until length. The first request of
// each period says when the period ends.
func starts(ctx context.Context, c algorithm.Calendar, length time.Duration) (list []time.Duration, err error) {
	now := epoch
	lim, err := weir.New("charts", memory.New(nil), c, &weir.Options{Clock: func() time.Time { return now }})
	if err != nil {
		return nil, err
	}
	for {
		res, err := lim.Allow(ctx, "calendar")
		if err != nil {
			return nil, err
		}
		now = now.Add(res.ResetAfter)
		if now.Sub(epoch) > length {
			return list, nil
		}
		list = append(list, now.Sub(epoch))
	}
}

// drawCalendar draws when the periods of some calendars start, in the first half of a year.
func drawCalendar(ctx context.Context) (picture, error) {
	end := time.Date(2026, time.July, 4, 0, 0, 0, 0, time.UTC).Sub(epoch)
	pl := newPlot(0, end)
	rows := float64(len(calendarRows))
	pl.Y.Min, pl.Y.Max = -0.6, rows-0.4
	pl.X.Label.Text = "2026; each grey line is the first day of a month"
	var months, marks plot.ConstantTicks
	var firsts []time.Duration
	for m := time.January; m <= time.July; m++ {
		at := time.Date(2026, m, 1, 0, 0, 0, 0, time.UTC).Sub(epoch)
		firsts = append(firsts, at)
		months = append(months, plot.Tick{Value: at.Seconds(), Label: m.String()[:3]})
	}
	pl.X.Tick.Marker = months
	pl.Add(verticals(stroke(faint, 0.75), firsts, -0.6, rows-0.4))
	var parts []string
	for i, r := range calendarRows {
		at := rows - 1 - float64(i)
		marks = append(marks, plot.Tick{Value: at, Label: r.label})
		times, err := starts(ctx, r.calendar, end)
		if err != nil {
			return picture{}, err
		}
		pl.Add(verticals(stroke(blue, 1.5), times, at-0.36, at+0.36))
		parts = append(parts, fmt.Sprintf("%d of %s", len(times), r.label))
	}
	pl.Y.Tick.Marker = marks
	pl.Y.Tick.Length = 0
	keys := []key{{ticks(stroke(blue, 1.5)), "a period starts"}}
	alt := "The starts of periods in half a year: " + strings.Join(parts, "; ")
	return finish(pl, 95+22*5, 28, "Calendar: when periods start", keys, "calendar", alt)
}
