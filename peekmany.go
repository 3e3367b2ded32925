package weir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/store"
)

// PeekMany answers for every one of paths what [Limiter.Peek] would, with one MGet
// and one Time of the store, whatever their number. It is for dashboards and metrics:
// the paths are not read at one instant, and a key of a wrong type reads as if
// it were missing.
//
// A path with a key that holds someone else's text has the zero Result, and the error,
// [store.ErrForeign], names all such keys; the other results hold.
// After any other error there are no results.
func (l *Limiter) PeekMany(ctx context.Context, paths [][]string) ([]Result, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	each := 0 // keys of one path
	for _, r := range l.rules {
		each += r.keys
	}
	keys := make([]string, 0, len(paths)*each)
	for i, path := range paths {
		if err := l.space.check(path); err != nil {
			return nil, fmt.Errorf("path %d: %w", i, err)
		}
		for n, r := range l.rules {
			keys = l.space.appendKeys(keys, n, r.keys, path)
		}
	}
	now, err := l.now()
	if err != nil {
		return nil, err
	}
	if now == 0 {
		t, err := l.store.Time(ctx)
		if err != nil {
			return nil, err
		}
		now = t.UnixMicro()
	}
	values, err := l.store.MGet(ctx, keys, make([]store.Value, 0, len(keys)))
	if err != nil {
		return nil, err
	}
	if len(values) != len(keys) {
		return nil, fmt.Errorf("weir: %w: the store read %d values of %d keys", store.ErrScript, len(values), len(keys))
	}

	args := l.appendArgs(nil, now, 1, nil)
	results := make([]Result, len(paths))
	var foreign []error
	var reply []store.Value
	for i := range paths {
		first, last := i*each, (i+1)*each
		read := snapshot{keys: keys[first:last], values: values[first:last], now: now}
		if reply, err = l.program.Peek.GoForm()(read, args, reply[:0]); err != nil {
			foreign = append(foreign, fmt.Errorf("weir: path %d: %w", i, err))
			continue
		}
		if results[i], err = l.result(reply, 1, false, nil, nil); err != nil {
			return nil, err
		}
	}
	return results, errors.Join(foreign...)
}

// A snapshot is the view of values that MGet read. Nothing can be written through it.
type snapshot struct {
	keys   []string
	values []store.Value
	now    int64
}

var _ store.Tx = snapshot{}

func (s snapshot) Now() int64 { return s.now }

func (s snapshot) Get(i int, tag store.Tag) (store.Nums, bool, error) {
	if s.values[i].Kind() == store.Nil {
		return store.Nums{}, false, nil
	}
	n, ok := store.ParseNums(s.values[i].Str())
	if !ok || n.Tag != tag {
		return store.Nums{}, false, s.Foreign(i)
	}
	return n, true, nil
}

func (s snapshot) Foreign(i int) error { return store.Foreign(s.keys[i]) }

func (s snapshot) Put(int, store.Nums, time.Duration) {}

func (s snapshot) Del(int) {}
