package goredis

import (
	"context"
	"time"
)

// reloadEvery is how often, at most, a store asks its client for a new topology.
const reloadEvery = 250 * time.Millisecond

// follow asks a cluster client for a new topology, in the background, unless the
// store has just done so. The client runs one reload at a time.
func (s *Store) follow() {
	if s.cluster == nil {
		return
	}
	now := int64(time.Since(s.born))
	due := s.reload.Load()
	if now >= due && s.reload.CompareAndSwap(due, now+int64(reloadEvery)) {
		s.cluster.ReloadState(context.Background())
	}
}
