package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

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
		st := memory.New(&memory.Options{Now: func() time.Time { return tt.at }})
		err := set(st, time.Second, 1, "a")
		_, merr := st.MGet(context.Background(), []string{"a"}, nil)
		_, _, lerr := st.List(context.Background(), "", "", nil)
		for _, err := range []error{err, merr, lerr} {
			if tt.good != (err == nil) || !tt.good && !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: got %v, want it to work: %v", tt.name, err, tt.good)
			}
		}
		if got := st.Len() == 1; got != tt.good {
			t.Errorf("%s: Len() = %d", tt.name, st.Len())
		}
		if got, err := st.Time(context.Background()); tt.good && (err != nil || !got.Equal(tt.at)) {
			t.Errorf("%s: Time() = %v, %v, want %v", tt.name, got, err, tt.at)
		}
	}
}

// If the clock panics, no shard stays locked.
func TestClockPanics(t *testing.T) {
	t.Parallel()
	armed := false
	st := memory.New(&memory.Options{Now: func() time.Time {
		if armed {
			panic("bomb")
		}
		return weirtest.Epoch
	}})
	if err := set(st, time.Hour, 1, "a"); err != nil {
		t.Fatal(err)
	}
	armed = true
	for name, call := range map[string]func(){
		"Eval": func() { _ = set(st, time.Hour, 1, "a") },
		"MGet": func() { get(t, st, "a") },
		"List": func() { _, _, _ = st.List(t.Context(), "", "", nil) },
		"All":  func() { st.All()(func(string, time.Duration) bool { return true }) },
	} {
		func() {
			defer func() {
				if p := recover(); p != "bomb" {
					t.Errorf("%s recovered %v, want the panic of the clock", name, p)
				}
			}()
			call()
		}()
		st.Len() // it waits for the locks: a shard that stays locked ends the test by its timeout
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

// All keys have one clock, and a decision without a script reads it too. So a call reads no
// earlier time than a call before it on one of its keys, whichever its other keys are.
func TestOneClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		p := weir.Policy{Name: "api", Segments: []string{"tenant", "user"}, Rules: []weir.Rule{
			{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1000}},
			{Name: "user", Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 10}},
		}}
		direct, script := weirtest.NewPolicy(t, st, p), weirtest.NewPolicy(t, struct{ store.Store }{st}, p)
		st.Skew(time.Second)
		for i := range 200 {
			user := fmt.Sprint("user", i)
			reply, err := st.Eval(t.Context(), put(2), []string{"{acme}shared", "{acme}" + user}, []store.Arg{store.IntArg(1000), store.IntArg(1), store.IntArg(1)}, nil)
			if want := time.Now().Add(time.Second).UnixMicro(); err != nil || reply[0].Int() != want {
				t.Fatalf("%s: the clock reads %v, %v, want %v", user, reply, err, want)
			}
			if _, err := script.Allow(t.Context(), "acme", user); err != nil {
				t.Fatal(err)
			}
			got, err := direct.Peek(t.Context(), "acme", user)
			if err != nil {
				t.Fatal(err)
			}
			if want, err := script.Peek(t.Context(), "acme", user); got != want || err != nil {
				t.Fatalf("%s: direct %+v, script %+v, %v", user, got, want, err)
			}
		}
	})
}
