package memory_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A million keys that were never seen before do not make the store larger than it may
// be, whether each lives long or is dead before the next comes.
func TestFloodIsBounded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		max  int
		ttl  time.Duration
		step time.Duration
		most int // keys at any time
	}{
		{"all live", 1000, 24 * time.Hour, time.Millisecond, 1000},
		{"all live, several shards", 1 << 14, 24 * time.Hour, time.Millisecond, 1 << 14},
		{"dead soon", 1 << 20, 100 * time.Millisecond, time.Millisecond, 1 << 14}, // 100 alive: the rest waits for the sweep
		{"one key", 1, time.Hour, time.Millisecond, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := 1_000_000
			if testing.Short() || raceEnabled {
				n = 100_000
			}
			c := newClock()
			st := memory.New(&memory.Options{MaxKeys: tt.max, Now: c.now})
			key := []byte("k.......")
			script := put(1)
			args := []store.Arg{store.IntArg(tt.ttl.Milliseconds()), store.IntArg(1)}
			var reply []store.Value
			most := 0
			for i := range n {
				key = fmt.Appendf(key[:0], "k%d", i)
				var err error
				if reply, err = st.Eval(t.Context(), script, []string{string(key)}, args, reply[:0]); err != nil {
					t.Fatalf("key %d: %v", i, err)
				}
				c.advance(tt.step)
				if i%1000 == 0 {
					most = max(most, st.Len())
				}
			}
			if most = max(most, st.Len()); most > tt.most {
				t.Errorf("held %d keys, want at most %d", most, tt.most)
			}
		})
	}
}

// When the store is full, what expires before the newcomer goes, and a newcomer that
// would expire first is refused.
func TestFullStore(t *testing.T) {
	t.Parallel()
	const max = 8 // one sample sees all
	for _, tt := range []struct {
		name  string
		ttl   time.Duration
		gone  string // "": the newcomer is refused
		after time.Duration
	}{
		{"outlives all", time.Hour, "{k}3", 0},
		{"outlives one", 1500 * time.Millisecond, "{k}3", 0},
		{"expires with the first", time.Second, "", 0},
		{"expires first", 500 * time.Millisecond, "", 0},
		{"one is dead", time.Millisecond, "{k}3", time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			st := memory.New(&memory.Options{MaxKeys: max, Now: c.now})
			var keys []string
			for i := range max { // key 3 is the first to expire
				keys = append(keys, fmt.Sprintf("{k}%d", i))
				if err := set(st, time.Duration(1+(i+5)%max)*time.Second, int64(i), keys[i]); err != nil {
					t.Fatal(err)
				}
			}
			c.advance(tt.after)
			err := set(st, tt.ttl, 100, "{k}new")
			if refused := tt.gone == ""; refused != errors.Is(err, store.ErrUnavailable) || refused != (err != nil) {
				t.Fatalf("the newcomer got %v, want ErrUnavailable: %v", err, refused)
			}
			for i, got := range get(t, st, keys...) {
				want := fmt.Sprintf("t1 %d", i)
				if keys[i] == tt.gone {
					want = ""
				}
				if got != want {
					t.Errorf("key %q holds %q, want %q", keys[i], got, want)
				}
			}
			if got := get(t, st, "{k}new")[0]; (got != "") != (tt.gone != "") {
				t.Errorf("the newcomer holds %q", got)
			}
			if err := set(st, time.Millisecond, 50, keys[7]); err != nil {
				t.Errorf("a key that is there: %v", err)
			}
		})
	}
}

// A step that cannot have room for all its keys changes none, and nobody goes for it.
func TestNoRoomForAll(t *testing.T) {
	t.Parallel()
	const max = 6
	for _, tt := range []struct {
		name string
		keys string // of the step; a, b and c expire before it, and x, y and z after
		good bool
		left string // of the others
	}{
		{"one", "n", true, "b c x y z"},
		{"three", "n o p", true, "x y z"},
		{"four", "n o p q", false, "a b c x y z"},
		{"two of which one is held", "n b", true, "c x y z"},
		{"three beside all that could go", "n o p a", false, "b c x y z"},
		{"all three that could go are in the step", "a b c n", false, "x y z"},
		{"all that is held", "a b c x y z", true, ""},
		{"more than ever fits", "n o p q r s t", false, "a b c x y z"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			st := memory.New(&memory.Options{MaxKeys: max, Now: c.now})
			for i, k := range strings.Fields("a b c x y z") {
				ttl := time.Duration(1+i) * time.Second
				if i >= 3 {
					ttl += time.Hour
				}
				if err := set(st, ttl, 1, "{k}"+k); err != nil {
					t.Fatal(err)
				}
			}
			var keys []string
			for _, k := range strings.Fields(tt.keys) {
				keys = append(keys, "{k}"+k)
			}
			before := get(t, st, keys...)
			err := set(st, time.Minute, 2, keys...)
			if tt.good != (err == nil) || !tt.good && !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("got %v, want it to work: %v", err, tt.good)
			}
			for i, got := range get(t, st, keys...) {
				want := before[i]
				if tt.good {
					want = "t1 2"
				}
				if got != want {
					t.Errorf("key %q holds %q, want %q", keys[i], got, want)
				}
			}
			for _, k := range strings.Fields(tt.left) {
				if got := get(t, st, "{k}"+k)[0]; got != "t1 1" {
					t.Errorf("key %q holds %q: it is no part of the step", k, got)
				}
			}
			if st.Len() > max {
				t.Errorf("%d keys, want at most %d", st.Len(), max)
			}
		})
	}
}

// A flood of callers does not let in the one who is being denied: who used up more
// than a newcomer stays when the newcomer finds no room.
func TestFloodFreesNobody(t *testing.T) {
	t.Parallel()
	c := newClock()
	st := memory.New(&memory.Options{MaxKeys: 100, Now: c.now})
	limit, err := algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 60}.NewLimit()
	if err != nil {
		t.Fatal(err)
	}
	p, err := algorithm.Compose(limit.Fragment())
	if err != nil {
		t.Fatal(err)
	}
	take := func(key string, cost int64) (bool, error) {
		args := limit.AppendArgs(p.AppendNow(nil, 0), algorithm.Request{Cost: cost})
		reply, err := st.Eval(t.Context(), p.Decide, []string{key}, args, nil)
		if err != nil {
			return false, err
		}
		n, _, err := p.Outcome(reply)
		return n == 1, err
	}
	for i := range 100 { // all are used up: full again in an hour
		if ok, err := take(fmt.Sprint("denied", i), 60); !ok || err != nil {
			t.Fatalf("caller %d: %v, %v", i, ok, err)
		}
	}
	refused := 0
	for i := range 20_000 {
		if _, err := take(fmt.Sprint("new", i), 1); errors.Is(err, store.ErrUnavailable) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			denied := fmt.Sprint("denied", i/100%100)
			if ok, err := take(denied, 60); ok || err != nil {
				t.Fatalf("after %d newcomers, %s got %v, %v", i, denied, ok, err)
			}
		}
	}
	if refused != 20_000 {
		t.Errorf("%d of 20000 newcomers were refused, want all", refused)
	}
	c.advance(time.Hour + time.Second)
	for i := range 100 {
		if ok, err := take(fmt.Sprint("new", i), 1); !ok || err != nil {
			t.Fatalf("once all is dead, newcomer %d got %v, %v", i, ok, err)
		}
	}
}

// The dead go although nobody asks for them, a few with each key that comes.
func TestSweep(t *testing.T) {
	t.Parallel()
	c := newClock()
	st := memory.New(&memory.Options{MaxKeys: 1 << 20, Now: c.now})
	for i := range 100_000 {
		if err := set(st, time.Second, 1, fmt.Sprint("old", i)); err != nil {
			t.Fatal(err)
		}
	}
	c.advance(time.Minute)
	for i := range 50_000 {
		if err := set(st, time.Hour, 1, fmt.Sprint("new", i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := st.Len(); got < 50_000 || got > 52_500 {
		t.Errorf("%d keys, want the 50000 that live and few others", got)
	}
	live := 0
	for range st.All() {
		live++
	}
	if live != 50_000 {
		t.Errorf("All gives %d keys, want 50000", live)
	}
}

// Not even newcomers that would expire later displace a caller who is being denied;
// they displace each other, and a caller who is allowed again can go as well.
func TestFloodOfLongerLived(t *testing.T) {
	t.Parallel()
	c := newClock()
	st := memory.New(&memory.Options{MaxKeys: 100, Now: c.now})
	lim, err := weir.New(st, algorithm.FixedWindow{Limit: 1, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	allow := func(caller string) bool {
		t.Helper()
		res, err := lim.Allow(t.Context(), caller)
		if err != nil {
			t.Fatal(err)
		}
		return res.Allowed
	}
	if !allow("bad") || allow("bad") {
		t.Fatal("the second request of bad passed, or not even the first")
	}
	for i := range 5000 {
		c.advance(time.Millisecond)
		if !allow(fmt.Sprint("new", i)) {
			t.Fatalf("newcomer %d was denied", i)
		}
		if i%50 == 0 && allow("bad") {
			t.Fatalf("bad was let pass after %d newcomers", i)
		}
	}
	c.advance(time.Hour)
	if !allow("bad") {
		t.Error("bad is denied after its window")
	}
	for i := range 5000 {
		c.advance(time.Millisecond)
		allow(fmt.Sprint("later", i))
	}
	if !allow("bad") {
		t.Error("bad, who was allowed last, was kept through a flood of 5000 in a store of 100")
	}
}
