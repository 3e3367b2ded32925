package boltstore

import (
	"bytes"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/store"
)

func TestConformance(t *testing.T) {
	db := open(t)
	conformance.Run(t, conformance.Backend{
		New:  func(*testing.T) store.Store { return New(db) },
		Peer: func(*testing.T, store.Store) store.Store { return New(db) },
		Keys: func(t *testing.T, _ store.Store, part string) map[string]time.Duration { return keys(t, db, part) },
	})
}

// open returns an empty database.
func open(t *testing.T) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(filepath.Join(t.TempDir(), "weir.db"), 0o600, &bolt.Options{NoSync: true}) // tests need not wait for the disk
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// keys returns the keys that contain part and have not expired, with their TTLs.
func keys(t *testing.T, db *bolt.DB, part string) map[string]time.Duration {
	found := make(map[string]time.Duration)
	err := db.View(func(tx *bolt.Tx) error {
		b, now := tx.Bucket([]byte("weir")), time.Now().UnixMicro()
		if b == nil { // nothing was written yet
			return nil
		}
		return b.ForEach(func(key, value []byte) error {
			if r := decode(value, now); r.Content.Kind != store.Missing && bytes.Contains(key, []byte(part)) {
				found[string(key)] = time.Duration(r.Expires-now) * time.Microsecond
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestSweep checks that decisions delete the keys that have expired, and no others.
func TestSweep(t *testing.T) {
	db := open(t)
	err := db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("weir"))
		for i := 0; i < 100 && err == nil; i++ {
			written := time.Now().Add(-time.Hour).UnixMicro()
			ttl := time.Minute
			if i%10 == 0 {
				ttl = 24 * time.Hour
			}
			err = write(b, strconv.Itoa(i), store.Change{Content: store.Content{Kind: store.Numbers}, TTL: ttl}, written)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	lim, err := weir.New("api", New(db), algorithm.FixedWindow{Limit: 1000, Window: time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 51 { // each looks at two keys
		if res, err := lim.Allow(t.Context(), "ann"); err != nil || !res.Allowed {
			t.Fatalf("got %+v, %v, want an allowed request", res, err)
		}
	}
	_ = db.View(func(tx *bolt.Tx) error {
		if n := tx.Bucket([]byte("weir")).Stats().KeyN; n != 11 {
			t.Errorf("the file has %d keys, want 11: ann's, and the 10 that have not expired", n)
		}
		return nil
	})
	if n := len(keys(t, db, "")); n != 11 {
		t.Errorf("%d keys have not expired, want 11", n)
	}
}

// A store that cannot work is an error when a limiter is made.
func TestCheck(t *testing.T) {
	for _, st := range []*Store{nil, {}, New(nil)} {
		if _, err := weir.New("t", st, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}, nil); err == nil {
			t.Errorf("%+v: weir.New returned no error", st)
		}
	}
	if err := New(open(t)).Check(); err != nil {
		t.Error(err)
	}
}
