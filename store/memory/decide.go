package memory

import (
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/storekey"
)

// DecideInLine is DecideOnSlots for a Consume of cost tokens by the only rule of p: see
// [compose.Program.DecideInLine]. The key of the rule has the frame f, and the text
// shared between the braces.
func (s *Store) DecideInLine(p *compose.Program, f *storekey.Frame, shared string, cost int64, a *compose.Result) bool {
	k := storekey.Key{Frame: f, Shared: shared}
	k.SetHash()
	sh := s.shard(k.Caller())
	sh.mu.Lock()
	defer sh.mu.Unlock() // even if an algorithm panics
	sl := sh.findKey(&k)
	if sl == nil {
		return false
	}
	now, err := s.clock.micros()
	return err == nil && p.DecideInLine(now, &sl.Record, cost, a)
}

// DecideOnSlots decides q without a script. It is only for package weir. slots has one
// Slot for each rule of q, in which only Key is set. each is empty, or has one Answer for
// each rule. DecideOnSlots sets a, which is zero, and each: see
// [compose.Query.DecideOnSlots].
//
// If the key of a cell is missing, or in any other special case, DecideOnSlots changes
// nothing and returns false. The caller must then call Eval.
func (s *Store) DecideOnSlots(q *compose.Query, slots []compose.Slot, each []compose.Result, a *compose.Result) bool {
	key := &slots[0].Key
	key.SetHash()
	sh, apart := s.shard(key.Caller()), false
	for i := 1; i < len(slots); i++ {
		k := &slots[i].Key
		k.SetHashAfter(&slots[i-1].Key)
		apart = apart || k.Caller() != key.Caller() && s.shard(k.Caller()) != sh
	}
	if apart {
		var room [compose.MaxRules]int
		order := room[:0]
		for i := range slots {
			order = append(order, s.shardIndex(slots[i].Key.Caller()))
		}
		order = s.lock(order)
		defer s.unlock(order)
	} else {
		sh.mu.Lock()
		defer sh.mu.Unlock() // even if an algorithm panics
	}
	for i := range slots {
		t := &slots[i]
		if apart {
			sh = s.shard(t.Key.Caller())
		}
		sl := sh.findKey(&t.Key)
		if sl == nil {
			if q.Program.Pauses(i) { // the key is open
				continue
			}
			return false
		}
		t.Record = &sl.Record
	}
	now, err := s.clock.micros()
	return err == nil && q.DecideOnSlots(now, slots, each, a)
}
