// Package redigo implements a store that keeps the state of limiters in Redis or Valkey.
// It uses the client github.com/gomodule/redigo:
//
//	pool := &redis.Pool{
//		MaxIdle:     32, // about the number of concurrent decisions: others dial
//		MaxActive:   128,
//		Wait:        true,
//		IdleTimeout: time.Minute, // shorter than the server's timeout
//		DialContext: func(ctx context.Context) (redis.Conn, error) {
//			return redis.DialContext(ctx, "tcp", "localhost:6379",
//				redis.DialConnectTimeout(time.Second),
//				redis.DialReadTimeout(200*time.Millisecond),
//				redis.DialWriteTimeout(200*time.Millisecond))
//		},
//	}
//	lim, err := weir.New("api", redigo.New(pool), algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}, nil)
//
// It supports Redis from 6.0, every version of Valkey, and redigo from v1.8.9. For
// clusters, it uses github.com/mna/redisc from v1.4.0.
//
// # Clients
//
// [New] takes the [redis.Pool] that the application already has, for one server or for a
// proxy that behaves like one server. [NewCluster] takes a [redisc.Cluster], for Redis
// Cluster and Valkey Cluster. The store never closes them. If a client can never work,
// for example because it is nil, the store rejects it: every method of the store, and
// weir.New, returns an error.
//
// Scripts and reads are sent to masters. Time uses the clock of any server of a cluster.
//
// # Connections
//
// A call uses one connection at a time. Before the call returns, the connection is back
// in its pool. If a server was demoted, it replies READONLY. The store then closes the
// connection, because another server can now have the same address. After a server was
// restarted, one call fails for each idle connection, unless the pool has a
// TestOnBorrow that checks idle connections. A PING in it doubles the round trips, so send
// one only after some idle seconds.
//
// Set IdleTimeout to less than the timeout of the server and of every proxy between.
// Otherwise, as with the default of 0, each idle connection costs one call (EOF) after a
// quiet time.
//
// If the pool is exhausted or closed, calls return [store.ErrUnavailable]. If MaxActive
// is set, set Wait too: callers then wait for a connection until their contexts end.
//
// # Contexts
//
// If the context is done before a call, nothing is sent. During a call on a pool, a
// deadline or a cancellation ends the wait for a connection, the dial if the pool has a
// DialContext, and the exchange of command and reply, after which the connection is
// closed. redigo runs the exchange in a goroutine, which ends with the call or shortly
// after. If a context cannot end, for example [context.Background], there is no
// goroutine.
//
// Without a deadline, these timeouts apply: [redis.DialConnectTimeout], 30 s by default,
// and [redis.DialReadTimeout] and [redis.DialWriteTimeout], which are unlimited by
// default.
//
// redisc does not support contexts. On a cluster:
//
//   - For each command, the time until the deadline replaces DialReadTimeout, even if
//     it is longer.
//   - A cancellation without a deadline takes effect only between commands. A command
//     that was sent ends after DialReadTimeout.
//   - Connecting takes up to DialConnectTimeout. If nodes cannot be reached, it can take
//     several times as long.
//   - The wait for a connection takes up to the cluster's PoolWaitTime, which is
//     unlimited by default.
//
// So set DialReadTimeout, DialConnectTimeout and PoolWaitTime. DialReadTimeout is needed
// even if every call has a deadline: without it, a Refresh that asks a server which does
// not answer never ends, and the store does not follow its cluster. If the connections of
// a pool have a type without DoContext, for example a wrapper, calls behave as on a
// cluster. Without DoWithTimeout, only the timeouts of the connection apply.
//
// If a call fails after its context is done, it returns the context's error. The script
// may have run. If a reply was lost, neither the store nor redigo nor redisc runs the
// script again. So a decision consumes tokens at most once.
//
// # Clusters
//
// Set CreatePool, because redisc otherwise dials for every call, and call Refresh first,
// because the first call for each slot is otherwise redirected.
//
// A call follows MOVED and ASK, at most three times. For each ASK, the store makes a
// new connection, with CreatePool or DialOptions. If the reply is TRYAGAIN, the call
// does not wait: it returns [store.ErrUnavailable].
//
// EvalBatch and MGet group keys by node, and send to one node after the other. To know
// the nodes, the store sends CLUSTER SLOTS before the first such call, and again after
// the cluster has changed. If CLUSTER SLOTS fails, keys are grouped by slot.
//
// redisc reads the topology again after a redirection. A node that is down sends no
// redirection. So if a node cannot be reached, or reports that it no longer serves, the
// store calls [redisc.Cluster.Refresh]. It does so in the background, at most four
// times per second. Until a replica is promoted, calls return [store.ErrUnavailable].
// Refresh asks only the masters that redisc knows. If all of them were replaced, make a
// new redisc.Cluster and a new store.
package redigo

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
	"github.com/weir-go/weir/store/internal/errreply"
)

var (
	_ store.Store   = (*Store)(nil)
	_ store.Batcher = (*Store)(nil)
	_ store.Checker = (*Store)(nil)
	_ store.Lister  = (*Store)(nil)

	_ store.DeadlineChecker = (*Store)(nil)
)

var (
	errNil     = errors.New("redigo: the client is nil: call New with a *redis.Pool, or NewCluster with a *redisc.Cluster")
	errNoDial  = errors.New("redigo: the *redis.Pool cannot dial: it must have a Dial or a DialContext")
	errDial    = errors.New("redigo: a deadline does not end a dial of the *redis.Pool: set DialContext instead of Dial")
	errNoNodes = errors.New("redigo: the *redisc.Cluster has no nodes: it must have StartupNodes")
)

// A Pool returns connections. The store closes a connection after use, which returns it
// to the pool. A [*redis.Pool] is a Pool, and so is a struct that embeds one.
type Pool interface {
	GetContext(ctx context.Context) (redis.Conn, error)
}

// A Store keeps the state of limiters on the servers of its client. Make one with [New]
// or [NewCluster]. It is safe for concurrent use. The methods of a nil or zero Store
// return an error.
type Store struct {
	pool    Pool            // nil for a cluster
	inner   Pool            // the Pool that pool embeds, or pool itself
	cluster *redisc.Cluster // nil for a pool
	unfit   error           // the reason why the client can never work
	base    adapter.Base

	layout     atomic.Pointer[layout] // nil if it must be read
	reload     adapter.Gate           // limits reloads of the topology
	refreshing atomic.Bool
}

// New returns a store that uses pool. It sends nothing to the server. If pool is nil, or
// is a [redis.Pool] that cannot dial, Check returns an error.
func New(pool Pool) *Store {
	s := &Store{pool: pool}
	s.base = adapter.Base{Name: "redigo", Replied: adapter.Replied[redis.Error], Client: errreply.Single, Follow: func() {}}
	s.inner = adapter.Wrapped(pool)
	p, known := s.inner.(*redis.Pool)
	switch {
	case adapter.Nil(s.inner):
		s.unfit = errNil
	case known && p.Dial == nil && p.DialContext == nil:
		s.unfit = errNoDial
	}
	return s
}

// NewCluster returns a store that uses cluster. It sends nothing to any server. If
// cluster is nil, or has no StartupNodes, Check returns an error.
func NewCluster(cluster *redisc.Cluster) *Store {
	s := &Store{cluster: cluster}
	s.base = adapter.Base{Name: "redigo", Replied: adapter.Replied[redis.Error], Client: errreply.Cluster, Follow: s.refresh}
	switch {
	case cluster == nil:
		s.unfit = errNil
	case len(cluster.StartupNodes) == 0:
		s.unfit = errNoNodes
	}
	return s
}

// Check implements [store.Checker]. It returns an error if the client can never work.
func (s *Store) Check() error {
	if s == nil || s.pool == nil && s.cluster == nil {
		return errNil
	}
	return s.unfit
}

// CheckDeadline implements [store.DeadlineChecker]. It returns an error if the client is
// a [redis.Pool] without a DialContext.
func (s *Store) CheckDeadline() error {
	if err := s.Check(); err != nil {
		return err
	}
	if p, ok := s.inner.(*redis.Pool); ok && p.DialContext == nil {
		return errDial
	}
	return nil
}

// Eval implements [store.Store]. It sends EVALSHA, and then EVAL if the server does not
// know the script.
func (s *Store) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if err := s.Check(); err != nil {
		return reply, err
	}
	return s.base.Eval(ctx, script, keys, reply, func(name string) ([]store.Value, error) {
		cmd := newCommand(name, script, keys, args)
		val, err := s.do(ctx, &cmd)
		return adapter.Append(reply, val, err)
	})
}

// Time implements [store.Store]. It returns the time of a server, in microseconds.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	if err := s.Check(); err != nil {
		return time.Time{}, err
	}
	return s.base.Time(ctx, s.time)
}

func (s *Store) time(ctx context.Context) (time.Time, error) {
	val, err := s.do(ctx, &command{name: "TIME"})
	return adapter.ParseTime(adapter.Append(nil, val, err))
}
