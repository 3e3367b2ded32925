package memory

import (
	"strings"
	"sync"

	"github.com/weir-go/weir/store"
)

const (
	minSlots    = 8
	sweepSlots  = 8  // slots that are swept for each new key
	sampleKeys  = 8  // keys of which the one that expires soonest is evicted
	sampleSlots = 64 // slots that are searched for the sample, at most
)

// A shard is an open-addressing hash table with linear probing. The slots hold
// the state itself. Removing a key moves later slots up, so there are no
// tombstones. The table is at most three quarters full.
type shard struct {
	mu     sync.Mutex
	max    int // the largest number of keys
	used   int
	cursor int // the slot at which the next sweep or sample begins
	slots  []slot
	_      [128 - 56]byte // so that two shards share no cache line
}

// A slot is empty when its hash is 0.
type slot struct {
	hash    uint64
	key     string
	expires int64 // microseconds since the epoch
	nums    store.Nums
	set     *set // the value, if it is a sorted set
	denied  bool // the last step that could have changed the key denied its caller
}

// home is the slot at which the search for hash begins. The lowest bit of a
// hash is always set.
func (sh *shard) home(hash uint64) int { return int(hash>>1) & (len(sh.slots) - 1) }

// find returns the slot that holds key, or false.
func (sh *shard) find(hash uint64, key string) (int, bool) {
	if len(sh.slots) == 0 {
		return 0, false
	}
	mask := len(sh.slots) - 1
	for i := sh.home(hash); ; i = (i + 1) & mask {
		sl := &sh.slots[i]
		if sl.hash == hash && sl.key == key {
			return i, true
		}
		if sl.hash == 0 {
			return i, false
		}
	}
}

// put sets key. If the key is new, the caller has made room for it.
func (sh *shard) put(hash uint64, key string, n *store.Nums, set *set, expires, now int64) {
	i, ok := sh.find(hash, key)
	if !ok {
		sh.sweep(now)
		if sh.used+1 > len(sh.slots)*3/4 {
			sh.resize(max(minSlots, 2*len(sh.slots)), now)
		}
		i, _ = sh.find(hash, key)
		sh.slots[i].hash, sh.slots[i].key = hash, strings.Clone(key)
		sh.used++
	}
	sl := &sh.slots[i]
	sl.nums, sl.set, sl.expires, sl.denied = *n, set, expires, false
}

// remove empties slot i and closes the gap, so that every search that passed over
// the slot still finds its key.
func (sh *shard) remove(i int) {
	mask := len(sh.slots) - 1
	for j := (i + 1) & mask; sh.slots[j].hash != 0; j = (j + 1) & mask {
		if (j-sh.home(sh.slots[j].hash))&mask >= (j-i)&mask {
			sh.slots[i] = sh.slots[j]
			i = j
		}
	}
	sh.slots[i] = slot{}
	sh.used--
}

// sweep removes the expired keys among the next few slots. It releases memory if
// most of the table is empty.
func (sh *shard) sweep(now int64) {
	for range min(sweepSlots, len(sh.slots)) {
		sh.cursor &= len(sh.slots) - 1
		if sl := &sh.slots[sh.cursor]; sl.hash != 0 && sl.expires <= now {
			sh.remove(sh.cursor) // look at this slot again: another key may have moved here
		} else {
			sh.cursor++
		}
	}
	if len(sh.slots) > minSlots && sh.used < len(sh.slots)/8 {
		sh.resize(len(sh.slots)/2, now)
	}
}

// resize moves the keys that have not expired to a table of n slots.
func (sh *shard) resize(n int, now int64) {
	old := sh.slots
	sh.slots, sh.used = make([]slot, n), 0
	for _, sl := range old {
		if sl.hash != 0 && sl.expires > now {
			i, _ := sh.find(sl.hash, sl.key)
			sh.slots[i] = sl
			sh.used++
		}
	}
}

// victim returns the slot of the key to evict for a new key that expires at
// expires, and false if there is none. It samples a few keys and returns the one
// that expires soonest. It passes over the keys that taken reports.
//
// Two kinds of keys are never evicted while they live:
//   - Keys that were denied last: their callers would be free again.
//   - Keys that expire later than the new key: they have used up more.
//
// Keys that expire together are rounded up to slightly different expiries, so a
// key may expire later than the new key by the error of rounding. Without that,
// a store full of such keys would hold those with the latest expiries and reject
// nearly all new keys.
func (sh *shard) victim(expires, now int64, taken func(*slot) bool) (int, bool) {
	best, last := -1, expires+rounding(expires-now)
	for n, seen := 0, 0; n < min(len(sh.slots), sampleSlots) && seen < sampleKeys; n++ {
		sh.cursor &= len(sh.slots) - 1
		sl := &sh.slots[sh.cursor]
		if spared := sl.denied && sl.expires > now; sl.hash != 0 && !spared && !taken(sl) {
			seen++
			if sl.expires <= last && (best < 0 || sl.expires < sh.slots[best].expires) {
				best = sh.cursor
			}
		}
		sh.cursor++
	}
	return best, best >= 0
}

// rounding returns how much later than a key with that TTL another key may expire
// and still count as expiring together with it: 1.05 s, because TTLs are rounded up
// to whole milliseconds at least and to whole seconds at most. It is at most a
// quarter of the TTL, so that short TTLs are told apart.
func rounding(ttl int64) int64 { return min(ttl/4, 1<<20) }
