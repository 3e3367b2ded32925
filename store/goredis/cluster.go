package goredis

import "context"

// follow makes a cluster client read the topology again, in the background. It does so at
// most four times per second. The client runs one reload at a time.
func (s *Store) follow() {
	if s.cluster != nil && s.reload.Open() {
		s.cluster.ReloadState(context.Background())
	}
}
