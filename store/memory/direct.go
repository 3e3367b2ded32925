package memory

import (
	"slices"

	"github.com/weir-go/weir/internal/compose"
)

// Decide makes the decision d without a script. It is only for package weir. turns has one Turn
// for each rule of d, in which only Key is set.
//
// If a key is missing, or in any other special case, Decide changes nothing and returns
// false. The caller must then call Eval.
func (s *Store) Decide(d *compose.Direct, turns []compose.Turn) bool {
	key := &turns[0].Key
	key.SetHash(nil)
	sh, apart := s.shard(key.Caller()), false
	first := sh // the first that is locked; its clock is read
	for i := 1; i < len(turns); i++ {
		turns[i].Key.SetHash(&turns[i-1].Key)
		apart = apart || s.shard(turns[i].Key.Caller()) != sh
	}
	if apart {
		order := s.lock(turns)
		defer s.unlock(&order)
		first = &s.shards[order.shards[0]]
	} else {
		sh.mu.Lock()
		defer sh.mu.Unlock() // also if an algorithm panics
	}
	for i := range turns {
		t := &turns[i]
		if apart {
			sh = s.shard(t.Key.Caller())
		}
		sl := sh.findKey(&t.Key)
		if sl == nil {
			return false
		}
		t.Record = &sl.Record
	}
	now, err := first.clock.micros()
	return err == nil && d.Decide(now, turns)
}

// A lockOrder has the shards of a decision. If a shard has several keys, it is there several
// times.
type lockOrder struct {
	shards [compose.MaxRules]int
	n      int
}

// lock locks the shards of all turns, in ascending order, so that two calls cannot deadlock.
func (s *Store) lock(turns []compose.Turn) (o lockOrder) {
	o.n = len(turns)
	for i := range turns {
		o.shards[i] = s.shardIndex(turns[i].Key.Caller())
	}
	slices.Sort(o.shards[:o.n])
	for i, n := range o.shards[:o.n] {
		if i == 0 || n != o.shards[i-1] {
			s.shards[n].mu.Lock()
		}
	}
	return o
}

func (s *Store) unlock(o *lockOrder) {
	for i, n := range o.shards[:o.n] {
		if i == 0 || n != o.shards[i-1] {
			s.shards[n].mu.Unlock()
		}
	}
}
