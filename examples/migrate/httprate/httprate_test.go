package httprate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/examples/migrate/httprate"
	"github.com/weir-go/weir/examples/migrate/internal/traffic"
	"github.com/weir-go/weir/store/memory"
)

// Virtual time starts at 946684800, a multiple of a minute, so both have the same
// windows.
func TestTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := httprate.Before(traffic.OK)
		after, err := httprate.After(memory.New(nil), traffic.OK)
		if err != nil {
			t.Fatal(err)
		}
		traffic.Play(t, []traffic.Row{
			// Reset was the end of the window. Now it is the end of the next window.
			{At: 10 * time.Second, Key: "192.0.2.1", Before: "200 3 2 946684860 -", After: "200 3 2 946684920 -"},
			{At: 10 * time.Second, Key: "192.0.2.1", Before: "200 3 1 946684860 -", After: "200 3 1 946684920 -"},
			{At: 10 * time.Second, Key: "2001:db8::1", Before: "200 3 2 946684860 -", After: "200 3 2 946684920 -"},
			{At: 10 * time.Second, Key: "2001:db8::2", Before: "200 3 1 946684860 -", After: "200 3 1 946684920 -"},
			{At: 20 * time.Second, Key: "192.0.2.1", Before: "200 3 0 946684860 -", After: "200 3 0 946684920 -"},
			// Retry-After was the length of the window. Now it is exact.
			{At: 20 * time.Second, Key: "192.0.2.1", Before: "429 3 0 946684860 60", After: "429 3 0 946684920 61"},
			{At: 25 * time.Second, Key: "192.0.2.1", Before: "429 3 0 946684860 60", After: "429 3 0 946684920 56"},
			{At: 70 * time.Second, Key: "192.0.2.1", Before: "429 3 0 946684920 60", After: "429 3 0 946684920 11"},
			{At: 85 * time.Second, Key: "192.0.2.1", Before: "200 3 0 946684920 -", After: "200 3 0 946684980 -"},
			// The estimate is 2.25: it was rounded to 2, and is now rounded up to 3.
			{At: 95 * time.Second, Key: "192.0.2.1", Before: "200 3 0 946684920 -", After: "429 3 0 946684980 6"},
			{At: 10 * time.Minute, Key: "192.0.2.1", Before: "200 3 2 946685460 -", After: "200 3 2 946685520 -"},
			{At: 10 * time.Minute, Key: "no address", Before: "428 - - - -", After: "400 - - - -"},
		}, time.Sleep, traffic.Ask(before), traffic.Ask(after))
	})
}

// In memory, the windows of httprate start with the limiter, and those of weir at
// multiples.
func TestWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * time.Second)
		before := httprate.Before(traffic.OK)
		after, err := httprate.After(memory.New(nil), traffic.OK)
		if err != nil {
			t.Fatal(err)
		}
		traffic.Play(t, []traffic.Row{
			{At: 0, Key: "192.0.2.1", Before: "200 3 2 946684890 -", After: "200 3 2 946684920 -"},
			{At: 40 * time.Second, Key: "192.0.2.2", Before: "200 3 2 946684890 -", After: "200 3 2 946684980 -"},
		}, time.Sleep, traffic.Ask(before), traffic.Ask(after))
	})
}
