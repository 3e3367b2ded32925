package integration

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/conformance/internal/changes"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
)

// From the last decision under another limit on, the new limit holds in Lua too. The time is
// virtual, and keys expire: no real server can do that.
func TestChanges(t *testing.T) {
	notLight(t)
	t.Parallel()
	for _, kind := range slices.Sorted(maps.Keys(changes.Kinds)) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if err := runChanges(t, kind, 40, func(st store.Store) store.Store { return st }); err != nil {
				t.Error(err)
			}
		})
	}
}

// runChanges runs n random histories on a miniredis, and returns the first error.
func runChanges(t *testing.T, kind string, n int, wrap func(store.Store) store.Store) error {
	m := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer func() { _ = rdb.Close() }()
	st := wrap(goredis.New(rdb))
	for seed := range uint64(n) {
		now := changes.Start
		m.FlushAll()
		m.SetTime(now)
		err := changes.Run(t.Context(), seed, kind, st, func(d time.Duration) {
			now = now.Add(d)
			m.SetTime(now)
			m.FastForward(d)
		}, seed%4 == 3)
		if err != nil {
			return err
		}
	}
	return nil
}
