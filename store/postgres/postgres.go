// Package postgres implements a store that keeps the state of limiters in a PostgreSQL
// database. It uses a pool of the client github.com/jackc/pgx/v5:
//
//	config, err := pgxpool.ParseConfig("postgres://limiter:PASSWORD@localhost/app?pool_max_conns=16&connect_timeout=2")
//	if err != nil {
//		return err
//	}
//	config.AfterConnect = postgres.Prepare
//	pool, err := pgxpool.NewWithConfig(ctx, config)
//	if err != nil {
//		return err
//	}
//	if err := postgres.Migrate(ctx, pool); err != nil {
//		return err
//	}
//	lim, err := weir.New("api", postgres.New(pool), algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}, nil)
//
// Use it if the application has PostgreSQL and no Redis. It supports PostgreSQL from 15,
// and the client from v5.5.5.
//
// # Costs
//
// A decision is one transaction. It takes two round trips, however many rules it has:
//
//   - The first begins the transaction, locks the keys, and reads the clock and the rows.
//   - The second writes the changed rows, and commits. If the request is denied, it
//     writes nothing, not even to the server's log (WAL).
//
// A Peek takes one round trip and no lock. [store.Coalesce] combines the concurrent calls
// of a process into one transaction. A batch of 100 calls takes little longer than a few
// calls.
//
// Each commit waits until the server's disk has written it. If a crash of the server may
// lose the decisions of its last second, let the role not wait:
//
//	ALTER ROLE limiter SET synchronous_commit = off
//
// A sorted set is a row too: each change of it writes the whole row. So if a SlidingLog
// or a MetadataWindow has a limit of thousands of tokens, choose another algorithm.
//
// # The table
//
// All limiters share the table weir, which [Migrate] or your own tool creates from
// [Schema]. The role needs these privileges:
//
//	GRANT SELECT, INSERT, UPDATE, DELETE ON weir TO limiter
//
// Each row has a time at which it expires. An expired row changes no decision, but it
// uses space: call [Store.Sweep] every ten minutes, in one process. To see the keys of a
// limiter:
//
//	SELECT encode(key, 'escape'), encode(nums, 'escape'), to_timestamp(expires / 1e6)
//	FROM weir WHERE key LIKE 'weir:api:%'
//
// # Locks
//
// The locks are advisory locks of the transaction, on 64 bits of the SHA-256 of each key.
// Calls that share a key wait for each other. Each process must be quick between the
// round trips: if it stops there for 5 s, for example because its machine has lost the
// network, the server closes its connection, and other calls get the lock.
//
// # Contexts
//
// If the context is done before a call, nothing is sent. A deadline or a cancellation
// ends a call at once, even while it waits for a connection or for a lock. pgx then
// closes the connection, and asks the server to cancel the statement. If a call with a
// deadline waits for a lock, the server ends the wait instead, and the connection stays
// open. The transaction may have been committed. The store never repeats it.
//
// # Poolers and replicas
//
// Behind PgBouncer with pool_mode=transaction, add default_query_exec_mode=exec to the
// URL. The modes simple_protocol and cache_describe work too, and so does the default if
// PgBouncer has max_prepared_statements above 0. Never use describe_exec there: Time and
// Sweep could run the statement of another caller. A pooler in the mode statement cannot
// be used.
//
// Set max_locks_per_transaction of the server to 256 if many processes send batches: each
// transaction of a batch holds up to 256 locks. A statement_timeout includes the wait for
// a lock, so the role should have none.
//
// Decisions need a server that accepts writes. If there are several servers, name them
// all in the URL, with target_session_attrs=read-write: if a server has become a standby,
// the store closes its connections, and the pool finds the new one.
package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/engine"
)

var (
	_ store.Store    = (*Store)(nil)
	_ store.Batcher  = (*Store)(nil)
	_ store.Borrower = (*Store)(nil)
	_ store.Checker  = (*Store)(nil)
	_ store.Lister   = (*Store)(nil)
)

// A Store keeps the state of limiters in the table weir of a database. Make one with
// [New]. It is safe for concurrent use. The methods of a nil or zero Store return an
// error.
type Store struct {
	pool *pgxpool.Pool
	base engine.Base
}

// New returns a store that uses pool. It sends nothing to the server. The store never
// closes the pool.
func New(pool *pgxpool.Pool) *Store {
	s := &Store{pool: pool}
	s.base = engine.New("postgres", (*table)(s), s, s.Check, meaning)
	return s
}

// Check implements [store.Checker]. It returns an error if the pool is nil.
func (s *Store) Check() error {
	if s == nil || s.pool == nil {
		return errNil
	}
	return nil
}

// BorrowsStrings implements [store.Borrower]. It reports whether st is s. A Store copies
// the keys and texts that it sends.
func (s *Store) BorrowsStrings(st store.Store) bool { return st == store.Store(s) }

var unfit = New(nil)

// over returns the base of s, or of a store without a pool.
func (s *Store) over() *engine.Base {
	if s.Check() != nil {
		return &unfit.base
	}
	return &s.base
}

// Eval implements [store.Store]. It runs the Go form of script in a transaction.
func (s *Store) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	return s.over().Eval(ctx, script, keys, args, reply)
}

// EvalBatch implements [store.Batcher]. It runs the calls in one transaction, or in
// several if they have more than 256 keys.
func (s *Store) EvalBatch(ctx context.Context, calls []store.Eval) { s.over().EvalBatch(ctx, calls) }

// MGet implements [store.Store]. It reads all keys in one statement.
func (s *Store) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	return s.over().MGet(ctx, keys, values)
}

// Time implements [store.Store]. It returns the time of the server, in microseconds.
func (s *Store) Time(ctx context.Context) (time.Time, error) { return s.over().Time(ctx) }

// A table is the engine of a Store.
type table Store

// maxKeys is the largest number of keys of a transaction with several calls. Each key
// needs an entry in the server's table of locks, which has at least 6,400 entries by
// default.
const maxKeys = 256

// Groups implements [engine.Engine]. No call is divided.
func (*table) Groups(calls []*store.Eval) (groups [][]*store.Eval, atOnce int) {
	for keys := 0; len(calls) > 0; calls = calls[1:] {
		if keys += len(calls[0].Keys); groups == nil || keys > maxKeys {
			keys, groups = len(calls[0].Keys), append(groups, nil)
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], calls[0])
	}
	return groups, 1
}

// Run implements [engine.Engine]. It runs calls in one transaction.
func (t *table) Run(ctx context.Context, calls []*store.Eval) ([]engine.Result, error) {
	x := newTxn()
	for _, c := range calls {
		x.add(c.Keys)
		x.writes = x.writes || !c.Script.ReadOnly()
	}
	x.calls = calls
	if err := x.run(ctx, t.pool); err != nil {
		awaitDeadline(ctx, err)
		return nil, err
	}
	return x.results, nil
}

// Get implements [engine.Engine].
func (t *table) Get(ctx context.Context, keys []string) ([]store.Value, error) {
	x := newTxn()
	x.add(keys)
	if err := x.run(ctx, t.pool); err != nil {
		return nil, err
	}
	values := make([]store.Value, len(keys))
	for i, key := range keys {
		if nums := x.rows[x.index[key]].nums; nums != nil {
			values[i] = store.BulkValue(string(nums))
		}
	}
	return values, nil
}

// Now implements [engine.Engine].
func (t *table) Now(ctx context.Context) (now time.Time, err error) {
	err = t.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
	return now, err
}
