package adapter

import (
	"sync/atomic"
	"time"
)

// reloadEvery is how often, at most, a store asks its client for a new topology.
const reloadEvery = 250 * time.Millisecond

// A Gate says when a store may ask its client for a new topology: at most four
// times a second, whatever the number of callers that fail. The zero Gate is
// open.
type Gate struct {
	opened atomic.Pointer[time.Time]
}

// Open reports whether it is time, to one caller alone.
func (g *Gate) Open() bool {
	now, last := time.Now(), g.opened.Load()
	return (last == nil || now.Sub(*last) >= reloadEvery) && g.opened.CompareAndSwap(last, &now)
}
