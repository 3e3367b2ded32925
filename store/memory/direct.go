package memory

import (
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/storekey"
)

// DecideAlone is Decide for a Consume of cost tokens by the only rule of p: see
// [compose.Program.DecideAlone]. The key of the rule has the frame f, and the text shared between the
// braces.
func (s *Store) DecideAlone(p *compose.Program, f *storekey.Frame, shared string, cost int64, a *compose.Answer) bool {
	k := storekey.Key{Frame: f, Shared: shared}
	k.SetHash()
	sh := s.shard(k.Caller())
	sh.mu.Lock()
	defer sh.mu.Unlock() // also if an algorithm panics
	sl := sh.findKey(&k)
	if sl == nil {
		return false
	}
	now, err := sh.clock.micros()
	return err == nil && p.DecideAlone(now, &sl.Record, cost, a)
}

// Decide makes the decision d without a script. It is only for package weir. turns has one Turn
// for each rule of d, in which only Key is set. each is empty, or has one Answer for each rule. Decide sets a,
// which is zero, and each: see [compose.Direct.Decide].
//
// If a key is missing, or in any other special case, Decide changes nothing and returns
// false. The caller must then call Eval.
func (s *Store) Decide(d *compose.Direct, turns []compose.Turn, each []compose.Answer, a *compose.Answer) bool {
	key := &turns[0].Key
	key.SetHash()
	sh, apart := s.shard(key.Caller()), false
	first := sh // the first that is locked; its clock is read
	for i := 1; i < len(turns); i++ {
		k := &turns[i].Key
		k.SetHashAfter(&turns[i-1].Key)
		apart = apart || k.Caller() != key.Caller() && s.shard(k.Caller()) != sh
	}
	if apart {
		var room [compose.MaxRules]int
		order := room[:0]
		for i := range turns {
			order = append(order, s.shardIndex(turns[i].Key.Caller()))
		}
		order = s.lock(order)
		defer s.unlock(order)
		first = &s.shards[order[0]]
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
	return err == nil && d.Decide(now, turns, each, a)
}
