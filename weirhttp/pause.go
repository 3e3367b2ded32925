package weirhttp

import (
	"maps"
	"sync"
	"time"

	"github.com/weir-go/weir"
)

// sweepPauses is the number of pauses at which ended ones are removed.
const sweepPauses = 1024

// pauses are the times until which servers asked not to send requests, by key.
type pauses struct {
	mu    sync.Mutex
	until map[weir.Key]time.Time
	sweep int // how many pauses there are when ended ones are removed next
}

// left returns the rest of the pause of key. It is 0 or less if there is none.
func (p *pauses) left(key weir.Key) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := time.Until(p.until[key]) // long ago, if there is none
	if left <= 0 {
		delete(p.until, key)
	}
	return left
}

// begin begins a pause of key. A pause never ends earlier because of another one.
func (p *pauses) begin(key weir.Key, pause time.Duration) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil {
		p.until, p.sweep = make(map[weir.Key]time.Time), sweepPauses
	}
	if len(p.until) >= p.sweep {
		maps.DeleteFunc(p.until, func(_ weir.Key, until time.Time) bool { return !until.After(now) })
		p.sweep = max(sweepPauses, 2*len(p.until))
	}
	if until := now.Add(pause); until.After(p.until[key]) {
		p.until[key] = until
	}
}
