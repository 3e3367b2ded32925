package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// This file checks what docs/guide/cluster.md says about lost masters and slots that
// move.

// TestCoverage checks that the loss of a master and its replica stops every slot by
// default, and only its own slots with cluster-require-full-coverage no, with every adapter,
// one by one and in a batch.
func TestCoverage(t *testing.T) {
	notShort(t)
	t.Parallel()
	const callers = 60
	c := newCluster(t)
	var names []string
	var requests []weir.Request
	for i := range callers {
		name := fmt.Sprint("user", i)
		names, requests = append(names, name), append(requests, weir.Request{Key: weir.KeyOf(name)})
	}
	limiters := map[string]*weir.Limiter{}
	for _, a := range adapters {
		limiters[a.name] = newLimiter(t, a.once(t, c.Endpoint), "coverage-"+a.name, algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20})
	}
	// serves checks which callers are served.
	serves := func(when string, want []string) {
		t.Helper()
		check := func(how string, ask func(i int) error) {
			t.Helper()
			var served []string
			for i, name := range names {
				if err := ask(i); err == nil {
					served = append(served, name)
				} else if !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%s, %s, %s: got %v, want %v", when, how, name, err, store.ErrUnavailable)
				}
			}
			if !slices.Equal(served, want) {
				t.Errorf("%s, %s: %d of %d callers were served, want the %d of masters that serve", when, how, len(served), callers, len(want))
			}
		}
		for name, lim := range limiters {
			check(name, func(i int) error {
				_, err := lim.Allow(t.Context(), names[i])
				return err
			})
			answers := lim.DoMany(t.Context(), requests)
			check(name+" in a batch", func(i int) error { return answers[i].Err })
		}
	}
	serves("before", names)
	master, replica := c.master(t, "{user0}")
	var want []string // callers of other masters
	for _, name := range names {
		found, err := c.serving(t.Context(), 0, "{"+name+"}")
		if err != nil {
			t.Fatal(err)
		}
		if found[0] != master {
			want = append(want, name)
		}
	}
	c.Nodes[replica].Kill(t) // first, so that it is not promoted
	c.Nodes[master].Kill(t)
	living := func(state string) {
		eventually(t, "cluster_state:"+state, func(ctx context.Context) error {
			for i, n := range c.nodes {
				if i == master || i == replica {
					continue
				}
				if info, err := n.ClusterInfo(ctx).Result(); err != nil || !strings.Contains(info, "cluster_state:"+state) {
					return fmt.Errorf("node %d: %s, %v", i, info, err)
				}
			}
			return nil
		})
	}
	living("fail")
	serves("with full coverage", nil)
	for i, n := range c.nodes {
		if i != master && i != replica {
			if err := n.ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	living("ok")
	serves("without full coverage", want)
	t.Logf("of %d callers, none was served with full coverage, and %d without", callers, len(want))
}

// TestOpenSlot checks which decisions a slot serves while it moves. A decision over
// several keys needs all of them on one node, so it fails if it would create one, until
// the slot is closed. A move that is aborted leaves the slot in one of the same states.
func TestOpenSlot(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"redis-7.0", "redis-8.0", "valkey-8.1"} {
		t.Run(version, func(t *testing.T) {
			if version != "redis-8.0" {
				notShort(t)
			}
			some := adapters[:1]
			if version == "redis-8.0" {
				some = adapters
			}
			openSlot(t, newClusterOf(t, version).calm(t), some)
		})
	}
}

// known is the segment of a caller who has made decisions before the slot is opened.
const known = "ann"

// A slotUser has limiters over one store, whose keys are all in the slot of known.
type slotUser struct {
	name              string
	one, two, buckets *weir.Limiter
}

func newSlotUser(t *testing.T, c *cluster, a adapter) *slotUser {
	st := a.once(t, c.Endpoint)
	window := algorithm.FixedWindow{Limit: 1000, Window: time.Hour}
	limiter := func(name string, rules ...weir.Rule) *weir.Limiter {
		lim, err := weir.NewPolicy(st, weir.Policy{Name: name + " " + a.name, Segments: []string{"customer"}, Rules: rules}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return lim
	}
	u := &slotUser{
		name: a.name,
		one:  limiter("one", weir.Rule{Name: "a", Algorithm: window}),
		two:  limiter("two", weir.Rule{Name: "a", Algorithm: window}, weir.Rule{Name: "b", Algorithm: algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1000}}),
		buckets: limiter("buckets", weir.Rule{Name: "a", Algorithm: algorithm.SlidingBuckets{
			Width: time.Second, Spans: []algorithm.Span{{Limit: 1000, Window: time.Minute}},
		}}),
	}
	for lim, id := range map[*weir.Limiter]string{u.one: "known", u.two: "", u.buckets: ""} {
		if _, err := lim.Decide(t.Context(), weir.Request{Key: weir.KeyOf(known), ID: id}, nil); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

// A slotState is what an open slot makes of decisions.
type slotState struct {
	name  string
	split bool // the keys of a known caller of two rules are on two nodes
	open  bool // decisions fail that would create one of several keys
	loops bool // decisions of new callers are redirected forever
}

// check makes each kind of decision. stranger is the segment of a new caller.
func (u *slotUser) check(t *testing.T, s slotState, stranger string) {
	t.Helper()
	for _, tt := range []struct {
		what     string
		lim      *weir.Limiter
		name, id string
		fails    bool
	}{
		{"a known caller of one rule", u.one, known, "", false},
		{"a known caller of two rules", u.two, known, "", s.split},
		{"a known ID", u.one, known, "known", false},
		{"a new ID", u.one, known, s.name, s.open},
		{"a new caller of one rule", u.one, stranger, "", s.loops},
		{"a new caller of two rules", u.two, stranger, "", s.open},
		{"a new caller of SlidingBuckets", u.buckets, stranger, "", s.open},
		{"a known caller of SlidingBuckets", u.buckets, known, "", s.open},
	} {
		limit := time.Minute
		if s.loops && tt.fails {
			limit = 250 * time.Millisecond // some clients follow redirections until the call ends
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := tt.lim.Decide(ctx, weir.Request{Key: weir.KeyOf(tt.name), ID: tt.id}, nil)
		cancel()
		if (err != nil) != tt.fails {
			t.Errorf("%s: %s: %s: got %v, want an error: %v", u.name, s.name, tt.what, err, tt.fails)
		}
		if err == nil {
			continue
		}
		tryAgain := errors.Is(err, store.ErrUnavailable) && strings.Contains(err.Error(), "TRYAGAIN")
		unavailable := errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
		if !tryAgain && !(s.loops && unavailable) || errors.Is(err, store.ErrMisconfigured) {
			t.Errorf("%s: %s: %s: got %v, want that the store is unavailable", u.name, s.name, tt.what, err)
		}
	}
}

// stranger returns another segment of a key in the slot of known. next counts those that it has tried.
func stranger(next *int) string {
	for {
		*next++
		if name := fmt.Sprint("new", *next); store.Slot("{"+name+"}") == store.Slot("{"+known+"}") {
			return name
		}
	}
}

func openSlot(t *testing.T, c *cluster, some []adapter) {
	var users []*slotUser
	for _, a := range some {
		users = append(users, newSlotUser(t, c, a))
	}
	slot, next := store.Slot("{"+known+"}"), 0
	check := func(s slotState) {
		t.Helper()
		for _, u := range users {
			u.check(t, s, stranger(&next))
		}
	}
	check(slotState{name: "before"})

	from, _ := c.master(t, "{"+known+"}")
	to := (from + 1) % 3
	id := func(node int) string {
		text, err := c.nodes[node].Do(t.Context(), "CLUSTER", "MYID").Text()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	tell := func(node int, args ...any) {
		t.Helper()
		if err := c.nodes[node].Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	// move moves the keys that contain part.
	move := func(part string) {
		keys, err := c.nodes[from].ClusterGetKeysInSlot(t.Context(), slot, 1000).Result()
		if err != nil {
			t.Fatal(err)
		}
		moved := 0
		for _, key := range keys {
			if strings.Contains(key, part) {
				c.migrate(t, from, to, key)
				moved++
			}
		}
		if moved == 0 {
			t.Errorf("of %q, no key was moved with %q", keys, part)
		}
	}
	importing := func() { tell(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", id(from)) }

	// The move can be aborted at each of these points.
	importing()
	check(slotState{name: "only the importing node has opened the slot"})
	tell(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", id(to))
	check(slotState{name: "no key has moved", open: true})
	move(":{" + known + "}:b") // one of the two keys of each known caller of two rules
	check(slotState{name: "some keys have moved", open: true, split: true})
	tell(to, "CLUSTER", "SETSLOT", slot, "STABLE")
	check(slotState{name: "only the migrating node has opened the slot", open: true, split: true, loops: true})
	importing()
	move("")
	check(slotState{name: "all keys have moved", open: true})
	tell(to, "CLUSTER", "SETSLOT", slot, "NODE", id(to))
	tell(from, "CLUSTER", "SETSLOT", slot, "NODE", id(to))
	c.agree(t, "{"+known+"}", to)
	check(slotState{name: "closed"})
}

// TestMigrateSlots checks that Valkey moves a slot without opening it: every decision
// that would create one of several keys is made meanwhile.
func TestMigrateSlots(t *testing.T) {
	notShort(t)
	t.Parallel()
	c := newClusterOf(t, "valkey-9.1").calm(t)
	u, next := newSlotUser(t, c, adapters[0]), 0
	from, _ := c.master(t, "{"+known+"}")
	to, slot := (from+1)%3, store.Slot("{"+known+"}")
	id, err := c.nodes[to].Do(t.Context(), "CLUSTER", "MYID").Text()
	if err != nil {
		t.Fatal(err)
	}
	u.check(t, slotState{name: "before"}, stranger(&next))
	if err := c.nodes[from].Do(t.Context(), "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", id).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the slot to move", func(ctx context.Context) error {
		found, err := c.serving(ctx, from, "{"+known+"}")
		u.check(t, slotState{name: "during the move, or after it"}, stranger(&next))
		if err == nil && found[0] != to {
			err = errors.New("it has not moved")
		}
		return err
	})
}
