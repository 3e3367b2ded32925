package boltstore

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/kit"
)

func TestConformance(t *testing.T) {
	dbs := map[store.Store]*bolt.DB{}
	reopen := func(t *testing.T, file string) store.Store {
		db := open(t, file)
		st := New(db)
		dbs[st] = db
		return st
	}
	conformance.Run(t, conformance.Backend{
		New:  func(t *testing.T) store.Store { return reopen(t, filepath.Join(t.TempDir(), "weir.db")) },
		Peer: func(_ *testing.T, st store.Store) store.Store { return New(dbs[st]) },
		Reopen: func(t *testing.T, st store.Store) store.Store {
			file := dbs[st].Path()
			if err := dbs[st].Close(); err != nil {
				t.Fatal(err)
			}
			return reopen(t, file)
		},
		Keys: func(t *testing.T, st store.Store, part string) map[string]time.Duration {
			keys, err := st.(*kit.Store).TTLs(context.Background(), part)
			if err != nil {
				t.Fatal(err)
			}
			return keys
		},
		Plant: func(t *testing.T, st store.Store, key string, raw []byte) {
			err := dbs[st].Update(func(tx *bolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte("weir"))
				if err != nil {
					return err
				}
				return b.Put([]byte("k"+key), raw) // where the kit keeps the value of key
			})
			if err != nil {
				t.Fatal(err)
			}
		},
		Writes: func(_ *testing.T, st store.Store) int64 {
			stats := dbs[st].Stats()
			return stats.TxStats.GetWrite()
		},
	})
}

// open returns the database in file, which is new unless it exists.
func open(t *testing.T, file string) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(file, 0o600, &bolt.Options{NoSync: true}) // tests need not wait for the disk
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A store that cannot work is an error when a limiter is made.
func TestCheck(t *testing.T) {
	for _, st := range []*kit.Store{nil, {}, New(nil)} {
		if _, err := weir.New("t", st, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}, nil); err == nil {
			t.Errorf("%+v: weir.New returned no error", st)
		}
	}
	if err := New(open(t, filepath.Join(t.TempDir(), "weir.db"))).Check(); err != nil {
		t.Error(err)
	}
}
