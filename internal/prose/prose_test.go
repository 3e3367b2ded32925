package prose_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir/internal/prose"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-1: "0 s", 0: "0 s", 1: "1 µs", 1001: "2 µs", time.Millisecond: "1 ms", 998*time.Millisecond + 1: "999 ms", 999*time.Millisecond + 1: "1 s",
		1700 * time.Millisecond: "1.7 s", 1701 * time.Millisecond: "1.8 s", 60*time.Second - 1: "1 min", time.Minute: "1 min", 100 * time.Second: "1 min 40 s",
		time.Hour - 1: "1 h", time.Hour: "1 h", time.Hour + 1: "1 h 1 min", 24*time.Hour - 1: "1 d", 101 * time.Hour: "4 d 5 h", 1<<63 - 1: "106751 d 23 h",
	} {
		if got := prose.Duration(d); got != want {
			t.Errorf("%d ns: got %q, want %q", d, got, want)
		}
	}
}
