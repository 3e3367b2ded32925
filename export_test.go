package weir

import (
	"github.com/weir-go/weir/internal/storekey"
)

// Parts returns the keys of the rules of l in parts, as a decision in memory uses them.
func (l *Limiter) Parts(key ...string) []storekey.Key {
	places := make([]storekey.Place, len(l.ruleSet.rules))
	k := KeyOf(key...)
	l.ruleSet.space.setPlaces(places, l.ruleSet.rules, &k)
	keys := make([]storekey.Key, len(places))
	for i := range places {
		keys[i] = places[i].Key
	}
	return keys
}
