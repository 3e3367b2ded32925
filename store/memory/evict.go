package memory

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/internal/storekey"
	"github.com/weir-go/weir/store"
)

// If a marker were evicted and the tokens of its decision kept, a repeat of the decision
// would consume them again. So a marker is evicted together with its owner, which is the
// key that holds the tokens, or after it. A key can have any number of markers, in any
// shard, so it does not know them. But a marker knows its owner.

// An eviction is what a call evicts for one new key.
type eviction struct {
	at      int    // the slot of a key, in the shard of the new key
	expires int64  // when the key expires, or its owner if that is later
	owner   *shard // if the key is a marker whose owner is in the store: the owner's shard
	ownerAt int
}

// makeRoom evicts keys for the new keys of the call. If it cannot evict enough keys, it
// evicts none.
func (t *tx) makeRoom() error {
	var evict []view
	for i := range t.keys {
		v := &t.keys[i]
		if v.held || v.change != written {
			continue
		}
		room := v.shard.max - v.shard.used
		for j := range t.keys[:i] {
			if o := &t.keys[j]; o.shard == v.shard && !o.held && o.change == written {
				room--
			}
		}
		for j := range evict {
			if evict[j].shard == v.shard {
				room++
			}
		}
		if room > 0 {
			continue
		}
		e, ok := t.victim(v, evict)
		if !ok {
			return fmt.Errorf("%w: the store is full with %d keys, and no sampled key can be evicted: raise MaxKeys", store.ErrUnavailable, t.store.shards[0].max*len(t.store.shards))
		}
		evict = append(evict, viewOf(v.shard, e.at))
		if e.owner != nil {
			evict = append(evict, viewOf(e.owner, e.ownerAt))
		}
	}
	for i := range evict {
		v := &evict[i]
		if at, ok := v.shard.find(v.hash, v.key); ok {
			v.shard.remove(at)
		}
	}
	return nil
}

func viewOf(sh *shard, at int) view {
	sl := &sh.slots[at]
	return view{key: sh.keyOf(sl), hash: sl.hash, shard: sh}
}

// victim returns what to evict for the new key v, besides the keys in evict. It returns
// false if there is nothing. It samples a few keys, and returns the key that expires
// soonest. A marker counts as expiring with its owner, or now if it has none.
//
// Two kinds of keys are never evicted before they expire:
//   - Keys whose last request was denied. Otherwise their callers would be allowed again.
//   - Keys that expire later than the new key, because they have consumed more.
//
// The TTLs of keys that expire together are rounded up to slightly different times. So an
// evicted key can expire later than the new key by the error of rounding. Otherwise a
// store full of such keys would keep the keys with the latest times, and reject nearly
// all new keys.
func (t *tx) victim(v *view, evict []view) (best eviction, found bool) {
	last := v.expires + rounding(v.expires-t.now)
	v.shard.sample(func(at int) bool {
		e, ok := t.consider(v.shard, at, evict)
		if ok && e.expires <= last && (!found || e.expires < best.expires) {
			best, found = e, true
		}
		return ok
	})
	return best, found
}

// consider returns the eviction of the key in slot at of sh. It returns false if the key,
// or its owner, must stay. If it returns an owner, its shard is locked until the call
// ends.
func (t *tx) consider(sh *shard, at int, evict []view) (eviction, bool) {
	sl := &sh.slots[at]
	e := eviction{at: at, expires: sl.Expires}
	if sh.spares(sl, t.now) || claims(t.keys, sh, sl) || claims(evict, sh, sl) {
		return e, false
	}
	key := sh.owner(sl)
	if key == "" || sl.Expires <= t.now {
		return e, true
	}
	caller, hash := storekey.Hash(key)
	n := t.store.shardIndex(caller)
	owner, locked := &t.store.shards[n], slices.Contains(t.order, n)
	if !locked && !owner.mu.TryLock() { // waiting could be a deadlock
		return e, false
	}
	at, held := owner.find(hash, key)
	stays := false
	if held {
		sl = &owner.slots[at]
		stays, held = owner.spares(sl, t.now) || claims(t.keys, owner, sl), !claims(evict, owner, sl)
	}
	if held && !stays {
		e.owner, e.ownerAt, e.expires = owner, at, max(e.expires, sl.Expires)
		if !locked {
			t.order = append(t.order, n) // unlock unlocks it
		}
		return e, true
	}
	if !locked {
		owner.mu.Unlock()
	}
	e.expires = t.now // it protects nothing
	return e, !stays
}

// idMark is the text between the key of a rule and the 32 digits that end the key of a
// marker. Package weir makes these keys.
const idMark = ":%id="

// cutMarker returns the key of the rule of the marker key. It returns "" if key has
// another form.
func cutMarker(key string) string {
	n := len(key) - len(idMark) - 32
	if n < 0 || key[n:n+len(idMark)] != idMark {
		return ""
	}
	return key[:n]
}

// owner returns the owner of the marker in sl: the key that holds the tokens of its
// decision. It returns "" if sl holds no marker.
func (sh *shard) owner(sl *slot) string {
	key := cutMarker(sh.text(sl))
	if e := sh.extras[sl.Extra]; key != "" && e != nil && e.part > 0 {
		key += ":" + strconv.Itoa(e.part-1)
	}
	return key
}

// setPart sets the part of the marker v in sl, if its rule has several keys. These are
// the key of the rule, a colon and a number. The decision wrote one of them.
func (t *tx) setPart(v *view, sl *slot) {
	rule := cutMarker(v.key)
	if rule == "" {
		return
	}
	colon := v.key[:len(rule)+1]
	for i := range t.keys {
		o := &t.keys[i]
		text, ok := strings.CutPrefix(o.key, colon)
		if !ok || o == v || o.change != written {
			continue
		}
		if n, err := strconv.Atoi(text); err == nil {
			v.shard.extend(sl).part = n + 1
		}
	}
}

func claims(views []view, sh *shard, sl *slot) bool {
	for i := range views {
		if sh.holds(sl, views[i].hash, views[i].key) {
			return true
		}
	}
	return false
}
