package memory

import "time"

// Skew sets the clock of s ahead by d, as if the wall clock had stepped back by as much just
// after it was read. The clock stays so for anchorFor.
func (s *Store) Skew(d time.Duration) {
	now := time.Now()
	s.clock.at.Store(&anchor{now, now.Add(d).UnixNano()})
}

// Resize gives the table of every shard n slots, which is a power of two.
func (s *Store) Resize(n int) {
	for i := range s.shards {
		s.shards[i].resize(n, 0)
	}
}
