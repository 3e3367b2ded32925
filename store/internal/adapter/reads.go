package adapter

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
)

// MGet is the MGet of a store. The function get sets read[i] to the value of keys[i].
func (b *Base) MGet(ctx context.Context, keys []string, values []store.Value,
	get func(ctx context.Context, keys []string, read []store.Value) error,
) ([]store.Value, error) {
	if err := ctx.Err(); err != nil {
		return values, b.callError("mget", err)
	}
	if len(keys) == 0 {
		return values, nil
	}
	out := slices.Grow(values, len(keys))[:len(values)+len(keys)]
	if err := get(ctx, keys, out[len(values):]); err != nil {
		return values, b.readError(ctx, "mget", err)
	}
	return out, nil
}

// Time is the Time of a store. The function get asks a server.
func (b *Base) Time(ctx context.Context, get func(context.Context) (time.Time, error)) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, b.callError("time", err)
	}
	now, err := get(ctx)
	if err == nil && now.IsZero() {
		err = errNotTime
	}
	if err != nil {
		return time.Time{}, b.readError(ctx, "time", err)
	}
	return now, nil
}

// errNotTime is the error of a reply that TIME does not give.
var errNotTime = errors.New("the reply is not a list of seconds and microseconds")

// ParseTime returns the time in reply, the values of the reply to TIME. If err is not
// nil, it returns err, unless a value has another type.
func ParseTime(reply []store.Value, err error) (time.Time, error) {
	if err != nil && !errors.Is(err, store.ErrScript) {
		return time.Time{}, err
	}
	if len(reply) != 2 {
		return time.Time{}, errNotTime
	}
	seconds, err1 := strconv.ParseInt(reply[0].Str(), 10, 64)
	micros, err2 := strconv.ParseInt(reply[1].Str(), 10, 64)
	if err1 != nil || err2 != nil {
		return time.Time{}, errNotTime
	}
	return time.Unix(seconds, micros*int64(time.Microsecond)), nil
}

// BySlot returns the keys of each slot, with their indices in keys. If all keys have the
// same slot, or are on a single server, it returns keys itself with nil indices.
func BySlot(keys []string, single bool) iter.Seq2[[]string, []int] {
	return func(yield func([]string, []int) bool) {
		var slots []int
		one := true
		if !single {
			slots = make([]int, len(keys))
			for i, key := range keys {
				slots[i] = store.Slot(key)
				one = one && slots[i] == slots[0]
			}
		}
		if one {
			yield(keys, nil)
			return
		}
		sorted := make([]string, 0, len(keys))
		for at := range Groups(slots) {
			from := len(sorted)
			for _, i := range at {
				sorted = append(sorted, keys[i])
			}
			if !yield(sorted[from:], at) {
				return
			}
		}
	}
}

// Groups returns the indices of each number in numbers, in the order of the numbers.
func Groups(numbers []int) iter.Seq[[]int] {
	order := make([]int, len(numbers))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return numbers[a] - numbers[b] })
	return func(yield func([]int) bool) {
		for from, to := 0, 0; from < len(order); from = to {
			for to < len(order) && numbers[order[to]] == numbers[order[from]] {
				to++
			}
			if !yield(order[from:to]) {
				return
			}
		}
	}
}

// ErrNotMGet is the error of a reply that MGET does not give.
var ErrNotMGet = errors.New("the reply is not a list of one string or nil for each key")

// Scatter stores element i of list, the reply to an MGET, in read[at[i]]. If at is nil,
// it stores element i in read[i]. The function value returns an element as a value, or
// false.
func Scatter[E any](list []E, read []store.Value, at []int, value func(*E) (store.Value, bool)) error {
	want := len(read)
	if at != nil {
		want = len(at)
	}
	if len(list) != want {
		return ErrNotMGet
	}
	for i := range list {
		v, ok := value(&list[i])
		if !ok || v.Kind() == store.Integer {
			return ErrNotMGet
		}
		to := i
		if at != nil {
			to = at[i]
		}
		read[to] = v
	}
	return nil
}

// reloadEvery is the shortest time between two reloads of the topology.
const reloadEvery = 250 * time.Millisecond

// A Gate limits how often a store makes its client read the topology: at most four times
// per second, however many calls fail. The zero Gate is open.
type Gate struct {
	opened atomic.Pointer[time.Time]
}

// Open reports whether it is time for a reload. Of concurrent callers, only one gets
// true.
func (g *Gate) Open() bool {
	now, last := time.Now(), g.opened.Load()
	return (last == nil || now.Sub(*last) >= reloadEvery) && g.opened.CompareAndSwap(last, &now)
}
