package memory

import "time"

// Skew sets the clock of shard i to i seconds ahead, as if the wall clock stepped between the
// readings of the shards. The clocks stay so for anchorFor.
func (s *Store) Skew() {
	for i := range s.shards {
		c := &s.shards[i].clock
		c.anchor = time.Now()
		c.wall = c.anchor.Add(time.Duration(i) * time.Second).UnixNano()
	}
}
