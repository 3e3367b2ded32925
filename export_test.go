package weir

import (
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/storekey"
)

// Held returns the number of tokens of a key that l holds and can use.
func (l *Limiter) Held(key ...string) int64 {
	d, ok := l.outer.(*prefetched)
	for !ok { // the wrappers around it
		c, isCache := l.outer.(*denyCache)
		if !isCache {
			return 0
		}
		d, ok = c.next.(*prefetched)
		if !ok {
			return 0
		}
	}
	k := KeyOf(key...)
	h := d.find(&k, &d.limits)
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.current; f != nil && d.now() < f.until {
		return f.held - f.used
	}
	return 0
}

// Parts returns the keys of the rules of l in parts, as a decision in memory uses them.
func (l *Limiter) Parts(key ...string) []storekey.Key {
	slots := make([]compose.Slot, len(l.bound.rules))
	k := KeyOf(key...)
	if !l.bound.space.setSlots(slots, l.bound.rules, &k) {
		l.bound.space.buildSlots(slots, l.bound.rules, &k, nil)
	}
	keys := make([]storekey.Key, len(slots))
	for i := range slots {
		keys[i] = slots[i].Key
	}
	return keys
}
