package memory

import (
	"sync"

	"github.com/weir-go/weir/internal/storekey"
)

// LockKey locks k. It returns its record, nil if the key is missing, and what the caller
// must unlock. It is only for package weir, which decides on records without a script.
func (s *Store) LockKey(k *storekey.Key) (*storekey.Record, *sync.Mutex) {
	k.SetHash()
	sh := s.shard(k.Caller())
	sh.mu.Lock()
	if sl := sh.findKey(k); sl != nil {
		return &sl.Record, &sh.mu
	}
	return nil, &sh.mu
}

// LockKeys locks the keys of places, and sets their records. The caller must then call
// UnlockKeys with the same places and the result. It is only for package weir.
func (s *Store) LockKeys(places []storekey.Place) (one *sync.Mutex) {
	first := &places[0].Key
	first.SetHash()
	sh := s.shard(first.Caller())
	one = &sh.mu
	for i := 1; i < len(places); i++ {
		k := &places[i].Key
		k.SetHashAfter(&places[i-1].Key)
		if k.Caller() != first.Caller() && s.shard(k.Caller()) != sh {
			one = nil // the keys are in several shards
		}
	}
	if one == nil {
		var room [16]int
		s.lock(s.order(places, room[:0]))
	} else {
		one.Lock()
	}
	for i := range places {
		p := &places[i]
		if one == nil {
			sh = s.shard(p.Caller())
		}
		if sl := sh.findKey(&p.Key); sl != nil {
			p.Record = &sl.Record
		}
	}
	return one
}

// UnlockKeys unlocks what LockKeys has locked, with its result one.
func (s *Store) UnlockKeys(places []storekey.Place, one *sync.Mutex) {
	if one != nil {
		one.Unlock()
		return
	}
	var room [16]int
	s.unlock(s.order(places, room[:0]))
}

// order appends the shards of places to list, in the order in which they are locked.
func (s *Store) order(places []storekey.Place, list []int) []int {
	for i := range places {
		list = append(list, s.shardIndex(places[i].Caller()))
	}
	return inOrder(list)
}

// Now returns the time of decisions on records, in microseconds since the epoch. The
// caller has locked their keys.
func (s *Store) Now() (int64, error) { return s.clock.micros() }
