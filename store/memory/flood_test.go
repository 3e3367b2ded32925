package memory_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A million new keys do not make the store exceed MaxKeys.
func TestFloodIsBounded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		max  int
		ttl  time.Duration
		step time.Duration
		most int // the largest number of keys at any time
	}{
		{"all live", 1000, 24 * time.Hour, time.Millisecond, 1000},
		{"all live, several shards", 1 << 14, 24 * time.Hour, time.Millisecond, 1 << 14},
		{"expire soon", 1 << 20, 100 * time.Millisecond, time.Millisecond, 1 << 14}, // about 100 have not expired; the sweep removes the others
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

// A full store evicts the key that expires soonest, and rejects a new key that would
// expire before all others.
func TestFullStore(t *testing.T) {
	t.Parallel()
	const max = 8 // one sample contains all keys
	for _, tt := range []struct {
		name  string
		ttl   time.Duration
		gone  string // "": the new key is rejected
		after time.Duration
	}{
		{"outlives all", time.Hour, "{k}3", 0},
		{"outlives one", 1500 * time.Millisecond, "{k}3", 0},
		{"expires with the first", time.Second, "{k}3", 0},
		{"expires first", 500 * time.Millisecond, "", 0},
		{"one has expired", time.Millisecond, "{k}3", time.Second},
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
			if rejected := tt.gone == ""; rejected != errors.Is(err, store.ErrUnavailable) || rejected != (err != nil) {
				t.Fatalf("the new key got %v, want ErrUnavailable: %v", err, rejected)
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
				t.Errorf("the new key holds %q", got)
			}
			if err := set(st, time.Millisecond, 50, keys[7]); err != nil {
				t.Errorf("an existing key: %v", err)
			}
		})
	}
}

// If there is no room for all new keys of a script, it changes nothing and evicts no key.
func TestNoRoomForAll(t *testing.T) {
	t.Parallel()
	const max = 6
	for _, tt := range []struct {
		name string
		keys string // the keys of the script; a, b and c expire before them, x, y and z later
		good bool
		left string // the other keys that remain
	}{
		{"one", "n", true, "b c x y z"},
		{"three", "n o p", true, "x y z"},
		{"four", "n o p q", false, "a b c x y z"},
		{"two of which one is held", "n b", true, "c x y z"},
		{"three, and one of those that could be evicted", "n o p a", false, "b c x y z"},
		{"all three that could be evicted are in the step", "a b c n", false, "x y z"},
		{"all keys of the store", "a b c x y z", true, ""},
		{"more than MaxKeys", "n o p q r s t", false, "a b c x y z"},
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
					t.Errorf("key %q holds %q, want \"t1 1\": the step does not name it", k, got)
				}
			}
			if st.Len() > max {
				t.Errorf("%d keys, want at most %d", st.Len(), max)
			}
		})
	}
}

// deny runs a script on key that changes nothing, like a denied request.
func deny(t testing.TB, st *memory.Store, key string) {
	t.Helper()
	script := store.NewScript("deny", "", func(_ store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) { return reply, nil })
	if _, err := st.Eval(t.Context(), script, []string{key}, nil, nil); err != nil {
		t.Fatal(err)
	}
}

// If a store is full of keys that expire at the same instant, it accepts new keys that
// expire at that instant too, for example of aligned windows. It keeps the denied keys.
func TestFullOfKeysThatExpireTogether(t *testing.T) {
	t.Parallel()
	const max, day = 2048, 24 * time.Hour
	for _, tt := range []struct {
		name  string
		round func(ttl time.Duration) time.Duration
		step  time.Duration // between requests
	}{
		{"to the microsecond", func(ttl time.Duration) time.Duration { return ttl }, time.Millisecond},
		{"rounded up to milliseconds", func(ttl time.Duration) time.Duration { return (ttl + time.Millisecond - 1).Truncate(time.Millisecond) }, 7 * time.Microsecond},
		{"rounded up to seconds", func(ttl time.Duration) time.Duration { return (ttl + time.Second - 1).Truncate(time.Second) }, 7301 * time.Microsecond},
	} {
		for _, share := range []int{0, 10, 2} { // one key in share is denied
			t.Run(fmt.Sprintf("%s, share %d", tt.name, share), func(t *testing.T) {
				t.Parallel()
				c := newClock()
				st := memory.New(&memory.Options{MaxKeys: max, Now: c.now})
				fresh := func(key string) error {
					c.advance(tt.step)
					return set(st, tt.round(epoch.Add(day).Sub(c.now())), 1, key)
				}
				for i := range 20_000 {
					if err := fresh(fmt.Sprint("old", i)); err != nil {
						t.Fatalf("old key %d: %v", i, err)
					}
				}
				var denied []string
				n := 0
				for key := range st.All() {
					if n++; share > 0 && n%share == 0 {
						denied = append(denied, key)
						deny(t, st, key)
					}
				}
				rejected := 0
				for i := range 10_000 {
					if err := fresh(fmt.Sprint("new", i)); errors.Is(err, store.ErrUnavailable) {
						rejected++
					} else if err != nil {
						t.Fatal(err)
					}
				}
				// Where half of the keys are denied, a sample can have no other key.
				if rejected > 0 && share != 2 || rejected > 20 {
					t.Errorf("%d of 10000 new keys were rejected, want nearly none", rejected)
				}
				for i, text := range get(t, st, denied...) {
					if text == "" {
						t.Errorf("the denied key %q was evicted", denied[i])
					}
				}
				if st.Len() > max {
					t.Errorf("%d keys, want at most %d", st.Len(), max)
				}
			})
		}
	}
}

// Each new key removes a few expired keys.
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
		t.Errorf("%d keys, want the 50000 that have not expired and few others", got)
	}
	live := 0
	for range st.All() {
		live++
	}
	if live != 50_000 {
		t.Errorf("All gives %d keys, want 50000", live)
	}
}
