package weir

import (
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/storekey"
)

// Parts returns the keys of the rules of l in parts, as a decision in memory uses them.
func (l *Limiter) Parts(key ...string) []storekey.Key {
	turns := make([]compose.Turn, len(l.bound.rules))
	k := KeyOf(key...)
	if !l.bound.space.setTurns(turns, l.bound.rules, &k) {
		l.bound.space.buildTurns(turns, l.bound.rules, &k, nil)
	}
	keys := make([]storekey.Key, len(turns))
	for i := range turns {
		keys[i] = turns[i].Key
	}
	return keys
}
