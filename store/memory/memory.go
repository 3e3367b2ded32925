// Package memory keeps limiter state in the memory of the process. It is the
// reference that the other stores are compared with, the limiter of a single
// process, and what tests use.
//
// The store is bounded: it holds at most [Options].MaxKeys keys, and a flood of
// new keys can neither make it grow without end nor free a caller who is being
// denied. When it is full of live keys, the soonest-expiring of a few goes, if
// it expires before the newcomer would and the last decision on it was no
// denial; if there is none, the newcomer is refused with
// [store.ErrUnavailable]. So who can bring up MaxKeys names can make the store
// forget those who were not denied yet, or fill it with names that were: give
// MaxKeys room, and do not take a name from a stranger when an address will do.
// Dead keys are swept a few at a time by the calls that add keys. There is no
// goroutine and nothing to close.
//
// Scripts run in their Go form. A decision on a key that the store holds
// allocates nothing.
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

// DefaultMaxKeys is how many keys a store holds unless told otherwise. A key
// takes about 140 bytes beside its own length.
const DefaultMaxKeys = 1 << 20

const (
	maxShards    = 64
	keysPerShard = 1024    // fewer shards rather than smaller ones, so that all fill evenly
	maxNow       = 1 << 52 // microseconds; the year 2112
)

// Options are the settings of a [Store]. The zero value is the default.
type Options struct {
	// MaxKeys is the most keys to hold, DefaultMaxKeys if 0. Keys spread over
	// shards of equal size, so a large store can refuse or evict when it is a
	// few per cent short of this.
	MaxKeys int

	// Now is the clock, time.Now if nil. It must read later than 1970 and
	// earlier than 2112. It is called with locks held.
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

// New returns an empty store. If opts is nil, the defaults are used.
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

// Check reports bad [Options], and a store that [New] did not make.
func (s *Store) Check() error {
	if s == nil || s.shards == nil {
		return errNotNew
	}
	return s.err
}

var errNotNew = errors.New("memory: the store is nil or a zero value: make one with New")

// BorrowsStrings reports true of s: keys are copied when they are stored, and
// nothing else is kept.
func (s *Store) BorrowsStrings(st store.Store) bool { return st == store.Store(s) }

// Eval implements [store.Store] by running the Go form of script while it holds
// the locks of all keys. It looks at ctx once, before it starts.
func (s *Store) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if err := s.ready(ctx); err != nil {
		return reply, err
	}
	form := script.GoForm()
	if form == nil {
		return reply, fmt.Errorf("memory: eval %s: %w", script.Name(), store.ErrNoGoForm)
	}
	if err := store.CheckKeys(keys); err != nil {
		return reply, fmt.Errorf("memory: eval %s: %w", script.Name(), err)
	}
	out, err := s.run(form, script.ReadOnly(), keys, args, reply)
	if err != nil {
		return reply, fmt.Errorf("memory: eval %s: %w", script.Name(), err)
	}
	return out, nil
}

func (s *Store) run(form store.GoForm, readOnly bool, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	t := s.txs.Get().(*tx)
	defer s.txs.Put(t)
	t.lock(s, keys)
	defer t.unlock() // also when a form panics

	now, err := s.micros()
	if err != nil {
		return nil, err
	}
	t.load(now)
	reply, err = form(t, args, reply)
	if err != nil {
		return nil, err
	}
	switch {
	case t.dirty && readOnly:
		return nil, fmt.Errorf("%w: it is read-only and wrote", store.ErrScript)
	case !t.dirty && !readOnly:
		t.deny()
	}
	return reply, t.commit()
}

// MGet implements [store.Store]. It reads all keys at one instant.
func (s *Store) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if err := s.ready(ctx); err != nil {
		return values, err
	}
	var t tx // not one to use again, which would keep room for this many keys
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

// Len returns how many keys the store holds, dead ones that were not swept yet
// among them.
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

// All returns the live keys, in no order, each with the time until it is
// forgotten. Each part of the store is copied while it is locked, and none is
// locked while the caller's loop body runs.
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

// hash is never 0, which marks an empty slot.
func (s *Store) hash(key string) uint64 { return maphash.String(s.seed, key) | 1 }

// shard is the number of the shard of hash: its high bits, as slots take the
// low ones. The number of shards is a power of two.
func (s *Store) shard(hash uint64) int { return int(hash>>32) & (len(s.shards) - 1) }
