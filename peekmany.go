package weir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// PeekMany answers for every one of paths what [Limiter.Peek] would, with one
// MGet and one Time of the store, whatever their number. It is for dashboards
// and metrics: the paths are not read at one instant, and a key of a wrong type
// reads as if it were missing. Limits whose state MGet cannot read,
// [algorithm.SlidingLog], [algorithm.Concurrency] and [algorithm.MetadataWindow],
// cost one Peek for each path, in one batch if the store has them.
//
// A path with a key that holds someone else's value has the zero Result, and
// the error, [store.ErrForeign], names all such keys; the other results hold.
// One call reads all keys at once: ask for some thousands, not for millions.
// After any other error there are no results.
func (l *Limiter) PeekMany(ctx context.Context, paths [][]string) ([]Result, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	each := 0 // keys of one path
	for _, n := range l.all.keys {
		each += n
	}
	keys := make([]string, 0, len(paths)*each)
	for i, path := range paths {
		if err := l.space.check(path); err != nil {
			return nil, fmt.Errorf("weir: path %d: %w", i, err)
		}
		keys = append(keys, l.keysOf(l.all, path, "")...)
	}
	now, err := l.now()
	if err != nil {
		return nil, err
	}
	read := l.readMany
	if l.all.program.Sets {
		read = l.evalMany
	}
	replies, err := read(ctx, keys, each, now)
	if err != nil {
		return nil, err
	}

	results := make([]Result, len(paths))
	var foreign []error
	for i, r := range replies {
		switch {
		case errors.Is(r.Err, store.ErrForeign):
			foreign = append(foreign, fmt.Errorf("weir: path %d: %w", i, r.Err))
			continue
		case r.Err != nil:
			return nil, r.Err
		}
		c := call{plan: l.all, script: l.all.program.Peek, ask: algorithm.Request{Cost: 1}}
		if results[i], err = l.result(&c, r.Reply, nil, nil); err != nil {
			return nil, err
		}
	}
	return results, errors.Join(foreign...)
}

// evalMany runs the peek script over keys, of which each path has as many as
// each says, at now or, if that is 0, the store's time.
func (l *Limiter) evalMany(ctx context.Context, keys []string, each int, now int64) ([]store.Eval, error) {
	args := l.appendArgs(nil, l.all, now, &algorithm.Request{Cost: 1}, nil)
	calls := make([]store.Eval, len(keys)/each)
	for i := range calls {
		calls[i] = store.Eval{Script: l.all.program.Peek, Keys: keys[i*each : (i+1)*each], Args: args}
	}
	l.evalBatch(ctx, calls)
	return calls, nil
}

// readMany does what evalMany does over what one MGet read.
func (l *Limiter) readMany(ctx context.Context, keys []string, each int, now int64) ([]store.Eval, error) {
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
	args := l.appendArgs(nil, l.all, now, &algorithm.Request{Cost: 1}, nil)
	calls := make([]store.Eval, len(keys)/each)
	for i := range calls {
		first, last := i*each, (i+1)*each
		read := snapshot{keys: keys[first:last], values: values[first:last], now: now}
		calls[i].Reply, calls[i].Err = l.all.program.Peek.GoForm()(read, args, nil)
	}
	return calls, nil
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

// A snapshot has no sets: limits that keep one are not peeked at through it.

func (s snapshot) At(i int, _ int64) (store.Member, bool, error) {
	return store.Member{}, false, s.Foreign(i)
}

func (s snapshot) Count(i int, _ int64) (above, all int64, err error) { return 0, 0, s.Foreign(i) }

func (s snapshot) Find(i int, _ string) (int64, bool, error) { return 0, false, s.Foreign(i) }

func (s snapshot) Add(int, store.Member) {}

func (s snapshot) Remove(int, int64, int64) {}

func (s snapshot) Expire(int, time.Duration) {}

func (s snapshot) Put(int, store.Nums, time.Duration) {}

func (s snapshot) Del(int) {}
