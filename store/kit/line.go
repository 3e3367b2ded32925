package kit

import (
	"context"
	"slices"
	"sync"
)

// lines has a line of callers for each key that a call of this process uses. The callers
// of a line enter one after the other, in the order in which they came. The zero value
// has no callers.
type lines struct {
	mu  sync.Mutex
	all map[string]*line
}

type line struct {
	turn    chan struct{} // holds an element while somebody is in
	callers int           // in the line, including the caller that is in
}

// enter waits until the caller is in for all keys, or ctx ends. leave lets the next
// callers in.
func (l *lines) enter(ctx context.Context, keys []string) (leave func(), err error) {
	if len(keys) > 1 { // in one order, so that callers never wait for each other
		keys = slices.Sorted(slices.Values(keys))
	}
	for i, key := range keys {
		if !l.join(ctx, key) {
			l.leave(keys[:i])
			return nil, ctx.Err()
		}
	}
	return func() { l.leave(keys) }, nil
}

// join waits for the turn at key, and reports whether it came before the end of ctx.
func (l *lines) join(ctx context.Context, key string) bool {
	l.mu.Lock()
	at := l.all[key]
	if at == nil {
		if l.all == nil {
			l.all = map[string]*line{}
		}
		at = &line{turn: make(chan struct{}, 1)}
		l.all[key] = at
	}
	at.callers++
	l.mu.Unlock()
	select {
	case at.turn <- struct{}{}: // senders that wait are served in order
		return true
	case <-ctx.Done():
		l.quit(key, at)
		return false
	}
}

func (l *lines) leave(keys []string) {
	for _, key := range keys {
		l.mu.Lock()
		at := l.all[key]
		l.mu.Unlock()
		<-at.turn
		l.quit(key, at)
	}
}

// quit removes one caller, and the line if it was the last.
func (l *lines) quit(key string, at *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.callers--; at.callers == 0 {
		delete(l.all, key)
	}
}
