package goredis

import "context"

// follow asks a cluster client for a new topology, in the background, unless the
// store has just done so. The client runs one reload at a time.
func (s *Store) follow() {
	if s.cluster != nil && s.reload.Open() {
		s.cluster.ReloadState(context.Background())
	}
}
