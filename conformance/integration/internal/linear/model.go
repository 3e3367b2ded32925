package linear

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store"
)

// A state has the values of the keys in the store. It is never changed.
type state struct {
	held map[string]store.Content
	hash uint64 // the sum of the hashes of the keys with their values
}

func newState() *state { return &state{held: map[string]store.Content{}} }

var hashSeed = maphash.MakeSeed()

// hashOf returns the hash of a key with its value.
func hashOf(key string, c store.Content) uint64 {
	sum := maphash.Comparable(hashSeed, struct {
		key  string
		nums store.Nums
	}{key, c.Nums})
	for _, m := range c.Members {
		sum = sum*31 + maphash.Comparable(hashSeed, m)
	}
	return sum
}

func (s *state) equal(other *state) bool {
	return s.hash == other.hash && maps.EqualFunc(s.held, other.held, func(a, b store.Content) bool {
		return a.Kind == b.Kind && a.Nums == b.Nums && slices.Equal(a.Members, b.Members)
	})
}

// with returns s after the changes to keys.
func (s *state) with(keys []string, changes []store.Change) *state {
	if len(changes) == 0 {
		return s
	}
	next := &state{held: maps.Clone(s.held), hash: s.hash}
	for _, c := range changes {
		key := keys[c.Key]
		if old, ok := next.held[key]; ok {
			next.hash -= hashOf(key, old)
			delete(next.held, key)
		}
		if !c.Deleted {
			next.hash += hashOf(key, c.Content)
			next.held[key] = c.Content
		}
	}
	return next
}

func (s *state) String() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(s.held)) {
		fmt.Fprintln(&b, key, "=", s.held[key].Nums, s.held[key].Members)
	}
	return b.String()
}

// A sequential has limiters that decide one request at a time. It is their store: it runs the
// Go form of a script on a state.
type sequential struct {
	store.Store // nil: the limiters have a clock, and are asked for one decision at a time

	limiters []*weir.Limiter // of policies
	now      time.Time       // of the next request
	state    *state
	each     [weir.MaxRules]weir.Result
}

func newSequential() *sequential {
	s := &sequential{state: newState()}
	var err error
	if s.limiters, err = limiters(s, "model", &s.now); err != nil {
		panic(err) // the policies are constants
	}
	return s
}

// limiters returns a limiter for each of policies, whose clock shows *now.
func limiters(st store.Store, prefix string, now *time.Time) ([]*weir.Limiter, error) {
	var all []*weir.Limiter
	for _, p := range policies {
		l, err := weir.NewPolicy(st, p.Policy, &weir.Options{Prefix: prefix, Clock: func() time.Time { return *now }})
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// Eval implements [store.Store].
func (s *sequential) Eval(_ context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	held := make([]store.Content, len(keys))
	for i, key := range keys {
		held[i] = s.state.held[key]
	}
	tx := store.NewLoaded(s.now.UnixMicro(), held)
	reply, err := script.Run(tx, keys, args, reply)
	if err == nil {
		s.state = s.state.with(keys, tx.Changes())
	}
	return reply, err
}

// decide decides in on the state before, and reports whether the answer is out. It also
// returns the state after the decision.
func (s *sequential) decide(before *state, in *input, out *output) (bool, *state) {
	s.now, s.state = in.now, before
	var each []weir.Result
	if !in.many {
		each = s.each[:len(policies[in.policy].Rules)]
	}
	result, err := s.limiters[in.policy].Decide(context.Background(), in.request, each)
	switch {
	case out.unknown:
		return true, s.state
	case err != nil:
		return out.err == err.Error(), s.state
	}
	return out.err == "" && result == out.result && slices.Equal(each, out.each), s.state
}

// A checker is the model of porcupine, which counts its steps.
type checker struct {
	*sequential
	left      int  // how many steps it may make; below 0 means any number
	exhausted bool // it needed more, so its verdict says nothing
}

func (c *checker) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return newState() },
		Step: func(before, in, out any) (bool, any) {
			if c.left == 0 {
				c.exhausted = true
				return false, before
			}
			c.left--
			request, answer := in.(input), out.(output)
			return c.decide(before.(*state), &request, &answer)
		},
		Equal:             func(a, b any) bool { return a.(*state).equal(b.(*state)) },
		Hash:              func(s any) uint64 { return s.(*state).hash },
		DescribeOperation: func(in, out any) string { return fmt.Sprint(in, " -> ", out) },
	}
}
