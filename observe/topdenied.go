package observe

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/weir-go/weir"
)

// TopDenied counts the denials of the keys that are denied most often, for operators:
//
//	var top observe.TopDenied
//	lim, err = lim.Wrap(top.Wrap)
//	// later:
//	for _, k := range top.Keys() {
//		log.Print(k.Key.Segments(), k.Denied)
//	}
//
// It counts at most Size keys, by the algorithm Space-Saving (Metwally, Agrawal and El
// Abbadi, 2005). A key that is denied more often than 1/Size of all denials is always
// among them. The zero value counts 100 keys. It is safe for concurrent use, and must not
// be copied after its first use.
//
// It does not count denials without the store (see package outage), or keys whose
// segments are longer than 1,024 bytes together.
//
// Keys can be secret, for example API keys: show them only to those who may see them.
type TopDenied struct {
	// Size is how many keys are counted. If it is below 1, 100 keys are counted. Set it
	// before the first use.
	Size int

	mu     sync.Mutex
	byKey  map[weir.Key]*counted
	counts leastFirst
}

// A DeniedKey is a key, and how often its requests were denied. The true number is from
// Denied-Overcount to Denied.
type DeniedKey struct {
	Key       weir.Key
	Denied    int64 // the count
	Overcount int64 // how much the count can be too high
}

// A counted is a key in a TopDenied.
type counted struct {
	DeniedKey
	place int // in counts
}

const (
	defaultSize = 100
	maxKeySize  = 1024 // bytes
)

// Wrap is a [weir.Wrapper], which calls Observe after each decision.
func (t *TopDenied) Wrap(lim *weir.Limiter, next weir.Decider) (weir.Decider, error) {
	if t == nil {
		return nil, errors.New("observe: the TopDenied is nil: pass a pointer to one, for example new(observe.TopDenied)")
	}
	return Observer(t.Observe).Wrap(lim, next)
}

// Observe counts d if it is a denied Consume or TakeUpTo. It is an [Observer].
func (t *TopDenied) Observe(_ context.Context, d Decision) {
	if d.Outcome() != Denied || d.Request.Op != weir.Consume && d.Request.Op != weir.TakeUpTo {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	size := t.Size
	if size < 1 {
		size = defaultSize
	}
	c := t.byKey[d.Request.Key]
	switch {
	case c != nil:
	case d.Request.Key.Size() > maxKeySize:
		return
	case len(t.counts) < size:
		if t.byKey == nil {
			t.byKey = map[weir.Key]*counted{}
		}
		c = &counted{DeniedKey: DeniedKey{Key: d.Request.Key.Clone()}}
		t.byKey[c.Key] = c
		heap.Push(&t.counts, c)
	default: // it takes the place and the count of the key that was denied least often
		c = t.counts[0]
		delete(t.byKey, c.Key)
		c.Key, c.Overcount = d.Request.Key.Clone(), c.Denied
		t.byKey[c.Key] = c
	}
	c.Denied++
	heap.Fix(&t.counts, c.place)
}

// Keys returns the counted keys. The key that was denied most often is the first.
func (t *TopDenied) Keys() []DeniedKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	keys := make([]DeniedKey, len(t.counts))
	for i, c := range t.counts {
		keys[i] = c.DeniedKey
	}
	slices.SortFunc(keys, func(a, b DeniedKey) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), slices.Compare(a.Key.Segments(), b.Key.Segments()))
	})
	return keys
}

// Clear forgets all counts.
func (t *TopDenied) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byKey, t.counts = nil, nil
}

// leastFirst is a heap by Denied.
type leastFirst []*counted

func (h leastFirst) Len() int           { return len(h) }
func (h leastFirst) Less(i, j int) bool { return h[i].Denied < h[j].Denied }
func (h leastFirst) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements [heap.Interface].
func (h *leastFirst) Push(c any) {
	c.(*counted).place = len(*h)
	*h = append(*h, c.(*counted))
}

// Pop implements [heap.Interface]. No counted key is popped.
func (h *leastFirst) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
