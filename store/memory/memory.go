// Package memory implements a store that keeps the state of limiters in the memory of the
// process. Use it for the limits of a single process and in tests.
//
//	st := memory.New(&memory.Options{MaxKeys: 100_000})
//	lim, err := weir.New("api", st, algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}, nil)
//
// The store runs the Go forms of scripts. If the store holds the key, most decisions
// allocate no memory. Decisions with an ID do, and so do decisions of
// algorithm.SlidingLog, MetadataWindow and Concurrency. The store starts no goroutine
// and needs no closing: a call that adds a key also removes a few expired keys.
//
// # When the store is full
//
// Choose [Options].MaxKeys much larger than the number of callers that you expect, and
// use keys that a client cannot choose, for example an IP address rather than a user
// name. Otherwise an attacker who creates MaxKeys keys can evict keys that have not been
// denied yet, or fill the store with denied keys.
//
// If a call adds a key to a full store, the store samples a few keys, and evicts the key
// that expires soonest. Two kinds of keys are never evicted before they expire:
//   - A key whose last request was denied. Otherwise its caller would be allowed again.
//   - A key that expires more than about one second later than the new key. Its caller
//     has usually consumed more tokens than the caller of the new key.
//
// If no sampled key can be evicted, or Options.NoEviction is true, the call returns
// [store.ErrUnavailable].
//
// A decision with an ID adds a second key for each rule, its marker. A marker is never
// evicted before the key that holds the tokens of its decision, and never if that key is
// denied. So a repeated request never consumes tokens twice from a limit that is still
// there. After both were evicted, it is a new request. But new keys, including the
// markers of a caller's own IDs, may evict a limit. Its caller then has a full limit
// again. If a key has more IDs than the store has room for, a request with a new ID
// returns store.ErrUnavailable.
package memory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/store"
)

// DefaultMaxKeys is the default of [Options].MaxKeys. With the default, a full store uses
// 256 bytes for each key. With another MaxKeys, it uses from 171 to 342 bytes. A key that
// is longer than 67 bytes, or that holds more than 4 integers or a sorted set, uses more.
const DefaultMaxKeys = 1 << 20

const (
	maxShards    = 64
	keysPerShard = 1024    // the smallest MaxKeys of a shard; smaller shards would fill unevenly
	maxNow       = 1 << 52 // microseconds; the year 2112
)

// Options are the settings of a [Store]. The zero value is the default.
type Options struct {
	// MaxKeys is the largest number of keys. 0 means DefaultMaxKeys. It must not be
	// negative. Each rule of a caller takes a key, and so does each ID of each rule until
	// the tokens of its decision have been refilled.
	//
	// Keys are spread over shards of equal size, and the keys of a caller's rules share a
	// shard. A full shard evicts keys even if others have room. With one rule, this can
	// begin when the store holds 90 % of MaxKeys, with 4 rules at 80 %, and with 16 rules
	// at 65 %. With the default MaxKeys, these are 97, 96 and 90 %.
	MaxKeys int

	// If NoEviction is true, a full store evicts no key before the key expires. A call
	// that adds a key to a full store then returns ErrUnavailable.
	NoEviction bool

	// Now is the clock. nil means the system clock. If the system clock is set to
	// another time, the store uses that time after at most 0.1 s. The store holds locks
	// while it calls Now.
	//
	// The time must be after the Unix epoch and before the year 2112. Otherwise Eval
	// and MGet return ErrUnavailable.
	Now func() time.Time
}

// A Store is an in-memory [store.Store]. Make one with [New]. It is safe for concurrent
// use. Eval, MGet and Time of a nil or zero Store return an error.
type Store struct {
	clock  clock
	shards []shard
	err    error // why the store cannot work
	txs    sync.Pool
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Borrower = (*Store)(nil)
	_ store.Checker  = (*Store)(nil)
	_ store.Lister   = (*Store)(nil)
)

// New returns an empty store. If opts is nil, New uses the defaults. If an option is
// not valid, Check, Eval, MGet and Time return an error.
func New(opts *Options) *Store {
	var o Options
	if opts != nil {
		o = *opts
	}
	s := new(Store)
	s.clock.now = o.Now
	s.clock.at.Store(new(anchor)) // long ago
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
		sh := &s.shards[i]
		sh.max, sh.keep = o.MaxKeys/n, o.NoEviction
	}
	s.txs.New = func() any { return new(tx) }
	return s
}

// Check returns an error if the [Options] are not valid, or if s was not made by [New].
func (s *Store) Check() error {
	if s == nil || s.shards == nil {
		return errNotNew
	}
	return s.err
}

var errNotNew = errors.New("memory: the store is nil or a zero value: make one with New")

// BorrowsStrings implements [store.Borrower]. It reports whether st is s. A Store
// copies the keys and texts that it keeps.
func (s *Store) BorrowsStrings(st store.Store) bool { return st == store.Store(s) }

// Eval implements [store.Store]. It runs the Go form of script while it holds the
// locks of all keys. It checks ctx before it takes the locks, and when it has them.
func (s *Store) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if err := s.ready(ctx); err != nil {
		return reply, err
	}
	if err := store.CheckKeys(keys); err != nil {
		return reply, fmt.Errorf("memory: eval %s: %w", script.Name(), err)
	}
	out, err := s.run(ctx, script, keys, args, reply)
	if err != nil {
		return reply, fmt.Errorf("memory: eval %s: %w", script.Name(), err)
	}
	return out, nil
}

func (s *Store) run(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	t := s.txs.Get().(*tx)
	defer s.txs.Put(t)
	t.lock(s, keys)
	defer t.unlock() // even if the form panics

	if err := ctx.Err(); err != nil { // it ended while the call waited for the locks
		return nil, err
	}
	now, err := s.clock.micros()
	if err != nil {
		return nil, err
	}
	t.load(now)
	out, err := script.Run(t, keys, args, reply)
	if err != nil {
		return nil, err
	}
	allowed := len(out) > len(reply) && out[len(reply)].Int() != 0 // it repeats a decision, or settles nothing
	if !t.dirty && !script.ReadOnly() && !allowed {
		t.deny()
	}
	return out, t.commit()
}

// MGet implements [store.Store]. It reads all keys at one instant.
func (s *Store) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if err := s.ready(ctx); err != nil {
		return values, err
	}
	if len(keys) == 0 {
		return values, nil
	}
	var t tx // not from the pool, which would keep the memory for all these keys
	t.lock(s, keys)
	defer t.unlock()
	now, err := s.clock.micros()
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
	if s.clock.now == nil {
		return time.Now(), nil
	}
	return s.clock.now(), nil
}

// Len returns the number of keys in the store. It includes expired keys that have not
// been removed yet.
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

// All returns an iterator over the keys that have not expired, with their remaining TTLs.
// The order is not defined. All copies one shard of the store at a time. It holds no lock
// while the body of the caller's loop runs.
func (s *Store) All() iter.Seq2[string, time.Duration] {
	return func(yield func(string, time.Duration) bool) {
		var live []entry
		for i := range s.shards {
			live = s.shards[i].live(&s.clock, live[:0])
			for _, e := range live {
				if !yield(e.key, e.ttl) {
					return
				}
			}
		}
	}
}

// An entry is a key that has not expired.
type entry struct {
	key string
	ttl time.Duration
}

// live appends the keys of sh that have not expired to list.
func (sh *shard) live(c *clock, list []entry) []entry {
	sh.mu.Lock()
	defer sh.mu.Unlock() // even if the clock panics
	now, _ := c.micros()
	for i := range sh.slots {
		if sl := &sh.slots[i]; sl.hash != 0 && sl.Expires > now {
			list = append(list, entry{sh.keyOf(sl), time.Duration(sl.Expires-now) * time.Microsecond})
		}
	}
	return list
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

// shard returns the shard of the keys of a caller. See storekey.Key.Caller.
func (s *Store) shard(caller uint64) *shard { return &s.shards[s.shardIndex(caller)] }

// shardIndex returns the index of the shard. It uses the high bits, because slots use the
// low bits. The number of shards is a power of two.
func (s *Store) shardIndex(caller uint64) int { return int(caller>>32) & (len(s.shards) - 1) }

// inOrder returns each index of a shard once, ascending. All calls lock in this order, so
// that two cannot deadlock.
func inOrder(shards []int) []int {
	if len(shards) > 1 {
		slices.Sort(shards)
		shards = slices.Compact(shards)
	}
	return shards
}

// lock locks the shards with these indices. order is a result of inOrder.
func (s *Store) lock(order []int) {
	for _, n := range order {
		s.shards[n].mu.Lock()
	}
}

// unlock unlocks what lock has locked.
func (s *Store) unlock(order []int) {
	for _, n := range order {
		s.shards[n].mu.Unlock()
	}
}
