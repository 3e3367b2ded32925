package memory

import "time"

// Skew sets the clock of shard i to i seconds ahead, as if the wall clock stepped between
// the readings of the shards. The clocks stay so for anchorFor.
func (s *Store) Skew() {
	for i := range s.shards {
		c := &s.shards[i].clock
		c.anchor = time.Now()
		c.wall = c.anchor.Add(time.Duration(i) * time.Second).UnixNano()
	}
}

// Resize gives the table of every shard n slots, which is a power of two.
func (s *Store) Resize(n int) {
	for i := range s.shards {
		s.shards[i].resize(n, 0)
	}
}
