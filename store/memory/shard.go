package memory

import (
	"strings"
	"sync"

	"github.com/weir-go/weir/store"
)

const (
	minSlots    = 8
	sweepSlots  = 8 // slots looked at for each key added
	sampleSlots = 8 // live keys of which the soonest-expiring may be evicted
)

// A shard is an open-addressing hash table with linear probing. State lies in
// the slots themselves, and removal moves later slots up, so there are no
// tombstones. The table is at most three quarters full.
type shard struct {
	mu     sync.Mutex
	max    int // the most keys to hold
	used   int
	cursor int // where the next sweep, or sample, begins
	slots  []slot
	_      [128 - 56]byte // two shards share no cache line
}

// A slot is empty when its hash is 0.
type slot struct {
	hash    uint64
	key     string
	expires int64 // microseconds since the epoch
	nums    store.Nums
	set     *set // what the key holds, if it is no Nums
	denied  bool // the last step that could have written the key did not: it is not evicted
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

// put sets key, which may be new: then the caller has made room.
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

// remove empties slot i and closes the gap, so that every search that passed
// over it still finds what it looks for.
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

// sweep removes the dead among the next few slots, and gives memory back when
// most of the table has become empty.
func (sh *shard) sweep(now int64) {
	for range min(sweepSlots, len(sh.slots)) {
		sh.cursor &= len(sh.slots) - 1
		if sl := &sh.slots[sh.cursor]; sl.hash != 0 && sl.expires <= now {
			sh.remove(sh.cursor) // and look again at what moved here
		} else {
			sh.cursor++
		}
	}
	if len(sh.slots) > minSlots && sh.used < len(sh.slots)/8 {
		sh.resize(len(sh.slots)/2, now)
	}
}

// resize moves what is alive to a table of n slots.
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

// victim returns the slot of a sample that expires soonest, passing over those
// that taken claims and those alive of callers who are being denied, and false if
// none expires before the newcomer.
func (sh *shard) victim(expires, now int64, taken func(*slot) bool) (int, bool) {
	best := -1
	for seen, n := 0, 0; n < len(sh.slots) && seen < sampleSlots; n++ {
		sh.cursor &= len(sh.slots) - 1
		if sl := &sh.slots[sh.cursor]; sl.hash != 0 && !taken(sl) {
			seen++
			if spared := sl.denied && sl.expires > now; !spared && sl.expires < expires && (best < 0 || sl.expires < sh.slots[best].expires) {
				best = sh.cursor
			}
		}
		sh.cursor++
	}
	return best, best >= 0
}
