package memory_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// epoch is the start of virtual time.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A clock shows the time that a test sets.
type clock struct{ micros atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.set(epoch)
	return c
}

func (c *clock) now() time.Time          { return time.UnixMicro(c.micros.Load()) }
func (c *clock) set(t time.Time)         { c.micros.Store(t.UnixMicro()) }
func (c *clock) advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

// put returns a script that sets n keys. Its first argument is the TTL in milliseconds,
// and the others are the integers to set. It replies with the time of the clock.
func put(n int) *store.Script {
	return store.NewScript("put", "", func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		for i := range n {
			nums := store.Nums{Tag: store.Tag{'t', '1'}}
			for _, a := range args[1:] {
				nums.N[nums.Len] = a.Int()
				nums.Len++
			}
			tx.Put(i, nums, time.Duration(args[0].Int())*time.Millisecond)
		}
		return append(reply, store.IntegerValue(tx.Now())), nil
	})
}

// set sets keys to n, with this TTL.
func set(st *memory.Store, ttl time.Duration, n int64, keys ...string) error {
	_, err := st.Eval(context.Background(), put(len(keys)), keys, []store.Arg{store.IntArg(ttl.Milliseconds()), store.IntArg(n)}, nil)
	return err
}

// get returns the text of each key, "" for a missing key.
func get(t testing.TB, st *memory.Store, keys ...string) []string {
	t.Helper()
	values, err := st.MGet(context.Background(), keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = v.Str()
	}
	return texts
}

func TestClock(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		at   time.Time
		good bool
	}{
		{"first microsecond", time.UnixMicro(1), true},
		{"last microsecond", time.UnixMicro(1<<52 - 1), true},
		{"zero time", time.Time{}, false},
		{"1970", time.UnixMicro(0), false},
		{"before", time.UnixMicro(-1), false},
		{"too late", time.UnixMicro(1 << 52), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			st := memory.New(&memory.Options{Now: func() time.Time { return tt.at }})
			err := set(st, time.Second, 1, "a")
			_, merr := st.MGet(context.Background(), []string{"a"}, nil)
			for _, err := range []error{err, merr} {
				if tt.good != (err == nil) || !tt.good && !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("got %v, want it to work: %v", err, tt.good)
				}
			}
			if got, want := st.Len(), map[bool]int{true: 1}[tt.good]; got != want {
				t.Errorf("Len() = %d, want %d", got, want)
			}
			if got, err := st.Time(context.Background()); tt.good && (err != nil || !got.Equal(tt.at)) {
				t.Errorf("Time() = %v, %v, want %v", got, err, tt.at)
			}
		})
	}
}

// A key exists until the last microsecond of its TTL.
func TestExpiry(t *testing.T) {
	t.Parallel()
	c := newClock()
	st := memory.New(&memory.Options{Now: c.now})
	if err := set(st, 2*time.Millisecond, 7, "a"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		after time.Duration
		want  string
	}{
		{0, "t1 7"},
		{2*time.Millisecond - time.Microsecond, "t1 7"},
		{2 * time.Millisecond, ""},
		{time.Hour, ""},
	} {
		c.set(epoch.Add(tt.after))
		if got := get(t, st, "a")[0]; got != tt.want {
			t.Errorf("after %v: got %q, want %q", tt.after, got, tt.want)
		}
		live := map[string]time.Duration{}
		for key, ttl := range st.All() {
			live[key] = ttl
		}
		if want := 2*time.Millisecond - tt.after; tt.want != "" && live["a"] != want || tt.want == "" && len(live) != 0 {
			t.Errorf("after %v: All gives %v", tt.after, live)
		}
	}
}

// A store that was used in a testing/synctest bubble uses the real time again outside of
// the bubble.
func TestClockOfBubbles(t *testing.T) {
	st := memory.New(nil)
	now := func() int64 {
		reply, err := st.Eval(context.Background(), put(1), []string{"k"}, []store.Arg{store.IntArg(1000), store.IntArg(1)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return reply[0].Int()
	}
	for range 2 {
		if got, real := now(), time.Now().UnixMicro(); got < real-time.Hour.Microseconds() || got > real+time.Hour.Microseconds() {
			t.Errorf("outside of a bubble the clock reads %v at %v", time.UnixMicro(got), time.UnixMicro(real))
		}
		for range 2 { // each bubble has its own time
			synctest.Test(t, func(*testing.T) {
				for range 30 {
					if got, want := now(), time.Now().UnixMicro(); got != want {
						t.Errorf("in a bubble the clock reads %v at %v", time.UnixMicro(got), time.UnixMicro(want))
					}
					time.Sleep(11 * time.Millisecond)
				}
			})
		}
	}
}

// All keys have one clock. So a call reads no earlier time than a call before it on one of its
// keys, whichever its other keys are.
func TestOneClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		st.Skew(time.Second)
		for i := range 200 {
			keys := []string{"{a}shared", fmt.Sprint("{a}own", i)}
			reply, err := st.Eval(t.Context(), put(2), keys, []store.Arg{store.IntArg(1000), store.IntArg(1), store.IntArg(1)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := reply[0].Int(), time.Now().Add(time.Second).UnixMicro(); got != want {
				t.Fatalf("%s: the clock reads %v, want %v", keys[1], time.UnixMicro(got), time.UnixMicro(want))
			}
		}
	})
}
