package memory

import (
	"time"

	"github.com/weir-go/weir/internal/storekey"
	"github.com/weir-go/weir/store"
)

// A tx is the store.Tx of one call. It locks the shards of the keys, gives the Go form
// access to the keys, and writes the changes of the form. Calls reuse it.
type tx struct {
	store *Store
	now   int64
	keys  []view
	order []int       // the locked shards, each once; those of the keys come first, ascending
	dirty bool        // the form changed something
	sets  []setChange // the changes to sets, in order
}

// A view is one key of a call.
type view struct {
	key     string
	hash    uint64
	shard   *shard
	slot    int  // the slot of the key, if held is true
	held    bool // the key has a slot; it can have expired
	live    bool // the key has not expired
	change  change
	nums    store.Nums
	set     *set
	expires int64
}

type change uint8

const (
	unchanged change = iota
	written
	deleted
)

// lock locks the shards of keys.
func (t *tx) lock(s *Store, keys []string) {
	t.store, t.dirty = s, false
	t.keys, t.order, t.sets = t.keys[:0], t.order[:0], t.sets[:0]
	for _, key := range keys {
		caller, hash := storekey.Hash(key)
		n := s.shardIndex(caller)
		t.keys = append(t.keys, view{key: key, hash: hash, shard: &s.shards[n]})
		t.order = append(t.order, n)
	}
	t.order = inOrder(t.order)
	s.lock(t.order)
}

func (t *tx) unlock() {
	t.store.unlock(t.order)
	clear(t.keys) // keep no borrowed key
	clear(t.sets)
}

// load reads the values of the keys at now.
func (t *tx) load(now int64) {
	t.now = now
	for i := range t.keys {
		v := &t.keys[i]
		v.slot, v.held = v.shard.find(v.hash, v.key)
		if v.held {
			if sl := &v.shard.slots[v.slot]; sl.Expires > now {
				v.live, v.expires = true, sl.Expires
				v.nums, v.set = v.shard.value(sl)
			}
		}
	}
}

// Now implements [store.Tx].
func (t *tx) Now() int64 { return t.now }

// Get implements [store.Tx].
func (t *tx) Get(i int) (store.Nums, bool, error) {
	v := &t.keys[i]
	if !v.live {
		return store.Nums{}, false, nil
	}
	if v.set != nil {
		return store.Nums{}, false, store.ForeignAt(i)
	}
	return v.nums, true, nil
}

// Put implements [store.Tx].
func (t *tx) Put(i int, n store.Nums, ttl time.Duration) {
	v := &t.keys[i]
	v.nums, v.set, v.live, v.change = n, nil, true, written
	v.expires = t.now + ttl.Microseconds()
	t.dirty = true
}

// Keep implements [store.Tx].
func (t *tx) Keep(i int, n store.Nums) {
	if v := &t.keys[i]; v.live {
		v.nums, v.set, v.change = n, nil, written
	}
	t.dirty = true
}

// Del implements [store.Tx].
func (t *tx) Del(i int) {
	v := &t.keys[i]
	v.set, v.live, v.change = nil, false, deleted
	t.dirty = true
}

// deny marks the keys: their last request was denied.
func (t *tx) deny() {
	for i := range t.keys {
		if v := &t.keys[i]; v.live {
			v.shard.slots[v.slot].Denied = true
		}
	}
}

// commit makes the changes of the form. If the store is full, it makes no change.
func (t *tx) commit() error {
	if !t.dirty {
		return nil
	}
	if err := t.makeRoom(); err != nil {
		return err
	}
	for i := range t.sets {
		t.sets[i].make()
	}
	for i := range t.keys {
		v := &t.keys[i]
		if v.set != nil && len(v.set.members) == 0 && v.change == written {
			v.change = deleted
		}
		switch v.change {
		case written:
			var sl *slot
			if t.inPlace(v) {
				sl = &v.shard.slots[v.slot]
				v.shard.write(sl, &v.nums, v.set)
				sl.Expires, sl.Denied = v.expires, false
			} else {
				sl = v.shard.put(v.hash, v.key, &v.nums, v.set, v.expires, t.now)
			}
			if v.set == nil {
				t.setPart(v, sl)
			}
		case deleted:
			if at, ok := v.shard.find(v.hash, v.key); ok {
				v.shard.remove(at)
			}
		}
	}
	return nil
}

// inPlace reports whether v is still in the slot where load found it. Writing another key
// can move it.
func (t *tx) inPlace(v *view) bool {
	if !v.held || v.slot >= len(v.shard.slots) {
		return false
	}
	return v.shard.holds(&v.shard.slots[v.slot], v.hash, v.key)
}
