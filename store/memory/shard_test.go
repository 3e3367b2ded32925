package memory

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/weir-go/weir/store"
)

// check checks the whole table: every key can be found, no key occurs twice, and the
// counts are right.
func (sh *shard) check(t testing.TB) {
	t.Helper()
	n, extras := 0, 0
	seen := map[string]bool{}
	for i := range sh.slots {
		sl := &sh.slots[i]
		if sl.hash == 0 {
			if *sl != (slot{}) {
				t.Fatalf("slot %d is empty and holds %+v", i, *sl)
			}
			continue
		}
		n++
		key := sh.keyOf(sl)
		if seen[key] {
			t.Fatalf("key %q is in the table twice", key)
		}
		seen[key] = true
		if at, ok := sh.find(sl.hash, key); !ok || at != i {
			t.Fatalf("key %q in slot %d: found %v in %d", key, i, ok, at)
		}
		if sl.Extra > 0 {
			extras++
		}
		for n := int(sl.Len); n < slotInts; n++ {
			if sl.Ints[n] != 0 {
				t.Fatalf("key %q has %d integers, and integer %d is %d", key, sl.Len, n, sl.Ints[n])
			}
		}
		if e := sh.extras[sl.Extra]; (sl.Extra > 0) != (len(key) > slotKey || sl.Len > slotInts) || (e != nil) != (sl.Extra > 0) {
			t.Fatalf("key %q of %d bytes with %d integers has extra %d: %+v", key, len(key), sl.Len, sl.Extra, e)
		}
	}
	if extras != len(sh.extras) {
		t.Fatalf("%d slots have extras, and there are %d", extras, len(sh.extras))
	}
	if n != sh.used {
		t.Fatalf("%d keys, and used is %d", n, sh.used)
	}
	if size := len(sh.slots); size&(size-1) != 0 || n > size*3/4 {
		t.Fatalf("%d keys in %d slots", n, size)
	}
}

// A table behaves like a map, for any hashes, while the clock moves.
func FuzzShard(f *testing.F) {
	f.Add([]byte{0, 1, 1, 0, 2, 1, 0, 3, 1, 1, 2, 0, 2, 9, 0, 3, 1, 0})
	f.Add([]byte("many operations, one after the other, on keys that share their homes; and then the clock moves on"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		type entry struct{ n, x, expires int64 }
		st := New(&Options{MaxKeys: 1})
		sh, model, now := &st.shards[0], map[string]entry{}, int64(1)
		hash := func(k byte) uint64 { return uint64(k&31)*7<<1 | 1 } // several keys share a hash, and all homes are close together
		if len(ops) > 3000 {
			ops = ops[:3000]
		}
		for n := int64(1); len(ops) >= 3; ops, n = ops[3:], n+1 {
			k, x := ops[1], int64(ops[2])
			key := fuzzKey(k)
			switch ops[0] % 8 {
			case 0, 1, 2, 3:
				nums, s := fuzzValue(n, x)
				sh.put(hash(k), key, &nums, s, now+1+x, now)
				model[key] = entry{n, x, now + 1 + x}
			case 4, 5:
				if at, ok := sh.find(hash(k), key); ok {
					sh.remove(at)
				}
				delete(model, key)
			case 6:
				now += x
			case 7:
				live := 0
				for _, e := range model {
					if e.expires > now {
						live++
					}
				}
				call := tx{store: st, now: now, keys: []view{{key: key, hash: hash(k), shard: sh}}}
				e, ok := call.victim(&view{shard: sh, expires: now + 1 + x}, nil)
				at := e.at
				if ok && (sh.slots[at].hash == 0 || sh.keyOf(&sh.slots[at]) == key || sh.slots[at].Expires > now+1+x+rounding(1+x)) {
					t.Fatalf("victim for %d is %+v", now+1+x, sh.slots[at])
				}
				if ok {
					delete(model, sh.keyOf(&sh.slots[at]))
					sh.remove(at)
				}
			}
			sh.check(t)
			for key, e := range model {
				var k byte
				_, _ = fmt.Sscan(key, &k)
				at, ok := sh.find(hash(k), key)
				alive := e.expires > now
				if alive && (!ok || sh.slots[at].Expires != e.expires) {
					t.Fatalf("key %q at %d: found %v, want %+v", key, now, ok, e)
				}
				if alive {
					nums, s := sh.value(&sh.slots[at])
					if wantNums, wantSet := fuzzValue(e.n, e.x); nums != wantNums || (s == nil) != (wantSet == nil) || s != nil && s.members[0] != wantSet.members[0] {
						t.Fatalf("key %q: value %v, %+v, want %v, %+v", key, nums, s, wantNums, wantSet)
					}
				} else if !ok {
					delete(model, key) // swept
				}
			}
			if sh.used > len(model) {
				t.Fatalf("%d keys, and %d in the model", sh.used, len(model))
			}
		}
	})
}

// fuzzKey returns a key that fits into a slot, or a key that is too long.
func fuzzKey(k byte) string {
	return fmt.Sprint(k) + strings.Repeat(" ", int(k%3)*slotKey/2)
}

// fuzzValue returns up to MaxNums integers, or a set.
func fuzzValue(n, x int64) (nums store.Nums, s *set) {
	if x%5 == 0 {
		return nums, &set{members: []store.Member{{Score: n, Text: "text"}}}
	}
	nums.Tag, nums.Len = store.Tag{'x', byte('0' + x%10)}, uint8(x)%(store.MaxNums+1)
	for i := range nums.Len {
		nums.N[i] = n + int64(i)
	}
	return nums, nil
}

// The table grows with the number of keys, and shrinks after they have expired.
func TestShardShrinks(t *testing.T) {
	t.Parallel()
	sh := new(shard)
	nums := store.Nums{}
	const n = 10_000
	key := func(i int) (uint64, string) { return uint64(i)*0x9E3779B97F4A7C15 | 1, fmt.Sprint(i) }
	for i := range n {
		h, k := key(i)
		sh.put(h, k, &nums, nil, 100, 1)
	}
	sh.check(t)
	if len(sh.slots) != 16384 {
		t.Errorf("%d slots for %d keys, want 16384", len(sh.slots), n)
	}
	for i := range 20_000 { // all other keys have expired
		h, k := key(n + i)
		sh.put(h, k, &nums, nil, int64(300+i), int64(200+i))
	}
	sh.check(t)
	if sh.used > 4*100 || len(sh.slots) > 4096 {
		t.Errorf("%d keys in %d slots, of which about 100 have not expired", sh.used, len(sh.slots))
	}
	for i := range sh.slots {
		if sl := sh.slots[i]; sl.hash != 0 {
			at, _ := sh.find(sl.hash, sh.keyOf(&sl))
			sh.remove(at)
		}
	}
	for sh.used > 0 { // removing a key moves others: repeat until there are none
		for i := range sh.slots {
			if sh.slots[i].hash != 0 {
				sh.remove(i)
				break
			}
		}
	}
	sh.check(t)
	h, k := key(1)
	for range 20 {
		sh.put(h, k, &nums, nil, 1_000_000, 500_000)
		at, _ := sh.find(h, k)
		sh.remove(at)
	}
	if len(sh.slots) > 2*minSlots {
		t.Errorf("%d slots for one key", len(sh.slots))
	}
}

// After long keys have expired, the shard releases the memory of their extras.
func TestExtrasShrink(t *testing.T) {
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	sh, nums := new(shard), store.Nums{}
	for i := range 100_000 { // each of the last 50,000 keys expires before the next
		now := int64(1)
		if i >= 50_000 {
			now = int64(i)
		}
		sh.put(uint64(i)*0x9E3779B97F4A7C15|1, fmt.Sprintf("%0*d", slotKey+1, i), &nums, nil, now+1, now)
	}
	sh.check(t)
	if used := heap() - before; used > 1<<18 {
		t.Errorf("%d bytes for %d keys in %d slots", used, sh.used, len(sh.slots))
	}
	runtime.KeepAlive(sh)
}

// The size of a slot is two cache lines. The size of a shard is a multiple of two cache
// lines.
func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(slot{}); n != 128 {
		t.Errorf("a slot has %d bytes, want 128", n)
	}
	if n := unsafe.Sizeof(shard{}); n != 128 {
		t.Errorf("a shard has %d bytes, want 128", n)
	}
}
