// Package kit makes stores for limiters from databases. It is for authors of stores. The
// author writes an adapter of a few small methods, and the kit does what the contract of
// a [store.Store] demands: the checks of keys and contexts, the values and their expiry,
// sorted sets, batches, listings, the removal of expired keys, and the errors.
//
// There are two kinds of databases:
//   - [New] is for databases with transactions over ordered entries, for example SQLite,
//     bbolt, Badger or Pebble. The adapter is a [DB].
//   - [NewVersioned] is for databases that compare versions when they write, for example
//     NATS, etcd or DynamoDB. The adapter is a [Versioned].
package kit

import (
	"errors"
	"fmt"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/engine"
)

// A base is what the stores of the kit share.
type base = engine.Base

// newBase returns the base of the store self. The database db can be a [store.Checker].
func newBase(name string, e engine.Engine, self store.Store, check func() error, db any) base {
	unfit := func() error {
		err := check()
		if checker, ok := db.(store.Checker); ok && err == nil {
			err = checker.Check()
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return err
	}
	return engine.New(name, e, self, unfit, func(_ string, err error) error {
		if errors.Is(err, store.ErrUnavailable) {
			return nil // err says so
		}
		return store.ErrUnavailable
	})
}
