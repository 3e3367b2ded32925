package adapter

import (
	"sync/atomic"
	"time"
)

// reloadEvery is the shortest time between two reloads of the topology.
const reloadEvery = 250 * time.Millisecond

// A Gate limits how often a store makes its client read the topology: at most four times per
// second, however many calls fail. The zero Gate is open.
type Gate struct {
	opened atomic.Pointer[time.Time]
}

// Open reports whether it is time for a reload. Of concurrent callers, only one gets true.
func (g *Gate) Open() bool {
	now, last := time.Now(), g.opened.Load()
	return (last == nil || now.Sub(*last) >= reloadEvery) && g.opened.CompareAndSwap(last, &now)
}
