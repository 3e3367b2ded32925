package memory

import (
	"slices"

	"github.com/weir-go/weir/internal/compose"
)

// Decide makes the decision d without a script. It is only for package weir. The keys of d
// are in keys, one after the other.
//
// If a key is missing, or in any other special case, Decide changes nothing and returns
// false. The caller must then call Eval.
func (s *Store) Decide(d *compose.Direct, keys string) bool {
	turns := d.Turns
	start := 0
	for i := range turns {
		t := &turns[i]
		t.Hash = s.hash(keys[start:t.End])
		start = t.End
		t.Shard = s.shard(t.Hash)
	}
	first := turns[0].Shard // the first that is locked; its clock is read
	if len(turns) == 1 {
		sh := &s.shards[first]
		sh.mu.Lock()
		defer sh.mu.Unlock() // also if an algorithm panics
	} else {
		var room [compose.MaxRules]int
		order := room[:0]
		for i := range turns {
			order = append(order, turns[i].Shard)
		}
		slices.Sort(order)
		order = slices.Compact(order)
		first = order[0]
		for _, n := range order {
			s.shards[n].mu.Lock()
		}
		defer func() {
			for _, n := range order {
				s.shards[n].mu.Unlock()
			}
		}()
	}
	now, err := s.micros(&s.shards[first])
	if err != nil {
		return false
	}
	start = 0
	for i := range turns {
		t := &turns[i]
		sh := &s.shards[t.Shard]
		at, ok := sh.find(t.Hash, keys[start:t.End])
		start = t.End
		if !ok {
			return false
		}
		sl := &sh.slots[at]
		if t.Slot = at; sl.len > slotInts || !d.Load(i, sl.tag, sl.ints[:sl.len], sl.expires > now, now) {
			return false
		}
	}
	change := d.Decide()
	for i := range turns {
		sl := &s.shards[turns[i].Shard].slots[turns[i].Slot]
		switch {
		case change:
			tag, c, n, ttl := d.Change(i)
			sl.tag, sl.len, sl.denied = tag, uint8(n), false
			sl.ints[0], sl.ints[1], sl.ints[2], sl.ints[3] = c.A, c.B, c.C, c.D // quicker than an array: see SetAnswer
			if ttl > 0 {
				sl.expires = now + ttl.Microseconds()
			}
		case d.Verb != compose.Peek && sl.expires > now:
			sl.denied = true
		}
	}
	return true
}
