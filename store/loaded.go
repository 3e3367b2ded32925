package store

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A ContentKind is the kind of value that a key holds.
type ContentKind uint8

// The kinds of values that a key can hold.
const (
	Missing ContentKind = iota // nothing, or a value that has expired
	Numbers                    // a Nums
	Set                        // a sorted set
	Other                      // a foreign value
)

// Content is the value of one key. The zero value is a missing key.
type Content struct {
	Kind ContentKind

	// Nums is the value of a key of kind Numbers.
	Nums Nums

	// Members are the members of a key of kind Set. Each text is unique.
	Members []Member
}

// A Change is a change of a Go form to one key.
type Change struct {
	// Key is the index of the key.
	Key int

	// Content is the new value of the key: Numbers or a Set. If Deleted is true, it is
	// the zero value. The members of a set are sorted by score, then by text.
	Content Content

	// TTL is the new TTL of the key, counted from Now. It is 0 if the key keeps its
	// TTL, or if Deleted is true.
	TTL time.Duration

	// Deleted is true if the key exists and must be deleted.
	Deleted bool
}

// Loaded is a [Tx] over values that a store has already read. In Eval, a store locks and
// reads the keys, calls [Script.Run] with a Loaded, and then writes [Loaded.Changes].
// Make a Loaded with [NewLoaded] for each run of a form. It is not safe for concurrent
// use.
type Loaded struct {
	now  int64
	keys []loadedKey
}

var _ Tx = (*Loaded)(nil)

type loadedKey struct {
	held    Content
	existed bool
	changed bool
	owned   bool // held.Members is a copy
	ttl     time.Duration
}

// NewLoaded returns a Tx whose key i holds held[i]. Its clock shows now, in microseconds
// since the Unix epoch. The caller must pass an expired value as Missing. The members of
// a set can be in any order. A set without members is the same as Missing. A Loaded does
// not change held, nor the members in it.
func NewLoaded(now int64, held []Content) *Loaded {
	l := &Loaded{now: now, keys: make([]loadedKey, len(held))}
	for i, h := range held {
		k := &l.keys[i]
		if h.Kind == Set && len(h.Members) == 0 {
			continue
		}
		k.held, k.existed = h, h.Kind != Missing
		if h.Kind == Set && !slices.IsSortedFunc(h.Members, compareMembers) {
			k.own()
			slices.SortFunc(k.held.Members, compareMembers)
		}
	}
	return l
}

// Changes returns one change for each key that the store must write or delete, in the
// order of the keys. Call it once, after [Script.Run] returned without an error.
func (l *Loaded) Changes() []Change {
	var list []Change
	for i := range l.keys {
		k := &l.keys[i]
		deleted := k.held.Kind == Missing
		switch {
		case !k.changed || deleted && !k.existed:
		case deleted:
			list = append(list, Change{Key: i, Deleted: true})
		default:
			list = append(list, Change{Key: i, Content: k.held, TTL: k.ttl})
		}
	}
	return list
}

// Now implements [Tx].
func (l *Loaded) Now() int64 { return l.now }

// Get implements [Tx].
func (l *Loaded) Get(i int) (Nums, bool, error) {
	switch k := &l.keys[i]; k.held.Kind {
	case Missing:
		return Nums{}, false, nil
	case Numbers:
		return k.held.Nums, true, nil
	default:
		return Nums{}, false, ForeignAt(i)
	}
}

// Put implements [Tx].
func (l *Loaded) Put(i int, n Nums, ttl time.Duration) {
	l.keys[i].set(Content{Kind: Numbers, Nums: n})
	l.keys[i].ttl = ttl
}

// Keep implements [Tx].
func (l *Loaded) Keep(i int, n Nums) {
	if l.keys[i].held.Kind != Missing {
		l.keys[i].set(Content{Kind: Numbers, Nums: n})
	}
}

// Del implements [Tx].
func (l *Loaded) Del(i int) { l.keys[i].set(Content{}) }

// At implements [Tx].
func (l *Loaded) At(i int, fromEnd int64) (Member, bool, error) {
	list, err := l.members(i)
	n := int64(len(list))
	if err != nil || fromEnd < 0 || fromEnd >= n {
		return Member{}, false, err
	}
	return list[n-1-fromEnd], true, nil
}

// Count implements [Tx].
func (l *Loaded) Count(i int, after int64) (above, all int64, err error) {
	list, err := l.members(i)
	at, _ := slices.BinarySearchFunc(list, after, func(m Member, after int64) int {
		if m.Score > after {
			return 1
		}
		return -1
	})
	return int64(len(list) - at), int64(len(list)), err
}

// Score implements [Tx].
func (l *Loaded) Score(i int, text string) (score int64, ok bool, err error) {
	list, err := l.members(i)
	at := l.keys[i].find(text)
	if err != nil || at < 0 {
		return 0, false, err
	}
	return list[at].Score, true, nil
}

// Add implements [Tx].
func (l *Loaded) Add(i int, m Member, ttl time.Duration) {
	k := &l.keys[i]
	if k.held.Kind != Set {
		if ttl == 0 {
			return
		}
		k.set(Content{Kind: Set})
		k.owned = true
	}
	m.Text = strings.Clone(m.Text) // the text can point into a buffer that is reused
	k.remove(m.Text)
	k.own()
	at, _ := slices.BinarySearchFunc(k.held.Members, m, compareMembers)
	k.held.Members = slices.Insert(k.held.Members, at, m)
	k.changed, k.ttl = true, cmp.Or(ttl, k.ttl)
}

// Remove implements [Tx].
func (l *Loaded) Remove(i int, text string) {
	if k := &l.keys[i]; k.held.Kind == Set && k.remove(text) {
		k.changed = true
		k.dropEmpty()
	}
}

// Trim implements [Tx].
func (l *Loaded) Trim(i int, n int64) {
	k := &l.keys[i]
	if k.held.Kind != Set || n <= 0 {
		return
	}
	k.held.Members = k.held.Members[min(n, int64(len(k.held.Members))):]
	k.changed = true
	k.dropEmpty()
}

// members returns the members of the set at key i. It returns none if the key is missing.
func (l *Loaded) members(i int) ([]Member, error) {
	switch k := &l.keys[i]; k.held.Kind {
	case Missing, Set:
		return k.held.Members, nil
	default:
		return nil, ForeignAt(i)
	}
}

// set makes the key hold h.
func (k *loadedKey) set(h Content) {
	k.held, k.changed, k.owned = h, true, false
}

// dropEmpty makes the key missing if its set has no members.
func (k *loadedKey) dropEmpty() {
	if len(k.held.Members) == 0 {
		k.set(Content{})
	}
}

// own copies the members before the first change to them.
func (k *loadedKey) own() {
	if !k.owned {
		k.held.Members, k.owned = slices.Clone(k.held.Members), true
	}
}

// find returns the index of the member with this text. It reads all members, as the store
// did before.
func (k *loadedKey) find(text string) int {
	return slices.IndexFunc(k.held.Members, func(m Member) bool { return m.Text == text })
}

// remove removes the member with this text, and reports whether there was one.
func (k *loadedKey) remove(text string) bool {
	at := k.find(text)
	if at >= 0 {
		k.own()
		k.held.Members = slices.Delete(k.held.Members, at, at+1)
	}
	return at >= 0
}

// compareMembers orders members by score, then by the bytes of their text.
func compareMembers(a, b Member) int {
	return cmp.Or(cmp.Compare(a.Score, b.Score), strings.Compare(a.Text, b.Text))
}
