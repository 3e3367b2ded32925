package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

// TestLayouts pins the layouts of stored values, so that a version reads what an earlier one
// wrote. Each value is written as docs/reference/keys.md describes it, a peek shows what is left,
// and a request replaces the value, or adds one to a set or a list. It is 2026-01-01 00:00:00 UTC.
func TestLayouts(t *testing.T) {
	t.Parallel()
	const minute = time.Minute
	gcra, window := algorithm.GCRA{Rate: algorithm.PerMinute(10), Burst: 5}, algorithm.FixedWindow{Limit: 5, Window: minute}
	for _, tt := range []struct {
		a      algorithm.Algorithm
		at     int64 // the score of a member of a set
		held   string
		left   int64
		reset  time.Duration
		then   string // what the key holds after a request
		marker string // of that request, from HELD on
	}{
		{gcra, 0, "g2 1767225612000000", 3, 12 * time.Second, "g2 1767225618000000", ""},
		{gcra, 0, "g2 1767225612000000 0 0 7 0 0", 3, 12 * time.Second, "g2 1767225618000000 0 0 7 0 0", ""},
		{algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}, 0, "g2 1767225600333333 1 3", 4, 333334 * time.Microsecond, "g2 1767225600666666 2 3", ""},
		{algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 4}, 0, "q2 1767225602000000", 0, 2 * time.Second, "q2 1767225603000000", ""},
		{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}, 0, "t2 1767225599500000 2", 3, 1500 * time.Millisecond, "t2 1767225599500000 3", ""},
		{window, 0, "f2 1767225630000000 2", 3, 30 * time.Second, "f2 1767225630000000 3", ""},
		{window, 0, "f2 1767225630000000 2 7", 3, 30 * time.Second, "f2 1767225630000000 3 7", "i2 7 1 1 1 "},
		{algorithm.Calendar{Limit: 5, Every: algorithm.Day}, 0, "y1 1767312000000000 2", 3, 24 * time.Hour, "y1 1767312000000000 3", ""},
		{algorithm.SlidingCounter{Limit: 10, Window: minute}, 0, "s2 1767225600000000 2 4", 4, 2 * minute, "s2 1767225600000000 3 4", ""},
		{decisions.Quarters, 0, "b2 1767225600000000 2", 3, 2 * minute, "b2 1767225600000000 3", ""},
		{algorithm.SlidingLog{Limit: 5, Window: minute}, 1767225600000000, "l3 1767225600000000 0000001 0 2", 3, minute, "l3 1767225600000000 0000002 2 1", ""},
		{algorithm.MetadataWindow{Limit: 5, Window: minute}, 1, "m2 1767225630000000 2 eve", 3, 30 * time.Second, "m2 1767225630000000 3 ann", ""},
		{algorithm.Concurrency{Limit: 2, Lease: minute}, 1767225630000000, "c2 a", 1, 30 * time.Second, "c2 b", ""},
		{algorithm.Pause{}, 1767225630000000, "p1 a", 0, 30 * time.Second, "p1 a", ""},
	} {
		r := suite.Run(t, mutation{}.host(), suite.Of("Layout", "", func(d *decisions.T) {
			l, key := d.Limiter(decisions.NewClock(), decisions.One(tt.a)), d.KeysOf("ann", "one", tt.a)[:1]
			if tt.at == 0 {
				d.Eval(scripts.PutText, key, store.StringArg(tt.held))
			} else {
				d.Change(key[0], scripts.SetChange{Add: store.Member{Score: tt.at, Text: tt.held}})
			}
			if got := d.Peek(l, 1, "ann"); got.Remaining != tt.left || got.ResetAfter != tt.reset {
				t.Errorf("%T with the value %q: got %+v, want %d tokens left, and a ResetAfter of %v", tt.a, tt.held, got, tt.left, tt.reset)
			}
			req := weir.Request{Key: weir.KeyOf("ann")}
			switch kind := d.KindOf(tt.a); {
			case kind.Leases:
				req.ID = "b"
			case kind.Entries:
				req.Metadata = "ann"
			case tt.marker != "":
				req.ID = "x"
			case tt.left == 0:
				req.MaxWait = minute
			}
			d.Do(l, req)
			then := d.MGet(key...)[0].Str()
			if tt.at > 0 {
				then = d.Change(key[0], scripts.SetChange{})[3].Str()
			}
			if then != tt.then {
				t.Errorf("%T with the value %q: a request makes it %q, want %q", tt.a, tt.held, then, tt.then)
			}
			if tt.marker != "" {
				if got := d.MGet(d.MarkersOf(req, decisions.One(tt.a))...)[0].Str(); !strings.HasPrefix(got, tt.marker) {
					t.Errorf("%T: the marker is %q, want that it begins with %q", tt.a, got, tt.marker)
				}
			}
		}, decisions.New))
		if len(r.Failures) > 0 {
			t.Errorf("%T: %s", tt.a, r.Failures)
		}
	}
}
