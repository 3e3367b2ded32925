// Package redigo keeps limiter state in Redis, from 6.0, or Valkey through the
// client github.com/gomodule/redigo, from 1.8.9, and, for a cluster,
// github.com/mna/redisc, from 1.4.0.
//
// # Clients
//
// [New] takes the [redis.Pool] that the application already has, for one server
// or for a proxy that looks like one. [NewCluster] takes a [redisc.Cluster], for
// Redis Cluster and Valkey Cluster. Neither is ever closed. A client that can
// never work, a nil one say, makes a store whose Check, like every other method,
// returns an error that says so.
//
// Scripts and reads go to masters. The clock that Time tells is that of any one
// server of a cluster.
//
// # Connections
//
// A call takes one connection at a time, and has given it back when it returns.
// One on which a server says READONLY is closed, and not used again: the server
// was demoted, and another may answer at its address by now. Whether an idle
// connection is still good is for the pool's TestOnBorrow to say; without one, a
// server that restarted costs one failed call for each idle connection.
//
// A pool that is exhausted or closed is [store.ErrUnavailable]. With MaxActive
// set, Wait makes callers queue as long as their contexts allow, which suits a
// limiter better than an error.
//
// # Contexts
//
// A context that is done before a call sends nothing. During a call over a pool,
// a deadline and a cancellation alike end the wait for a connection, the dial if
// the pool has a DialContext, and the exchange, whose connection is then closed.
// Redigo runs an exchange in a goroutine of its own for that, which ends with the
// call or shortly after; a context that cannot end, such as
// [context.Background], costs none. Without a deadline, the bounds are those of
// [redis.DialConnectTimeout], 30 s by default, [redis.DialReadTimeout] and
// [redis.DialWriteTimeout], without limit by default.
//
// Redisc knows no contexts. On a cluster, a deadline takes the place of
// DialReadTimeout for each command, also when it is the later of the two. A
// cancellation that comes without a deadline is seen between commands: a command
// under way ends with DialReadTimeout. To connect takes up to DialConnectTimeout,
// and a cluster with a node that cannot be reached may try several; to wait for a
// connection takes up to the cluster's PoolWaitTime, without limit by default. Set
// all three.
//
// If the connections of a pool are wrapped in a type without DoContext, the bounds
// are those of a cluster, and without DoWithTimeout those of the connection alone.
//
// A call that fails when its context is done returns the context's error, and the
// step may have run. The store never repeats a step whose reply was lost, and
// neither does redigo or redisc: a decision charges once.
//
// # Clusters
//
// The store follows MOVED and ASK, at most three times for a call, and dials a
// connection of its own for each ASK, by CreatePool or DialOptions. It does not
// wait out a TRYAGAIN, which is [store.ErrUnavailable].
//
// EvalBatch and MGet group keys by node, so that each node is asked once, one after
// the other. For that the store asks CLUSTER SLOTS before the first such call, and
// before the next one after the cluster has changed. If that fails, each slot is
// asked by itself.
//
// Redisc looks at the topology again when a server sends it elsewhere, which a dead
// one does not. So the store calls [redisc.Cluster.Refresh] when a node cannot be
// reached or says that it no longer serves: in a goroutine that ends with it, as no
// context bounds it, one at a time and at most four times a second. A call still
// fails with [store.ErrUnavailable] until a replica was promoted. Refresh asks the
// masters that redisc knows, and nobody else: if none of them is left, the cluster
// has to be made anew.
package redigo

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

var (
	_ store.Store   = (*Store)(nil)
	_ store.Batcher = (*Store)(nil)
	_ store.Checker = (*Store)(nil)
)

var (
	errNil     = errors.New("redigo: the client is nil: want New with a *redis.Pool, or NewCluster with a *redisc.Cluster")
	errNoDial  = errors.New("redigo: the pool cannot dial: want a *redis.Pool with a Dial or a DialContext")
	errNoNodes = errors.New("redigo: the cluster names no nodes: want a *redisc.Cluster with StartupNodes")
)

// errNotTime is for a reply that no TIME gives.
var errNotTime = errors.New("the reply is not a time")

// A Pool hands out connections, which are closed after use: a [*redis.Pool].
type Pool interface {
	GetContext(ctx context.Context) (redis.Conn, error)
}

// A Store keeps limiter state where its client is connected to. It is safe for
// concurrent use.
type Store struct {
	pool    Pool            // nil for a cluster
	cluster *redisc.Cluster // nil for a pool
	unfit   error           // why the client can never work
	errs    adapter.Errors

	layout     atomic.Pointer[layout] // nil: to be asked for
	reload     adapter.Gate           // to the cluster's topology
	refreshing atomic.Bool
}

// New returns a store over pool, without asking the server for anything. A pool
// that is nil, or a [redis.Pool] that cannot dial, is reported by Check.
func New(pool Pool) *Store {
	s := &Store{pool: pool}
	s.errs = adapter.Errors{Name: "redigo", Replied: replied, Follow: func() {}}
	v := reflect.ValueOf(pool)
	p, known := pool.(*redis.Pool)
	switch {
	case pool == nil || v.Kind() == reflect.Pointer && v.IsNil():
		s.unfit = errNil
	case known && p.Dial == nil && p.DialContext == nil:
		s.unfit = errNoDial
	}
	return s
}

// NewCluster returns a store over cluster, without asking any server for anything.
// A cluster that is nil or has no StartupNodes is reported by Check.
func NewCluster(cluster *redisc.Cluster) *Store {
	s := &Store{cluster: cluster}
	s.errs = adapter.Errors{Name: "redigo", Replied: replied, Follow: s.refresh}
	switch {
	case cluster == nil:
		s.unfit = errNil
	case len(cluster.StartupNodes) == 0:
		s.unfit = errNoNodes
	}
	return s
}

// Check returns an error when the store was given a client that can never work.
func (s *Store) Check() error {
	if s == nil || s.pool == nil && s.cluster == nil {
		return errNil
	}
	return s.unfit
}

// Eval runs script: see [store.Store]. It sends an EVALSHA, and, when the server
// does not know the script, an EVAL.
func (s *Store) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if err := s.Check(); err != nil {
		return reply, err
	}
	err := store.CheckKeys(keys)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return reply, s.errs.Call("eval "+script.Name(), err)
	}
	val, err := s.eval(ctx, script, keys, args)
	return s.answer(ctx, script, keys, reply, val, err)
}

func (s *Store) eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg) (any, error) {
	l := line{store: s, key: keys[0]}
	if err := l.open(ctx); err != nil {
		return nil, err
	}
	defer l.close()
	cmd := newCommand(script, keys, args)
	val, err := l.do(ctx, &cmd)
	if s.errs.NoScript(err) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		cmd.spellOut(script)
		val, err = l.do(ctx, &cmd)
	}
	return val, err
}

// Time returns the server's clock, in microseconds.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	if err := s.Check(); err != nil {
		return time.Time{}, err
	}
	if err := ctx.Err(); err != nil {
		return time.Time{}, s.errs.Call("time", err)
	}
	now, err := s.time(ctx)
	if err != nil {
		return time.Time{}, s.errs.Read(ctx, "time", err)
	}
	return now, nil
}

func (s *Store) time(ctx context.Context) (time.Time, error) {
	l := line{store: s}
	if err := l.open(ctx); err != nil {
		return time.Time{}, err
	}
	defer l.close()
	val, err := l.do(ctx, &command{name: "TIME"})
	if err != nil {
		return time.Time{}, err
	}
	parts, err := redis.Int64s(val, nil)
	if err != nil || len(parts) != 2 {
		return time.Time{}, errNotTime
	}
	return time.Unix(parts[0], parts[1]*int64(time.Microsecond)), nil
}
