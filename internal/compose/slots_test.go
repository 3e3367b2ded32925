package compose_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/internal/storekey"
)

// A denied request marks the records of all rules, so that the store does not evict them.
// An allowed request removes the marks, and a Peek changes no record.
func TestSlotsMarks(t *testing.T) {
	t.Parallel()
	var rules []compose.Rule
	for _, n := range []int64{2, 9} {
		limit, err := algorithm.FixedWindow{Limit: n, Window: time.Hour}.NewLimit()
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, compose.Rule{Limit: limit})
	}
	for n := range rules {
		p, err := compose.New(rules[:n+1])
		if err != nil {
			t.Fatal(err)
		}
		const now = 1_000_000
		records := make([]storekey.Record, n+1)
		for step, tt := range []struct {
			verb        script.Verb
			cost        int64
			now         int64
			allow, mark bool
		}{
			{script.Consume, 3, now, false, false}, // there is no value to keep
			{script.Consume, 1, now, true, false},
			{script.Peek, 2, now, false, false},
			{script.Consume, 2, now, false, true},
			{script.Peek, 1, now, true, true},
			{script.UpTo, 5, now, true, false},
			{script.UpTo, 5, now, false, true},
			{script.Consume, 1, now + 2*time.Hour.Microseconds(), true, false},
		} {
			d := compose.Query{Program: p, Verb: tt.verb, Call: compose.Call{Cost: tt.cost}}
			places, slots := make([]storekey.Place, len(records)), make([]compose.Slot, len(records))
			before := make([]storekey.Record, len(records))
			copy(before, records)
			for i := range places {
				places[i].Record = &records[i]
			}
			var want compose.Result
			if !p.HasCells() || !d.OnlyCells() || !d.DecideOnSlots(tt.now, places, slots, nil, &want) || want.Allowed != tt.allow {
				t.Fatalf("%d rules, step %d: got %+v", len(records), step, want)
			}
			for i := range records {
				if records[i].Denied != tt.mark || tt.verb == script.Peek && records[i] != before[i] {
					t.Errorf("%d rules, step %d: record %d was %+v, and is %+v", len(records), step, i, before[i], records[i])
				}
			}
			if n > 0 || tt.verb != script.Consume {
				continue
			}
			var a compose.Result
			if !p.DecideInLine(tt.now, &before[0], tt.cost, &a) || a != want || before[0] != records[0] {
				t.Errorf("step %d: DecideInLine answers %+v, and sets %+v, want %+v and %+v", step, a, before[0], want, records[0])
			}
		}
	}
}
