package memory

import (
	"slices"
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

// LockKeys locks the keys of places, and sets their records. The caller must call
// UnlockKeys with the same places. It is only for package weir.
func (s *Store) LockKeys(places []storekey.Place) {
	places[0].SetHash()
	for i := 1; i < len(places); i++ {
		places[i].SetHashAfter(&places[i-1].Key)
	}
	sh, apart := s.shard(places[0].Caller()), s.apart(places)
	if apart {
		var room [16]int
		s.lock(s.order(places, room[:0]))
	} else {
		sh.mu.Lock()
	}
	for i := range places {
		p := &places[i]
		if apart {
			sh = s.shard(p.Caller())
		}
		if sl := sh.findKey(&p.Key); sl != nil {
			p.Record = &sl.Record
		}
	}
}

// UnlockKeys unlocks what LockKeys has locked.
func (s *Store) UnlockKeys(places []storekey.Place) {
	if s.apart(places) {
		var room [16]int
		s.unlock(s.order(places, room[:0]))
		return
	}
	s.shard(places[0].Caller()).mu.Unlock()
}

// apart reports whether places are in several shards.
func (s *Store) apart(places []storekey.Place) bool {
	caller := places[0].Caller()
	for i := 1; i < len(places); i++ {
		if c := places[i].Caller(); c != caller && s.shardIndex(c) != s.shardIndex(caller) {
			return true
		}
	}
	return false
}

// order appends the shards of places to list, each once, in the order in which they are
// locked.
func (s *Store) order(places []storekey.Place, list []int) []int {
	for i := range places {
		list = append(list, s.shardIndex(places[i].Caller()))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Now returns the time of decisions on records, in microseconds since the epoch. The
// caller has locked their keys.
func (s *Store) Now() (int64, error) { return s.clock.micros() }
