package memory_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A full store evicts the keys that expire soonest, unless they expire later than the new
// keys of the script. If there is no room for all new keys, it changes nothing, and evicts
// no key.
func TestRoom(t *testing.T) {
	t.Parallel()
	const max = 6 // one sample contains all keys
	for _, tt := range []struct {
		name string
		keys string        // the keys of the script; a, b and c expire after 1, 2 and 3 s, and x, y and z after an hour
		ttl  time.Duration // of the keys of the script
		full bool          // the error is ErrUnavailable
		left string        // the other keys that remain
	}{
		{"it outlives all", "n", 2 * time.Hour, false, "b c x y z"},
		{"it outlives one", "n", 1500 * time.Millisecond, false, "b c x y z"},
		{"it expires with the first", "n", time.Second, false, "b c x y z"},
		{"it expires before the first by less than rounding", "n", 800 * time.Millisecond, false, "b c x y z"},
		{"it expires before the first", "n", 799 * time.Millisecond, true, "a b c x y z"},
		{"an existing key", "z", time.Millisecond, false, "a b c x y"},
		{"three", "n o p", time.Minute, false, "x y z"},
		{"four", "n o p q", time.Minute, true, "a b c x y z"},
		{"two of which one is held", "n b", time.Minute, false, "c x y z"},
		{"three, and one of those that could be evicted", "n o p a", time.Minute, true, "b c x y z"},
		{"all three that could be evicted are in the step", "a b c n", time.Minute, true, "x y z"},
		{"all keys of the store", "a b c x y z", time.Minute, false, ""},
		{"more than MaxKeys", "n o p q r s t", time.Minute, true, "a b c x y z"},
		{"the first has expired", "n", time.Millisecond, false, "b c x y z"},
		{"NoEviction", "n", 2 * time.Hour, true, "a b c x y z"},
		{"NoEviction, and an existing key", "a", time.Hour, false, "b c x y z"},
		{"NoEviction, and the first has expired", "n", 2 * time.Hour, false, "b c x y z"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := weirtest.NewClock()
			st := memory.New(&memory.Options{MaxKeys: max, Now: c.Now, NoEviction: strings.HasPrefix(tt.name, "NoEviction")})
			for i, k := range strings.Fields("a b c x y z") {
				ttl := time.Duration(1+i) * time.Second
				if i >= 3 {
					ttl += time.Hour
				}
				if err := set(st, ttl, 1, "{k}"+k); err != nil {
					t.Fatal(err)
				}
			}
			if strings.HasSuffix(tt.name, "has expired") {
				c.Advance(time.Second)
			}
			var keys []string
			for _, k := range strings.Fields(tt.keys) {
				keys = append(keys, "{k}"+k)
			}
			before := get(t, st, keys...)
			err := set(st, tt.ttl, 2, keys...)
			if tt.full != (err != nil) || tt.full != errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("got %v, want ErrUnavailable: %v", err, tt.full)
			}
			for i, got := range get(t, st, keys...) {
				if !tt.full {
					before[i] = "t1 2"
				}
				if got != before[i] {
					t.Errorf("key %q holds %q, want %q", keys[i], got, before[i])
				}
			}
			for _, k := range strings.Fields("a b c x y z") {
				stays := strings.Contains(tt.left, k)
				if got := get(t, st, "{k}"+k)[0]; !strings.Contains(tt.keys, k) && (got == "t1 1") != stays {
					t.Errorf("key %q holds %q, want that it stays: %v", k, got, stays)
				}
			}
			if st.Len() > max {
				t.Errorf("%d keys, want at most %d", st.Len(), max)
			}
		})
	}
}

// idRules returns rules of every layout: a cell, a sorted set, and a ring of several
// keys. All allow n requests.
func idRules(n int64) map[string]algorithm.Algorithm {
	return map[string]algorithm.Algorithm{
		"FixedWindow":    algorithm.FixedWindow{Limit: n, Window: time.Hour},
		"GCRA":           algorithm.GCRA{Rate: algorithm.PerHour(n), Burst: n},
		"SlidingLog":     algorithm.SlidingLog{Limit: n, Window: time.Hour},
		"SlidingBuckets": algorithm.SlidingBuckets{Spans: []algorithm.Span{{Limit: n, Window: time.Hour}}, Width: 10 * time.Minute},
	}
}

// A key whose last request was denied is not evicted, nor are its markers. Nothing else
// protects a key, and a marker is evicted only with its key. If the store has room for one
// caller, bob is thus served only if nothing protects ann's keys.
func TestProtected(t *testing.T) {
	t.Parallel()
	const allowed, denied, replayed, full = "allowed", "denied", "replayed", "full"
	type step struct {
		op            weir.Op
		key, id, want string
	}
	window := map[string]algorithm.Algorithm{"FixedWindow": algorithm.FixedWindow{Limit: 9, Window: time.Hour}}
	lease := map[string]algorithm.Algorithm{"Concurrency": algorithm.Concurrency{Limit: 1, Lease: time.Minute}}
	for _, tt := range []struct {
		name  string
		max   int // MaxKeys
		rules map[string]algorithm.Algorithm
		steps []step
	}{
		{"an allowed request", 1, idRules(1), []step{{0, "ann", "", allowed}, {0, "bob", "", allowed}, {0, "ann", "", allowed}}},
		{"a denied request", 1, idRules(1), []step{{0, "ann", "", allowed}, {0, "ann", "", denied}, {0, "bob", "", full}}},
		{"a denied Peek", 1, idRules(1), []step{{0, "ann", "", allowed}, {weir.Peek, "ann", "", denied}, {0, "bob", "", allowed}}},
		{"a repeat", 2, idRules(2), []step{{0, "ann", "x", allowed}, {0, "ann", "x", replayed}, {0, "bob", "x", allowed}, {0, "ann", "x", allowed}}},
		{"a Settle that changes nothing", 2, idRules(2), []step{{0, "ann", "x", allowed}, {weir.Settle, "ann", "x", allowed}, {0, "bob", "x", allowed}}},
		{"the markers of a denied key", 2, idRules(1), []step{{0, "ann", "1", allowed}, {0, "ann", "2", denied}, {0, "bob", "x", full}, {0, "ann", "1", replayed}}},
		{"more IDs than keys", 3, window, []step{
			{0, "ann", "1", allowed}, {0, "ann", "2", allowed}, {0, "ann", "3", full}, {0, "ann", "1", replayed},
			{0, "bob", "x", allowed}, {0, "bob", "x", replayed},
		}},
		{"a lease that ends", 1, lease, []step{
			{0, "ann", "1", allowed}, {0, "ann", "2", denied}, {weir.Release, "ann", "1", allowed}, {0, "ann", "2", allowed}, {0, "bob", "x", allowed},
		}},
		{"the release of a lease that is not held", 1, lease, []step{
			{0, "ann", "1", allowed}, {0, "ann", "2", denied}, {weir.Release, "ann", "2", denied}, {0, "bob", "x", full}, {0, "ann", "3", denied},
		}},
	} {
		for name, a := range tt.rules {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				c := weirtest.NewClock()
				lim := weirtest.New(t, memory.New(&memory.Options{MaxKeys: tt.max, Now: c.Now}), a)
				for i, s := range tt.steps {
					c.Advance(time.Second)
					r := weir.Request{Key: weir.KeyOf(s.key), Op: s.op, ID: s.id}
					if s.op == weir.Settle {
						r.Actual = weir.ActualCost(1)
					}
					res, err := lim.Decide(t.Context(), r, nil)
					got := map[bool]string{true: allowed, false: denied}[res.Allowed]
					switch {
					case errors.Is(err, store.ErrUnavailable):
						got = full
					case err != nil:
						got = err.Error()
					case res.Replayed && s.op == weir.Consume:
						got = replayed
					}
					if got != s.want {
						t.Fatalf("step %d: %v of %s with ID %q was %s, want %s", i, s.op, s.key, s.id, got, s.want)
					}
				}
			})
		}
	}
}

// No key outlives the marker of its decision, however many shards there are and whatever
// happens at once.
func TestFloodEvictsKeysBeforeMarkers(t *testing.T) {
	t.Parallel()
	for name, a := range idRules(10) {
		for _, max := range []int{100, 1 << 12} { // one shard, and four
			t.Run(fmt.Sprint(name, max), func(t *testing.T) {
				t.Parallel()
				c := weirtest.NewClock()
				st := memory.New(&memory.Options{MaxKeys: max, Now: c.Now})
				lim := weirtest.New(t, st, a)
				const floods = 4
				full := make([]int, floods)
				var wg sync.WaitGroup
				for flood := range floods {
					wg.Go(func() {
						for i := range max {
							c.Advance(time.Millisecond)
							r := weir.Request{Key: weir.KeyOf(fmt.Sprintf("%d.%d", flood, i)), ID: "job"}
							if _, err := lim.Decide(t.Context(), r, nil); errors.Is(err, store.ErrUnavailable) {
								full[flood]++
							} else if err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
				for flood, n := range full {
					if n > max/50 {
						t.Errorf("flood %d: %d of %d new callers were rejected", flood, n, max)
					}
				}
				marked, keys := map[string]bool{}, []string(nil)
				for key := range st.All() {
					if caller, _, ok := strings.Cut(key, ":%id="); ok {
						marked[caller] = true
					} else {
						keys = append(keys, key)
					}
				}
				for _, key := range keys {
					caller := key
					if name == "SlidingBuckets" {
						caller = key[:strings.LastIndexByte(key, ':')]
					}
					if !marked[caller] {
						t.Fatalf("the store holds %q without the marker of its decision", key)
					}
				}
				if len(keys) < max/4 || st.Len() > max {
					t.Errorf("the store holds %d keys of rules and %d keys, want at least %d and at most %d", len(keys), st.Len(), max/4, max)
				}
			})
		}
	}
}

// If a store is full of keys that expire at the same instant, it accepts new keys that
// expire at that instant too, for example of aligned windows. It keeps the denied keys.
func TestFullOfKeysThatExpireTogether(t *testing.T) {
	t.Parallel()
	const max, day = 2048, 24 * time.Hour
	deny := store.NewScript("deny", "", func(_ store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) { return reply, nil })
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
				c := weirtest.NewClock()
				st := memory.New(&memory.Options{MaxKeys: max, Now: c.Now})
				fresh := func(key string) error {
					c.Advance(tt.step)
					return set(st, tt.round(weirtest.Epoch.Add(day).Sub(c.Now())), 1, key)
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
						if _, err := st.Eval(t.Context(), deny, []string{key}, nil, nil); err != nil {
							t.Fatal(err)
						}
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

// A flood of new keys does not evict keys that have consumed more than the new keys.
func TestFloodEvictsNoUsedUpKeys(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	lim := weirtest.New(t, memory.New(&memory.Options{MaxKeys: 100, Now: c.Now}), algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 60})
	allow := func(cost int64, kind string, i int) error {
		res, err := lim.AllowN(t.Context(), cost, fmt.Sprint(kind, i))
		if err == nil && !res.Allowed {
			t.Fatalf("%s %d was denied", kind, i)
		}
		return err
	}
	for i := range 100 { // each uses up its burst, which is refilled in an hour
		if err := allow(60, "used up", i); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5_000 {
		if err := allow(1, "new", i); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("new key %d: got %v, want ErrUnavailable", i, err)
		}
	}
	c.Advance(time.Hour + 2*time.Second) // a TTL is rounded up by about a second
	for i := range 100 {
		if err := allow(1, "new", i); err != nil {
			t.Fatalf("after all keys have expired, new key %d: %v", i, err)
		}
	}
}

// Concurrent scripts with several keys lose no update of a key that stays, and the store
// never holds more than MaxKeys keys, while scripts evict keys, expired keys are removed, and
// the clock moves.
func TestConcurrentFlood(t *testing.T) {
	t.Parallel()
	const max, callers, rounds = 1 << 12, 4, 5000
	c := weirtest.NewClock()
	st := memory.New(&memory.Options{MaxKeys: max, Now: c.Now})
	add := store.NewScript("add", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		for i, ttl := range []time.Duration{time.Hour, time.Hour, 10_000 * time.Hour} {
			nums, _, err := tx.Get(i)
			if err != nil {
				return nil, err
			}
			tx.Put(i, store.Nums{Tag: store.Tag{'t', '1'}, Len: 1, N: [store.MaxNums]int64{nums.N[0] + 1}}, ttl)
		}
		return reply, nil
	})
	var wg sync.WaitGroup
	full := make([]int64, callers)
	for caller := range callers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(caller), 2))
			for range rounds {
				names := []string{fmt.Sprintf("{k}0.%d", r.IntN(20_000)), fmt.Sprintf("{k}1.%d", r.IntN(20_000)), "{k}hot"}
				if _, err := st.Eval(t.Context(), add, names, nil, nil); err != nil {
					full[caller]++
				}
				c.Advance(time.Duration(r.IntN(1000)) * time.Millisecond)
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			for range st.All() {
			}
		}
	})
	wg.Wait()
	done := int64(callers * rounds)
	for _, n := range full {
		done -= n
	}
	if got, want := get(t, st, "{k}hot")[0], fmt.Sprint("t1 ", done); got != want || st.Len() > max {
		t.Errorf("the hot key holds %q, want %q, and the store %d keys, want at most %d", got, want, st.Len(), max)
	}
}

// Each new key removes a few expired keys.
func TestSweep(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	st := memory.New(&memory.Options{MaxKeys: 1 << 20, Now: c.Now})
	flood := func(kind string, n int, ttl time.Duration) {
		for i := range n {
			if err := set(st, ttl, 1, fmt.Sprint(kind, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	flood("old", 100_000, time.Second)
	c.Advance(time.Minute)
	flood("new", 50_000, time.Hour)
	live := 0
	for range st.All() {
		live++
	}
	if got := st.Len(); got < 50_000 || got > 52_500 || live != 50_000 {
		t.Errorf("%d keys, and All gives %d, want the 50000 that have not expired, and few others", got, live)
	}
}

// A fifth of MaxKeys fits, whatever the keys have in common.
func TestKeysSpread(t *testing.T) {
	const maxKeys, keys = 20_000, 4_000
	for _, format := range []string{"k%d", "{all}:user%d", "{all}user%d", "{all}:user:%d", "user:%d:{all}", "{all}:g2:%d", "{%d}:g2"} {
		st := memory.New(&memory.Options{MaxKeys: maxKeys, NoEviction: true})
		for i := range keys {
			if err := set(st, time.Hour, 1, fmt.Sprintf(format, i)); err != nil {
				t.Fatalf("%s: key %d: %v", format, i, err)
			}
		}
	}
	st := memory.New(&memory.Options{MaxKeys: maxKeys, NoEviction: true})
	for i := range keys { // one key of many limiters
		l, err := weir.New(fmt.Sprint("route", i), st, algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 10}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Allow(t.Context(), "all"); err != nil {
			t.Fatalf("limiter %d: %v", i, err)
		}
	}
}
