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

// newClusterStore returns a store whose client has the settings of docs/guide/cluster.md.
func newClusterStore(t *testing.T, c *cluster) store.Store {
	t.Helper()
	st, closeClient, err := boundedGoredis(c.Endpoint, longTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeClient)
	return st
}

// TestCoverage checks that the loss of a master and its replica stops every slot by
// default, and only its own slots with cluster-require-full-coverage no.
func TestCoverage(t *testing.T) {
	notShort(t)
	t.Parallel()
	const callers = 60
	c := newCluster(t)
	lim, err := weir.New("coverage", newClusterStore(t, c), algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}, nil)
	if err != nil {
		t.Fatal(err)
	}
	served := func() (names []string) {
		for i := range callers {
			name := fmt.Sprint("user", i)
			if _, err := lim.Allow(t.Context(), name); err == nil {
				names = append(names, name)
			} else if !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: got %v, want %v", name, err, store.ErrUnavailable)
			}
		}
		return names
	}
	if n := len(served()); n != callers {
		t.Fatalf("before: %d of %d callers were served", n, callers)
	}
	master, replica := c.master(t, "{user0}")
	var want []string // callers of other masters
	for i := range callers {
		name := fmt.Sprint("user", i)
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
	if names := served(); len(names) > 0 {
		t.Errorf("with full coverage: %d of %d callers were served, want none", len(names), callers)
	}
	for i, n := range c.nodes {
		if i != master && i != replica {
			if err := n.ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	living("ok")
	names := served()
	if !slices.Equal(names, want) {
		t.Errorf("without full coverage: %d callers were served, want the %d of the other masters", len(names), len(want))
	}
	t.Logf("of %d callers, none was served with full coverage, and %d without", callers, len(names))
}

// TestOpenSlot checks which decisions a slot serves while it moves. A decision over
// several keys needs all of them on one node, so it fails if it would create one, until
// the slot is closed.
func TestOpenSlot(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"redis-7.0", "redis-8.0", "valkey-8.1"} {
		t.Run(version, func(t *testing.T) {
			if version != "redis-8.0" {
				notShort(t)
			}
			openSlot(t, newClusterOf(t, version))
		})
	}
}

func openSlot(t *testing.T, c *cluster) {
	st := newClusterStore(t, c)
	window := algorithm.FixedWindow{Limit: 1000, Window: time.Hour}
	limiter := func(name string, rules ...weir.Rule) *weir.Limiter {
		lim, err := weir.NewPolicy(st, weir.Policy{Name: name, Segments: []string{"customer"}, Rules: rules}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return lim
	}
	one := limiter("one", weir.Rule{Name: "a", Algorithm: window})
	two := limiter("two", weir.Rule{Name: "a", Algorithm: window}, weir.Rule{Name: "b", Algorithm: algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1000}})
	buckets := limiter("buckets", weir.Rule{Name: "a", Algorithm: algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Limit: 1000, Window: time.Minute}}}})

	const known = "ann"
	slot, strangers := store.Slot("{"+known+"}"), []string(nil)
	for i := 0; len(strangers) < 6; i++ {
		if name := fmt.Sprint("new", i); store.Slot("{"+name+"}") == slot {
			strangers = append(strangers, name)
		}
	}
	decide := func(lim *weir.Limiter, name, id string) error {
		_, err := lim.Decide(t.Context(), weir.Request{Key: weir.KeyOf(name), ID: id}, nil)
		return err
	}
	for _, err := range []error{decide(one, known, "known"), decide(two, known, ""), decide(buckets, known, "")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(phase string, open bool) {
		t.Helper()
		stranger := strangers[0]
		strangers = strangers[1:]
		for _, tt := range []struct {
			what    string
			err     error
			creates bool // one of several keys
		}{
			{"a known caller of one rule", decide(one, known, ""), false},
			{"a known caller of two rules", decide(two, known, ""), false},
			{"a known ID", decide(one, known, "known"), false},
			{"a new ID", decide(one, known, phase), true},
			{"a new caller of one rule", decide(one, stranger, ""), false},
			{"a new caller of two rules", decide(two, stranger, ""), true},
			{"a new caller of SlidingBuckets", decide(buckets, stranger, ""), true},
			{"a known caller of SlidingBuckets", decide(buckets, known, ""), true},
		} {
			fails := open && tt.creates
			if tt.err != nil != fails || fails && (!errors.Is(tt.err, store.ErrUnavailable) || !strings.Contains(tt.err.Error(), "TRYAGAIN")) {
				t.Errorf("%s: %s: got %v, want TRYAGAIN: %v", phase, tt.what, tt.err, fails)
			}
		}
	}
	check("before", false)

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
	tell(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", id(from))
	tell(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", id(to))
	check("no key has moved", true)
	host, port, _ := strings.Cut(c.Nodes[to].Addr, ":")
	for {
		keys, err := c.nodes[from].ClusterGetKeysInSlot(t.Context(), slot, 100).Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			tell(from, "MIGRATE", host, port, key, 0, 10_000)
		}
	}
	check("all keys have moved", true)
	tell(to, "CLUSTER", "SETSLOT", slot, "NODE", id(to))
	tell(from, "CLUSTER", "SETSLOT", slot, "NODE", id(to))
	c.agree(t, "{"+known+"}", to)
	check("closed", false)
}

// TestMigrateSlots checks that Valkey moves a slot without opening it: every decision
// that would create one of several keys is made meanwhile.
func TestMigrateSlots(t *testing.T) {
	notShort(t)
	t.Parallel()
	c := newClusterOf(t, "valkey-9.1")
	window := algorithm.FixedWindow{Limit: 1000, Window: time.Hour}
	lim, err := weir.NewPolicy(newClusterStore(t, c), weir.Policy{
		Name: "moved", Segments: []string{"customer"}, Rules: []weir.Rule{{Name: "a", Algorithm: window}, {Name: "b", Algorithm: window}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const name = "ann"
	from, _ := c.master(t, "{"+name+"}")
	to, slot := (from+1)%3, store.Slot("{"+name+"}")
	id, err := c.nodes[to].Do(t.Context(), "CLUSTER", "MYID").Text()
	if err != nil {
		t.Fatal(err)
	}
	moved := func() bool {
		found, err := c.serving(t.Context(), from, "{"+name+"}")
		return err == nil && found[0] == to
	}
	for i := 0; i < 200 || i < 1000 && !moved(); i++ {
		if i == 100 {
			if err := c.nodes[from].Do(t.Context(), "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", id).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := lim.Decide(t.Context(), weir.Request{Key: weir.KeyOf(name), ID: fmt.Sprint(i)}, nil); err != nil {
			t.Errorf("decision %d: %v", i, err)
		}
	}
	eventually(t, "the slot to move", func(context.Context) error {
		if !moved() {
			return errors.New("it has not moved")
		}
		return nil
	})
}
