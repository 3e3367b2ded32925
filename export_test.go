package weir

import (
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/storekey"
)

// Parts returns the keys of the rules of l in parts, as a decision in memory uses them.
func (l *Limiter) Parts(key ...string) []storekey.Key {
	slots := make([]compose.Slot, len(l.bound.rules))
	k := KeyOf(key...)
	l.bound.space.setSlots(slots, l.bound.rules, &k)
	keys := make([]storekey.Key, len(slots))
	for i := range slots {
		keys[i] = slots[i].Key
	}
	return keys
}
