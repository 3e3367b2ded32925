package kit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/store"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	db := newTable()
	conformance.Run(t, conformance.Backend{
		Parallel: 8,
		New:      func(*testing.T) store.Store { return New("table", db) },
		Plant: func(t *testing.T, _ store.Store, key string, raw []byte) {
			tx, err := db.Begin(t.Context(), true)
			if err == nil {
				err = errors.Join(tx.Put([]byte(entryText(key)), raw), tx.Commit())
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		Peer: func(*testing.T, store.Store) store.Store { return New("table", db) },
		Keys: func(t *testing.T, st store.Store, part string) map[string]time.Duration {
			keys, err := st.(*Store).TTLs(context.Background(), part)
			if err != nil {
				t.Fatal(err)
			}
			return keys
		},
	})
}
