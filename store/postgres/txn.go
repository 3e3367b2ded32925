package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/engine"
)

// A txn is a transaction over the keys of some calls. It reads all keys, runs the forms
// of the calls one after the other, and writes what they have changed.
type txn struct {
	calls   []*store.Eval
	results []engine.Result // of calls

	writes bool           // a script is not read-only
	index  map[string]int // of keys and rows, by the name of the key
	keys   [][]byte
	locks  []int64
	rows   []row
	now    int64
}

func newTxn() *txn { return &txn{index: map[string]int{}} }

// A row is the value of a key.
type row struct {
	nums    []byte // as read
	held    store.Content
	expires int64
	changed bool
}

// longKey is the length from which a key is shortened.
const longKey = 2000

// add adds the keys that t does not have yet.
func (t *txn) add(keys []string) {
	for _, name := range keys {
		if _, ok := t.index[name]; ok {
			continue
		}
		key := []byte(name)
		sum := sha256.Sum256(key)
		if len(key) >= longKey {
			key = append(key[:longKey-len(sum)], sum[:]...)
		}
		t.index[name] = len(t.keys)
		t.keys = append(t.keys, key)
		t.locks = append(t.locks, int64(binary.BigEndian.Uint64(sum[:])))
	}
}

// run runs t on a connection of pool: in two round trips, or in one if all scripts are
// read-only.
func (t *txn) run(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // closes the connection if the transaction has not ended
	if err := t.read(ctx, conn); err != nil {
		return t.rollBack(ctx, conn, err)
	}
	t.runForms()
	if !t.writes {
		return nil
	}
	var b pgx.Batch
	t.queueChanges(&b)
	b.Queue("COMMIT")
	if err := send(ctx, conn, &b); err != nil {
		return t.rollBack(ctx, conn, err)
	}
	return nil
}

// rollBack ends the transaction after err, so that the connection can be used again.
func (t *txn) rollBack(ctx context.Context, conn *pgxpool.Conn, err error) error {
	// Another server may accept writes. If this connection is closed, the pool opens
	// another. If nothing was sent because ctx was done, there is nothing to undo.
	if !errors.Is(err, errReadOnly) && !pgconn.SafeToRetry(err) {
		_ = reset(ctx, conn.Conn()) // if it fails, Release closes the connection
	}
	return err
}

// reset ends a transaction that failed. If a statement could not be prepared, older
// versions of pgx forget the others that they have prepared with it, and prepare them
// again in vain. So does every version if ctx is done before DeallocateAll sends
// anything: the connection is then of no use.
func reset(ctx context.Context, conn *pgx.Conn) error {
	if conn.PgConn().TxStatus() == 'I' {
		err := conn.DeallocateAll(ctx)
		if err != nil {
			_ = conn.Close(ctx)
		}
		return err
	}
	_, err := conn.Exec(ctx, "ROLLBACK")
	return err
}

// With another isolation level, a statement could read what was there before the locks
// were held.
const begin = "BEGIN ISOLATION LEVEL READ COMMITTED"

// If a process disappears while it holds locks, the server ends its transaction after
// idle. If a call has a deadline, the server ends its wait for the locks shortly before.
// Otherwise pgx would do so by closing the connection, and a key that many callers wait
// for would cost a new connection for each of them. lock_timeout has to be set before the
// locks.
//
// The planner must not choose a sequential scan while the table is small, because it can
// keep that plan when the table has grown. It must keep its plans. Otherwise it takes a
// list of one key for cheaper than a list of any length, and plans each statement again,
// which takes longer than to run it.
const (
	idle = 5 * time.Second
	lock = `SELECT current_setting('transaction_read_only'),
	set_config('idle_in_transaction_session_timeout', $2::text, true),
	set_config('enable_seqscan', 'off', true),
	set_config('plan_cache_mode', 'force_generic_plan', true),
	set_config('lock_timeout', coalesce($3::text, current_setting('lock_timeout')), true),
	(SELECT count(pg_advisory_xact_lock(k)) FROM unnest($1::bigint[]) AS k)`
	noLock = `SELECT set_config('enable_seqscan', 'off', true),
	set_config('plan_cache_mode', 'force_generic_plan', true)`
)

// read reads the rows and the clock. The clock is read in the statement that reads the
// rows, which starts after the locks are held. OFFSET 0 keeps the planner from other
// joins than one look-up for each key.
const read = `SELECT clock_timestamp(), k.i, w.nums, w.scores, w.texts, w.expires
FROM unnest($1::bytea[]) WITH ORDINALITY AS k (key, i)
LEFT JOIN LATERAL (SELECT * FROM weir WHERE weir.key = k.key OFFSET 0) AS w ON true`

// A batcher is a connection, alone or of a pool.
type batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// read locks the keys if t can write, and then reads them.
func (t *txn) read(ctx context.Context, conn batcher) error {
	var b pgx.Batch
	if t.writes {
		slices.Sort(t.locks) // in one order in all transactions, so that none waits for each other
		b.Queue(begin)
		b.Queue(lock, t.locks, fmt.Sprint(idle.Milliseconds()), lockTimeout(ctx))
	} else {
		b.Queue(noLock) // the statements of a batch are one transaction
	}
	b.Queue(read, t.keys)
	results := conn.SendBatch(ctx, &b)
	defer closeResults(results)

	if t.writes {
		if _, err := results.Exec(); err != nil {
			return err
		}
		var readOnly string
		if err := results.QueryRow().Scan(&readOnly, nil, nil, nil, nil, nil); err != nil {
			return err
		}
		if readOnly == "on" {
			return errReadOnly
		}
	} else if _, err := results.Exec(); err != nil {
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	t.rows = make([]row, len(t.keys))
	for rows.Next() {
		if err := t.scan(rows); err != nil {
			return err
		}
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return err
	}
	return results.Close()
}

// lockTimeout returns the longest wait for the locks, in milliseconds. It ends an eighth
// of the time before the deadline of ctx, or 100 ms before it. It is at most the largest
// lock_timeout of a server. Without a deadline, it is nil.
func lockTimeout(ctx context.Context) *string {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	left := time.Until(deadline)
	left -= min(left/8, 100*time.Millisecond)
	text := fmt.Sprint(min(max(left.Milliseconds(), 1), math.MaxInt32)) // 0 would be no limit
	return &text
}

// scan reads the row of one key. The clock of the first row is the clock of t.
func (t *txn) scan(rows pgx.Rows) error {
	var now time.Time
	var i int64
	var r row
	var scores []pgtype.Int8
	var texts [][]byte
	var expires pgtype.Int8
	if err := rows.Scan(&now, &i, &r.nums, &scores, &texts, &expires); err != nil {
		return err
	}
	if t.now == 0 {
		t.now = now.UnixMicro()
	}
	if expires.Int64 > t.now {
		r.held, r.expires = held(r.nums, scores, texts), expires.Int64
		t.rows[i-1] = r
	}
	return nil
}

// held returns the value of a row. A value that the store cannot have written is Other.
func held(nums []byte, scores []pgtype.Int8, texts [][]byte) store.Content {
	other := store.Content{Kind: store.Other}
	if nums != nil {
		if n, ok := store.ParseNums(string(nums)); ok && scores == nil && texts == nil {
			return store.Content{Kind: store.Numbers, Nums: n}
		}
		return other
	}
	if len(scores) != len(texts) {
		return other
	}
	members := make([]store.Member, len(texts))
	for i, text := range texts {
		if !scores[i].Valid || text == nil {
			return other
		}
		members[i] = store.Member{Score: scores[i].Int64, Text: string(text)}
	}
	return store.Content{Kind: store.Set, Members: members}
}

// runForms runs the forms of the calls, each on the rows as the calls before it left
// them.
func (t *txn) runForms() {
	for _, c := range t.calls {
		values := make([]store.Content, len(c.Keys))
		for i, key := range c.Keys {
			values[i] = t.rows[t.index[key]].held
		}
		tx := store.NewLoaded(t.now, values)
		reply, err := c.Script.Run(tx, c.Keys, c.Args, c.Reply)
		t.results = append(t.results, engine.Result{Reply: reply, Err: err})
		if err != nil {
			continue
		}
		for _, change := range tx.Changes() {
			r := &t.rows[t.index[c.Keys[change.Key]]]
			r.held, r.changed = change.Content, true
			if change.TTL > 0 {
				r.expires = t.now + change.TTL.Microseconds()
			}
		}
	}
}

const (
	putNums = `INSERT INTO weir (key, nums, expires) SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[])
ON CONFLICT (key) DO UPDATE SET nums = excluded.nums, scores = NULL, texts = NULL, expires = excluded.expires`
	putSet = `INSERT INTO weir (key, scores, texts, expires) VALUES ($1::bytea, $2::bigint[], $3::bytea[], $4::bigint)
ON CONFLICT (key) DO UPDATE SET nums = NULL, scores = excluded.scores, texts = excluded.texts, expires = excluded.expires`
	remove = "DELETE FROM weir WHERE key = ANY ($1::bytea[])"
)

// queueChanges adds the statements to b that write the changed rows.
func (t *txn) queueChanges(b *pgx.Batch) {
	var keys, nums, removed [][]byte
	var expires []int64
	for i, r := range t.rows {
		switch {
		case !r.changed:
		case r.held.Kind == store.Missing:
			removed = append(removed, t.keys[i])
		case r.held.Kind == store.Numbers:
			keys, expires = append(keys, t.keys[i]), append(expires, r.expires)
			nums = append(nums, r.held.Nums.AppendText(nil))
		default:
			scores, texts := make([]int64, len(r.held.Members)), make([][]byte, len(r.held.Members))
			for j, m := range r.held.Members {
				scores[j], texts[j] = m.Score, []byte(m.Text)
			}
			b.Queue(putSet, t.keys[i], scores, texts, r.expires)
		}
	}
	if len(keys) > 0 {
		b.Queue(putNums, keys, nums, expires)
	}
	if len(removed) > 0 {
		b.Queue(remove, removed)
	}
}

// closeResults closes results. In older versions of pgx, the first Close after an error
// of a row does not read the other results, and the connection could not be used again.
func closeResults(results pgx.BatchResults) {
	_ = results.Close()
	_ = results.Close()
}

// send sends b, and returns the first error of its statements.
func send(ctx context.Context, conn batcher, b *pgx.Batch) error {
	results := conn.SendBatch(ctx, b)
	defer closeResults(results)
	for range b.Len() {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	return results.Close()
}

// Prepare prepares the statements of decisions on a new connection. It is for the
// configuration of a pool:
//
//	config.AfterConnect = postgres.Prepare
//
// Without it, the first decision on each connection does so, and takes several times as
// long as others. If its context ends meanwhile, pgx closes the connection. So under
// load, calls with short deadlines could open connection after connection in vain.
//
// Prepare takes at most the time that opening the connection may take: connect_timeout in
// the URL, or ConnectTimeout in the configuration.
func Prepare(ctx context.Context, conn *pgx.Conn) error {
	if timeout := conn.Config().ConnectTimeout; timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	t := newTxn()
	t.writes, t.keys = true, [][]byte{}
	err := t.read(ctx, conn)
	if err == nil {
		var b pgx.Batch
		b.Queue(putNums, t.keys, t.keys, []int64{})
		b.Queue("COMMIT")
		err = send(ctx, conn, &b)
	}
	if err != nil && reset(ctx, conn) == nil { // for example, the table does not exist yet
		return nil
	}
	return err
}
