package kit

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-go/weir/store"
)

// A form is the store.Tx of a call. It reads what the Go form asks for, and keeps its
// changes until write.
type form struct {
	tx   Tx
	now  int64
	keys []formKey
	err  error // the first error of tx; the Go form can ignore it
}

var _ store.Tx = (*form)(nil)

// A formKey is a key of a call.
type formKey struct {
	name    string // shortened
	old     head   // as read, even if it has expired
	is      head   // as the Go form left it; of a set, kind and expires
	changed bool
	fresh   bool // the set of old, if it is one, is gone
	ops     []setOp
	set     window // of the members as they were read
}

// A setOp is a change of a set.
type setOp struct {
	add    bool
	member store.Member // the member to add; to remove, only its text is used
	trim   int64        // if not 0, how many of the lowest members to remove
}

// load reads the heads of keys, and then the clock, because the snapshot of a transaction
// that only reads may begin with its first read.
func load(tx Tx, keys []string) (*form, error) {
	f := &form{tx: tx, keys: make([]formKey, len(keys))}
	for i, key := range keys {
		k := &f.keys[i]
		k.name = shorten(key, longKey)
		var err error
		if k.old, err = readHead(tx, entry(prefixKey, k.name)); err != nil {
			return nil, err
		}
	}
	f.now = time.Now().UnixMicro()
	for i := range f.keys {
		k := &f.keys[i]
		if kind := k.old.holds(f.now); kind != store.Missing {
			k.is = k.old
		}
	}
	return f, nil
}

func (f *form) Now() int64 { return f.now }

func (f *form) Get(i int) (store.Nums, bool, error) {
	switch k := &f.keys[i]; k.is.kind {
	case store.Missing:
		return store.Nums{}, false, nil
	case store.Numbers:
		return k.is.nums, true, nil
	default:
		return store.Nums{}, false, store.ForeignAt(i)
	}
}

func (f *form) Put(i int, n store.Nums, ttl time.Duration) {
	f.keys[i].become(head{kind: store.Numbers, nums: n, expires: f.now + ttl.Microseconds()})
}

func (f *form) Keep(i int, n store.Nums) {
	if k := &f.keys[i]; k.is.kind != store.Missing {
		k.become(head{kind: store.Numbers, nums: n, expires: k.is.expires})
	}
}

func (f *form) Del(i int) { f.keys[i].become(head{}) }

// become replaces the value of the key.
func (k *formKey) become(h head) { k.is, k.ops, k.changed, k.fresh = h, nil, true, true }

func (f *form) Add(i int, m store.Member, ttl time.Duration) {
	k := &f.keys[i]
	if k.is.kind != store.Set {
		if ttl == 0 {
			return
		}
		k.become(head{kind: store.Set})
	}
	if ttl > 0 {
		k.is.expires = f.now + ttl.Microseconds()
	}
	k.ops, k.changed = append(k.ops, setOp{add: true, member: m}), true
}

func (f *form) Remove(i int, text string) {
	f.change(i, setOp{member: store.Member{Text: text}})
}

func (f *form) Trim(i int, n int64) {
	if n > 0 {
		f.change(i, setOp{trim: n})
	}
}

func (f *form) change(i int, op setOp) {
	if k := &f.keys[i]; k.is.kind == store.Set {
		k.ops, k.changed = append(k.ops, op), true
	}
}

// A window holds the members of a set that were read: low in rising order, and high in
// falling order.
type window struct{ low, high []store.Member }

// members returns the members at one end of the set at key i: n, or all if it has fewer.
func (f *form) members(i int, high bool, n int64) ([]store.Member, error) {
	k := &f.keys[i]
	n = min(n, k.old.count)
	list := &k.set.low
	if high {
		list = &k.set.high
	}
	if int64(len(*list)) >= n {
		return (*list)[:n], nil
	}
	from, to := membersOf(k.old.id)
	if len(*list) > 0 { // go on after the last one that was read
		last := (*list)[len(*list)-1]
		at := numbered(prefixMember, last.Text, k.old.id, last.Score)
		if high {
			to = at
		} else {
			from = append(at, 0)
		}
	}
	err := f.tx.Scan(from, to, high, func(key, _ []byte) bool {
		if m, ok := memberAt(key); ok {
			*list = append(*list, m)
		}
		return int64(len(*list)) < n
	})
	f.err = cmp.Or(f.err, err)
	if err == nil && int64(len(*list)) < n {
		err = store.ForeignAt(i) // somebody deleted members
	}
	return *list, err
}

// size returns the number of members of the set at key i, as the form read it.
func (f *form) size(i int) (int64, error) {
	switch k := &f.keys[i]; {
	case k.is.kind == store.Missing, k.is.kind == store.Set && k.fresh:
		return 0, nil
	case k.is.kind == store.Set:
		return k.old.count, nil
	default:
		return 0, store.ForeignAt(i)
	}
}

func (f *form) At(i int, fromEnd int64) (store.Member, bool, error) {
	all, err := f.size(i)
	if err != nil || fromEnd < 0 || fromEnd >= all {
		return store.Member{}, false, err
	}
	high, at := true, fromEnd
	if low := all - 1 - fromEnd; low < at {
		high, at = false, low
	}
	list, err := f.members(i, high, at+1)
	if err != nil {
		return store.Member{}, false, err
	}
	return list[at], true, nil
}

// Count reads from both ends, so it reads few members if few, or nearly all, are above.
func (f *form) Count(i int, after int64) (above, all int64, err error) {
	all, err = f.size(i)
	for n := int64(4); err == nil && all > 0; n *= 2 {
		var low, high []store.Member
		if low, err = f.members(i, false, n); err != nil {
			break
		}
		if at := slices.IndexFunc(low, func(m store.Member) bool { return m.Score > after }); at >= 0 {
			return all - int64(at), all, nil
		}
		if high, err = f.members(i, true, n); err != nil {
			break
		}
		if at := slices.IndexFunc(high, func(m store.Member) bool { return m.Score <= after }); at >= 0 {
			return int64(at), all, nil
		}
	}
	return 0, 0, err
}

func (f *form) Score(i int, text string) (score int64, ok bool, err error) {
	if all, err := f.size(i); all == 0 {
		return 0, false, err
	}
	score, ok, err = f.score(f.keys[i].old.id, text)
	f.err = cmp.Or(f.err, err)
	return score, ok, err
}

// score returns the score of a member of a set.
func (f *form) score(id int64, text string) (int64, bool, error) {
	b, err := f.tx.Get(numbered(prefixText, text, id))
	if err != nil || len(b) != 8 {
		return 0, false, err
	}
	return int64(binary.BigEndian.Uint64(b)), true, nil
}

// write writes the changes. made is the number of keys that did not exist.
func (f *form) write() (wrote bool, made int, err error) {
	for i := range f.keys {
		k := &f.keys[i]
		if !k.changed {
			continue
		}
		if err := f.writeKey(k); err != nil {
			return false, 0, err
		}
		wrote = wrote || k.is.kind != store.Missing || k.old.kind != store.Missing
		if k.is.kind != store.Missing && k.old.kind == store.Missing {
			made++
		}
	}
	return wrote, made, nil
}

// writeKey writes a key.
func (f *form) writeKey(k *formKey) error {
	same := k.is.kind == store.Set && !k.fresh // as one that was read
	if !same {
		if err := bury(f.tx, &k.old); err != nil {
			return err
		}
	}
	if k.is.kind == store.Set {
		k.is.id, k.is.count = rand.Int64(), 0
		if same {
			k.is.id, k.is.count = k.old.id, k.old.count
		}
		for _, op := range k.ops {
			if err := f.apply(&k.is, op); err != nil {
				return err
			}
		}
		if k.is.count == 0 {
			k.is = head{}
		}
	}
	key := entry(prefixKey, k.name)
	switch {
	case k.is.kind != store.Missing:
		if k.old.kind == store.Missing || k.old.kind == store.Other { // it is not filed
			if err := f.tx.Put(numbered(prefixSpan, k.name, k.is.expires/span), nil); err != nil {
				return err
			}
		}
		return f.tx.Put(key, k.is.text())
	case k.old.kind != store.Missing:
		return f.tx.Delete(key)
	}
	return nil
}

// apply makes one change to the members of the set of h.
func (f *form) apply(h *head, op setOp) error {
	if n := min(op.trim, h.count); n > 0 {
		from, to := membersOf(h.id)
		keys, err := keysOf(f.tx, from, to, int(n))
		for _, key := range keys {
			if m, ok := memberAt(key); ok && err == nil {
				err, h.count = erase(f.tx, h.id, m), h.count-1
			}
		}
		return err
	} else if op.trim > 0 {
		return nil
	}
	m := op.member
	score, ok, err := f.score(h.id, m.Text)
	if err != nil {
		return err
	}
	if ok {
		if err := erase(f.tx, h.id, store.Member{Score: score, Text: m.Text}); err != nil {
			return err
		}
		h.count--
	}
	if !op.add {
		return nil
	}
	h.count++
	if err := f.tx.Put(numbered(prefixMember, m.Text, h.id, m.Score), nil); err != nil {
		return err
	}
	return f.tx.Put(numbered(prefixText, m.Text, h.id), binary.BigEndian.AppendUint64(nil, uint64(m.Score)))
}
