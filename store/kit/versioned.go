package kit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/engine"
)

// ErrConflict means that a key no longer has the version that a [Write] names, so that
// nothing was written. Only then does the kit run a call again.
var ErrConflict = errors.New("a key has changed since it was read")

// A Versioned is a database without locks, which gives each entry a version and writes
// entries only if their versions are still the same: for example NATS, etcd or DynamoDB.
// If it has a method Check() error, [VersionedStore.Check] calls it.
//
// An error of a method is an outage of the database. If it lasts until somebody corrects
// a setting, wrap [store.ErrMisconfigured].
type Versioned interface {
	// Get returns the entries of keys, in order. No key comes twice. Each entry is the
	// latest: Get returns what every earlier Put has written, even in another process.
	// The entries need not have existed together.
	Get(ctx context.Context, keys []string) ([]Entry, error)

	// Put makes all writes if each key has the version of its Write, and otherwise none,
	// in one atomic step. If the database reports that a key has another version, the
	// error is [ErrConflict]. If the reply was lost, Put returns another error, and does
	// not retry.
	//
	// If all writes are Same, Put must not write. It must then read the versions again.
	// If none has changed since Get, the entries have existed together. A database whose
	// Get guarantees that need not read them.
	//
	// There are at most 2,064 writes: each of 16 rules has up to 128 keys (a
	// SlidingBuckets), and one more in a decision with an ID. A database that bounds the
	// operations of a transaction must allow as many: etcd, for example, has the setting
	// --max-txn-ops. If there are more, return an error that wraps
	// [store.ErrMisconfigured]. A value has the whole sorted set of its key.
	Put(ctx context.Context, writes []Write) error
}

// An Entry is what a [Versioned] holds for a key.
type Entry struct {
	// Value is the value of the last Write. It is nil if there is none, or if the key
	// was deleted.
	Value []byte

	// Version differs each time that the key was written or deleted. It is 0 if the
	// database knows nothing of the key.
	Version uint64
}

// A Write is a change of one key by [Versioned.Put].
type Write struct {
	Key     string
	Version uint64 // that the key must still have
	Value   []byte // the new value, or nil to delete the key
	Same    bool   // the key must have the Version and keeps it; Value is what it holds

	// TTL is how long the database must keep the value. After that, the database can
	// remove it, at any time or never. The value itself says when it expires, so the
	// removal changes no decision. TTL exceeds that time by [Spare], because clocks
	// differ. The kit removes nothing itself: if the database ignores TTL, it fills up.
	TTL time.Duration
}

// Spare is how long a database keeps a value after it has expired. Backend.Keys of the
// conformance suite must subtract it from the TTLs of the database.
const Spare = time.Hour

// VersionedOptions are options of [NewVersioned].
type VersionedOptions struct {
	// MaxKey is the largest length of a key, in bytes, and at least 64. Longer keys are
	// shortened by a hash. 0 means no limit.
	MaxKey int

	// Now is the clock. The default is time.Now.
	Now func() time.Time
}

// A VersionedStore is a store over a [Versioned]: a [store.Store], [store.Batcher],
// [store.Borrower] and [store.Checker]. Make one with [NewVersioned]. In a batch, calls with
// the same keys are one read and one write.
type VersionedStore struct {
	base

	db    Versioned
	opts  VersionedOptions
	lines lines
}

var (
	_ store.Store    = (*VersionedStore)(nil)
	_ store.Batcher  = (*VersionedStore)(nil)
	_ store.Borrower = (*VersionedStore)(nil)
	_ store.Checker  = (*VersionedStore)(nil)
)

// NewVersioned returns a store over db. Name is the name of the store in errors. It calls
// no method of db. opts can be nil.
//
// A call reads its keys and then the clock, runs the form, and writes what the form
// changed. If a key has changed meanwhile, it does all of that again after a random wait,
// up to 64 times. After that, it returns [store.ErrUnavailable]. In a process, calls that
// share a key wait for each other, in order: they do not compete, so only other processes
// cause conflicts.
//
// Scripts use the clock of the process. If the clocks of processes differ by d, a limit
// over a window w can allow as much as over w+d, and a wait can last longer by d.
func NewVersioned(name string, db Versioned, opts *VersionedOptions) *VersionedStore {
	s := &VersionedStore{db: db}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Now == nil {
		s.opts.Now = time.Now
	}
	if s.opts.MaxKey == 0 {
		s.opts.MaxKey = math.MaxInt
	}
	s.base = newBase(name, (*versioned)(s), s, s.unfit, db)
	return s
}

// Check implements [store.Checker]. It returns what the Check of the database returns, if
// it has one.
func (s *VersionedStore) Check() error {
	if s == nil {
		return engine.ErrZero
	}
	return s.base.Check()
}

func (s *VersionedStore) unfit() error {
	switch {
	case s.db == nil:
		return errors.New("the database is nil: it must be a kit.Versioned")
	case s.opts.MaxKey < 64:
		return fmt.Errorf("VersionedOptions.MaxKey is %d: it must be at least 64, or 0 for no limit", s.opts.MaxKey)
	}
	return nil
}

// A versioned is the engine of a VersionedStore.
type versioned VersionedStore

// Groups implements [engine.Engine]. Calls with the same keys are one read and one write. Up
// to 16 reads and writes are under way at once, each in a goroutine that ends before
// EvalBatch does.
func (s *versioned) Groups(calls []*store.Eval) (groups [][]*store.Eval, atOnce int) {
	at := map[string]int{} // the index of the group with these keys
	for _, c := range calls {
		keys := fmt.Sprintf("%q", c.Keys)
		n, ok := at[keys]
		if !ok {
			n = len(groups)
			at[keys], groups = n, append(groups, nil)
		}
		groups[n] = append(groups[n], c)
	}
	return groups, 16
}

func (s *versioned) Now(context.Context) (time.Time, error) { return s.opts.Now(), nil }

// names returns the keys in the database. The database can keep them.
func (s *versioned) names(keys []string) []string {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = strings.Clone(shorten(key, s.opts.MaxKey))
	}
	return names
}

// The waits of a call between its attempts are random, at most mostWait, and do not get
// much longer, so that old calls do not lose to new ones.
const (
	attempts  = 64
	leastWait = 500 * time.Microsecond
	mostWait  = 16 * time.Millisecond
)

// again calls try until it returns no ErrConflict, up to attempts times.
func again(ctx context.Context, try func() error) error {
	for n := 1; ; n++ {
		err := try()
		if !errors.Is(err, ErrConflict) {
			return err
		}
		if n == attempts {
			return fmt.Errorf("contention: none of %d attempts could write, because other processes use the same keys: %w", n, err)
		}
		if err := Wait(ctx, n, leastWait, mostWait); err != nil {
			return err
		}
	}
}

// Run runs calls, which all have the same keys, one after the other in one step.
func (s *versioned) Run(ctx context.Context, calls []*store.Eval) (results []engine.Result, err error) {
	names := s.names(calls[0].Keys)
	if slices.ContainsFunc(calls, func(c *store.Eval) bool { return !c.Script.ReadOnly() }) {
		leave, err := s.lines.enter(ctx, names)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	err = again(ctx, func() (err error) {
		results, err = s.attempt(ctx, calls, names)
		return err
	})
	return results, err
}

// A row is a key in one attempt.
type row struct {
	held    store.Content
	expires int64
	changed bool
}

func (s *versioned) attempt(ctx context.Context, calls []*store.Eval, names []string) ([]engine.Result, error) {
	entries, err := s.read(ctx, names)
	if err != nil {
		return nil, err
	}
	now := s.opts.Now().UnixMicro() // after the keys were read
	rows := make([]row, len(entries))
	for i, e := range entries {
		rows[i].held, rows[i].expires, _ = decode(e.Value, now) // an error leaves Other, which is foreign
	}
	results := make([]engine.Result, len(calls))
	for i, c := range calls {
		results[i] = runForm(c, rows, now)
	}
	if len(names) == 1 && !rows[0].changed {
		return results, nil // one entry needs no other to have existed with it
	}
	writes := make([]Write, len(names))
	for i, r := range rows {
		writes[i] = Write{Key: names[i], Version: entries[i].Version, Value: entries[i].Value, Same: !r.changed}
		if r.changed && r.held.Kind == store.Missing {
			writes[i].Value = nil
		} else if r.changed {
			writes[i].Value = encode(r.held, r.expires)
		}
		writes[i].TTL = time.Duration(max(r.expires-now, 0))*time.Microsecond + Spare
	}
	// Even if the form changed nothing or failed: it may have seen values that never were
	// together.
	if err := s.db.Put(ctx, writes); err != nil {
		return nil, err
	}
	return results, nil
}

// runForm runs the form of c on rows, and makes its changes there.
func runForm(c *store.Eval, rows []row, now int64) engine.Result {
	held := make([]store.Content, len(rows))
	for i, r := range rows {
		held[i] = r.held
	}
	tx := store.NewLoaded(now, held)
	reply, err := c.Script.Run(tx, c.Keys, c.Args, c.Reply)
	if err != nil {
		return engine.Result{Err: err}
	}
	for _, change := range tx.Changes() {
		r := &rows[change.Key]
		r.held, r.changed = change.Content, true
		if change.TTL > 0 {
			r.expires = now + change.TTL.Microseconds()
		}
	}
	return engine.Result{Reply: reply}
}

func (s *versioned) read(ctx context.Context, names []string) ([]Entry, error) {
	entries, err := s.db.Get(ctx, names)
	if err == nil && len(entries) != len(names) {
		err = fmt.Errorf("Get returned %d entries for %d keys: it must return one for each", len(entries), len(names))
	}
	return entries, err
}

// Get reads the keys of each slot together.
func (s *versioned) Get(ctx context.Context, keys []string) ([]store.Value, error) {
	names, at := s.names(keys), map[string]int{}
	var once []string        // each name once; at has the indexes
	slots := map[int][]int{} // indexes of once
	for i, name := range names {
		if _, ok := at[name]; !ok {
			at[name] = len(once)
			slot := store.Slot(keys[i])
			slots[slot] = append(slots[slot], len(once))
			once = append(once, name)
		}
	}
	entries, err := s.read(ctx, once)
	if err != nil {
		return nil, err
	}
	for _, some := range slots {
		if err := s.snapshot(ctx, once, entries, some); err != nil {
			return nil, err
		}
	}
	now := s.opts.Now().UnixMicro()
	values := make([]store.Value, len(keys))
	for i, name := range names {
		held, _, _ := decode(entries[at[name]].Value, now)
		values[i] = engine.ValueOf(held)
	}
	return values, nil
}

// snapshot reads some of the entries again until they have existed together. It reads
// after the wait of an attempt, and then compares at once, so that it succeeds even while
// others write.
func (s *versioned) snapshot(ctx context.Context, names []string, entries []Entry, some []int) error {
	if len(some) == 1 {
		return nil
	}
	keys, same := make([]string, len(some)), make([]Write, len(some))
	for i, j := range some {
		keys[i] = names[j]
	}
	first := true
	return again(ctx, func() error {
		if !first {
			fresh, err := s.read(ctx, keys)
			if err != nil {
				return err
			}
			for i, j := range some {
				entries[j] = fresh[i]
			}
		}
		first = false
		for i, j := range some {
			same[i] = Write{Key: keys[i], Version: entries[j].Version, Value: entries[j].Value, Same: true}
		}
		return s.db.Put(ctx, same)
	})
}
