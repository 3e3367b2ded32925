// Package redigo keeps limiter state in Redis, from 6.0, or Valkey, through the client
// github.com/gomodule/redigo, from v1.8.9, and for a cluster github.com/mna/redisc, from
// v1.4.0:
//
//	pool := &redis.Pool{
//		MaxIdle: 32,
//		DialContext: func(ctx context.Context) (redis.Conn, error) {
//			return redis.DialContext(ctx, "tcp", "localhost:6379", redis.DialReadTimeout(200*time.Millisecond))
//		},
//	}
//	lim, err := weir.New("api", redigo.New(pool), algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}, nil)
//
// # Clients
//
// [New] takes the [redis.Pool] that the application already has, for one server or for a
// proxy that looks like one server. [NewCluster] takes a [redisc.Cluster], for Redis
// Cluster and Valkey Cluster. The store never closes them. A client that can never work,
// for example a nil one, is rejected: every method of the store, and weir.New, returns an
// error.
//
// Scripts and reads go to masters. Time is the clock of any one server of a cluster.
//
// # Connections
//
// A call uses one connection at a time, and returns it to the pool before the call
// returns. If a server replies READONLY, it was demoted: the connection is closed, because
// another server may have that address now. The pool's TestOnBorrow can check idle
// connections. Without it, a restarted server costs one failed call for each idle
// connection.
//
// If the pool is exhausted or closed, calls return [store.ErrUnavailable]. If MaxActive is
// set, set Wait too: callers then queue until their contexts end.
//
// # Contexts
//
// If the context is done before a call, nothing is sent. During a call over a pool, a
// deadline or a cancellation ends the wait for a connection, the dial if the pool has a
// DialContext, and the exchange, whose connection is then closed. For that, redigo runs
// the exchange in a goroutine, which ends with the call or shortly after. A context that
// cannot end, such as [context.Background], needs no goroutine. Without a deadline, the
// bounds are [redis.DialConnectTimeout], 30 s by default, and [redis.DialReadTimeout] and
// [redis.DialWriteTimeout], which are unlimited by default.
//
// redisc does not support contexts. On a cluster:
//
//   - A deadline replaces DialReadTimeout for each command, also if the deadline is later.
//   - A cancellation without a deadline is noticed between commands: a command that was
//     sent ends after DialReadTimeout.
//   - A connection takes up to DialConnectTimeout, and several of these if nodes cannot be
//     reached.
//   - The wait for a connection takes up to the cluster's PoolWaitTime, which is unlimited
//     by default.
//
// Set all three. If the pool's connections are wrapped in a type without DoContext, the
// bounds are those of a cluster. Without DoWithTimeout, they are those of the connection.
//
// A call that fails after its context is done returns the context's error. The step may
// have run. Neither the store nor redigo nor redisc retries a step whose reply was lost:
// a decision consumes once at most.
//
// # Clusters
//
// The store follows MOVED and ASK, at most three times for a call. For each ASK it dials a
// connection, by CreatePool or DialOptions. It does not wait after a TRYAGAIN: the call
// returns [store.ErrUnavailable].
//
// EvalBatch and MGet group keys by node, and send to one node after the other. For that,
// the store sends CLUSTER SLOTS before the first such call, and before the next one after
// the cluster has changed. If that fails, keys are grouped by slot.
//
// redisc reads the topology again after a redirection. A dead node sends no redirection.
// So the store calls [redisc.Cluster.Refresh] if a node cannot be reached or says that it
// no longer serves: in the background, one at a time and at most four times a second.
// Until a replica is promoted, calls return [store.ErrUnavailable]. Refresh asks only the
// masters that redisc knows. If none of them is left, make the cluster again.
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

// errNotTime is the error of a reply that is not one of TIME.
var errNotTime = errors.New("the reply is not a time")

// A Pool returns connections, which are closed after use: a [*redis.Pool].
type Pool interface {
	GetContext(ctx context.Context) (redis.Conn, error)
}

// A Store keeps limiter state on the servers of its client. It is safe for concurrent use.
type Store struct {
	pool    Pool            // nil for a cluster
	cluster *redisc.Cluster // nil for a pool
	unfit   error           // the reason why the client can never work
	errs    adapter.Errors

	layout     atomic.Pointer[layout] // nil if it must be read
	reload     adapter.Gate           // to the cluster's topology
	refreshing atomic.Bool
}

// New returns a store over pool. It sends nothing to the server. Check reports a nil pool,
// and a [redis.Pool] that cannot dial.
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

// NewCluster returns a store over cluster. It sends nothing to any server. Check reports a
// nil cluster, and one without StartupNodes.
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

// Check returns an error if the client can never work.
func (s *Store) Check() error {
	if s == nil || s.pool == nil && s.cluster == nil {
		return errNil
	}
	return s.unfit
}

// Eval runs script: see [store.Store]. It sends an EVALSHA, and an EVAL if the server does
// not know the script.
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
