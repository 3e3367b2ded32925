// Package memory provides a store that keeps limiter state in the memory of the
// process. Use it for the limits of a single process and in tests.
//
//	st := memory.New(&memory.Options{MaxKeys: 100_000})
//	lim, err := weir.New("api", st, algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}, nil)
//
// The store runs the Go forms of scripts. A decision on a key that the store
// holds allocates nothing. There is no goroutine and nothing to close: calls that
// add keys also remove a few expired keys.
//
// # When the store is full
//
// The store holds at most [Options].MaxKeys keys. If a new key needs room, the
// store samples a few keys and evicts the one that expires soonest. It never
// evicts a key
//   - that was denied last and has not expired, because its caller would be free
//     again;
//   - that expires later than the new key, because it has used up more. Keys that
//     expire at the same instant can evict each other.
//
// If no sampled key can be evicted, the call returns [store.ErrUnavailable].
//
// So an attacker who can create MaxKeys keys can evict keys that have not been
// denied yet, or fill the store with keys that were denied. Choose MaxKeys much
// larger than the number of callers that you expect. Prefer keys that a client
// cannot choose, such as an address, to names that it can.
package memory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"sync"
	"time"

	"github.com/weir-go/weir/store"
)

// DefaultMaxKeys is the default of [Options].MaxKeys. A full store takes from 160
// to 320 bytes for each key, and 240 bytes by default, plus the length of the key.
// A sorted set takes more.
const DefaultMaxKeys = 1 << 20

const (
	maxShards    = 64
	keysPerShard = 1024    // the smallest MaxKeys of a shard; small shards would fill unevenly
	maxNow       = 1 << 52 // microseconds; the year 2112
)

// Options are the settings of a [Store]. The zero value is the default.
type Options struct {
	// MaxKeys is the largest number of keys. The default is DefaultMaxKeys. Keys
	// are spread over shards of equal size, so a large store can evict keys when
	// it holds a few per cent fewer.
	MaxKeys int

	// Now is the clock. The default is time.Now. It must read later than 1970
	// and earlier than 2112. The store holds locks while it calls Now.
	Now func() time.Time
}

// A Store is an in-memory [store.Store]. Make one with [New].
type Store struct {
	seed   maphash.Seed
	now    func() time.Time
	shards []shard
	err    error // why the store cannot work
	txs    sync.Pool
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Borrower = (*Store)(nil)
	_ store.Checker  = (*Store)(nil)
)

// New returns an empty store. If opts is nil, New uses the defaults. [Store.Check]
// and every call report bad options.
func New(opts *Options) *Store {
	var o Options
	if opts != nil {
		o = *opts
	}
	s := &Store{seed: maphash.MakeSeed(), now: o.Now}
	if o.Now == nil {
		s.now = time.Now
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	if o.MaxKeys < 0 {
		s.err = fmt.Errorf("memory: MaxKeys is %d: it must be positive, or 0 for the default of %d", o.MaxKeys, DefaultMaxKeys)
		o.MaxKeys = 1
	}
	n := maxShards
	for n > 1 && o.MaxKeys/n < keysPerShard {
		n /= 2
	}
	s.shards = make([]shard, n)
	for i := range s.shards {
		s.shards[i].max = o.MaxKeys / n
	}
	s.txs.New = func() any { return new(tx) }
	return s
}

// Check returns an error if the [Options] are bad or if [New] did not make s.
func (s *Store) Check() error {
	if s == nil || s.shards == nil {
		return errNotNew
	}
	return s.err
}

var errNotNew = errors.New("memory: the store is nil or a zero value: make one with New")

// BorrowsStrings reports whether st is s. The store copies the keys and texts that
// it keeps.
func (s *Store) BorrowsStrings(st store.Store) bool { return st == store.Store(s) }

// Eval implements [store.Store]. It runs the Go form of script while it holds the
// locks of all keys. It checks ctx once, before it takes the locks.
func (s *Store) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if err := s.ready(ctx); err != nil {
		return reply, err
	}
	if err := store.CheckKeys(keys); err != nil {
		return reply, fmt.Errorf("memory: eval %s: %w", script.Name(), err)
	}
	out, err := s.run(script, keys, args, reply)
	if err != nil {
		return reply, fmt.Errorf("memory: eval %s: %w", script.Name(), err)
	}
	return out, nil
}

func (s *Store) run(script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	t := s.txs.Get().(*tx)
	defer s.txs.Put(t)
	t.lock(s, keys)
	defer t.unlock() // also if the form panics

	now, err := s.micros()
	if err != nil {
		return nil, err
	}
	t.load(now)
	reply, err = script.Run(t, keys, args, reply)
	if err != nil {
		return nil, err
	}
	if !t.dirty && !script.ReadOnly() {
		t.deny()
	}
	return reply, t.commit()
}

// MGet implements [store.Store]. It reads all keys at one instant.
func (s *Store) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if err := s.ready(ctx); err != nil {
		return values, err
	}
	var t tx // not one of the pool, which would retain space for this many keys
	t.lock(s, keys)
	defer t.unlock()
	now, err := s.micros()
	if err != nil {
		return values, fmt.Errorf("memory: mget: %w", err)
	}
	t.load(now)
	for i := range t.keys {
		var v store.Value
		if t.keys[i].live && t.keys[i].set == nil {
			v = store.BulkValue(t.keys[i].nums.String())
		}
		values = append(values, v)
	}
	return values, nil
}

// Time implements [store.Store].
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	if err := s.ready(ctx); err != nil {
		return time.Time{}, err
	}
	return s.now(), nil
}

// Len returns how many keys the store holds. It counts expired keys that are not
// removed yet.
func (s *Store) Len() int {
	n := 0
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n += sh.used
		sh.mu.Unlock()
	}
	return n
}

// All returns the keys that have not expired, each with its remaining TTL. The
// order is not defined. All copies one shard of the store at a time, and holds no
// lock while the body of the caller's loop runs.
func (s *Store) All() iter.Seq2[string, time.Duration] {
	return func(yield func(string, time.Duration) bool) {
		var live []slot
		for i := range s.shards {
			sh := &s.shards[i]
			sh.mu.Lock()
			now := s.now().UnixMicro()
			live = live[:0]
			for _, sl := range sh.slots {
				if sl.hash != 0 && sl.expires > now {
					live = append(live, sl)
				}
			}
			sh.mu.Unlock()
			for _, sl := range live {
				if !yield(sl.key, time.Duration(sl.expires-now)*time.Microsecond) {
					return
				}
			}
		}
	}
}

func (s *Store) ready(ctx context.Context) error {
	if err := s.Check(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	return nil
}

var errClock = errors.New("the clock must read later than 1970 and earlier than 2112")

func (s *Store) micros() (int64, error) {
	now := s.now().UnixMicro()
	if now < 1 || now >= maxNow {
		return 0, fmt.Errorf("%w: %w", store.ErrUnavailable, errClock)
	}
	return now, nil
}

// hash returns the hash of key. It is never 0: a hash of 0 marks an empty slot.
func (s *Store) hash(key string) uint64 { return maphash.String(s.seed, key) | 1 }

// shard returns the index of the shard of hash. It uses the high bits, because
// slots use the low bits. The number of shards is a power of two.
func (s *Store) shard(hash uint64) int { return int(hash>>32) & (len(s.shards) - 1) }
