package memory

import (
	"testing"
	"time"
)

// TestAnchor checks that the reading of an anchor is one that follows another one at once. Times
// are microseconds.
func TestAnchor(t *testing.T) {
	for _, tt := range []struct {
		name     string
		readings []int64
		want     int64
	}{
		{"at once", []int64{0, 50, 60}, 50},
		{"suspended in the first reading", []int64{0, 1, 9000}, 1},
		{"suspended in the second reading", []int64{0, 8000, 8010}, 8010},
		{"suspended twice", []int64{0, 8000, 9000, 9001}, 9001},
		{"always suspended", []int64{0, 51, 102, 153, 204, 255, 306, 357, 408, 459, 510, 511}, 510},
		{"a clock that stands still", []int64{7, 7, 8}, 7},
	} {
		n := -1
		got := reading(func() time.Time {
			n++
			return time.UnixMicro(tt.readings[n])
		})
		if got.UnixMicro() != tt.want {
			t.Errorf("%s: got the reading at %d µs, want %d", tt.name, got.UnixMicro(), tt.want)
		}
	}
}
