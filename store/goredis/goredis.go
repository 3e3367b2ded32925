// Package goredis keeps limiter state in Redis, from 6.0, or Valkey, through the client
// github.com/redis/go-redis/v9, from v9.7.3:
//
//	rdb := redis.NewClient(&redis.Options{
//		Addr:                  "localhost:6379",
//		MaxRetries:            -1,
//		ContextTimeoutEnabled: true,
//	})
//	lim, err := weir.New("api", goredis.New(rdb), algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}, nil)
//
// # Clients
//
// [New] takes the client that the application already has, and never closes it:
//
//   - a [redis.Client], for one server, or for a proxy that looks like one server;
//   - a [redis.Client] made by [redis.NewFailoverClient], for Sentinel;
//   - a [redis.ClusterClient], for Redis Cluster and Valkey Cluster;
//   - any client that [redis.NewUniversalClient] makes.
//
// A nil client and a [redis.Ring] are rejected: every method of the store, and weir.New,
// returns an error. A Ring sends an MGET to the shard of its first key only. If a shard
// is down, the Ring moves its keys to other shards, so their limits start afresh.
//
// Scripts go to masters, whatever the client's ReadOnly, RouteByLatency and RouteRandomly
// are. If one of these is set, MGet can read from a replica of a cluster. Time is the
// clock of any one server of a cluster.
//
// # Contexts
//
// If the context is done before a call, nothing is sent. During a call, go-redis checks
// the context while it waits for a connection, and between retries. With
// ContextTimeoutEnabled, a deadline also ends a read or a write. Without it, and for a
// cancellation without a deadline, the client's DialTimeout, ReadTimeout and WriteTimeout
// bound each attempt. A call that fails after its context is done returns the context's
// error. The step may have run.
//
// # Retries
//
// The store never retries a step whose reply was lost. The client can: by default,
// go-redis retries a command after a timeout or a lost connection. If the step had run,
// it then consumes tokens again: up to MaxRetries+1 times, 4 by default. Nobody is
// allowed without consuming a token. Set MaxRetries to -1: then a decision consumes once,
// and the caller gets an error early.
//
// A ClusterClient does not retry on one node by default. But its MaxRedirects counts lost
// replies too, so a decision can consume up to MaxRedirects+1 times, 4 by default. Leave
// MaxRedirects on: the client needs it to follow a slot that moves.
//
// Newer versions of the client dial five times, 100 ms apart, unless DialerRetries is
// set. Their ClusterClient sends COMMAND, unless DisableRoutingPolicies is set: an ACL
// must then allow COMMAND.
//
// # Failover
//
// A ClusterClient reads its cluster's topology every 10 to 60 seconds, or after a
// redirection. A dead node sends no redirection. So the store makes the client read the
// topology if a node cannot be reached or says that it no longer serves: in the
// background, and at most four times a second. Until a replica is promoted, calls return
// [store.ErrUnavailable].
//
// If a server before Redis 7.0 is demoted behind a fixed address, it replies READONLY
// from inside the script. go-redis does not notice that and keeps the connection: set
// ConnMaxLifetime.
package goredis

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

var (
	_ store.Store   = (*Store)(nil)
	_ store.Batcher = (*Store)(nil)
	_ store.Checker = (*Store)(nil)
)

var (
	errNil  = errors.New("goredis: the client is nil: want a *redis.Client or a *redis.ClusterClient")
	errRing = errors.New("goredis: the client is a *redis.Ring, which reads all keys of an MGET from one shard and " +
		"loses limits with a shard: want a *redis.ClusterClient, or a *redis.Client on one server")
)

// A Store keeps limiter state on the servers of its client. It is safe for concurrent use.
type Store struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // the client, when it is one
	single  bool                 // the client is a *redis.Client
	unfit   error                // the reason why the client can never work
	errs    adapter.Errors
	reload  adapter.Gate // to the cluster's topology
}

// New returns a store over client. It sends nothing to the server. Check reports a client
// that can never work: nil, or a [redis.Ring].
func New(client redis.UniversalClient) *Store {
	s := &Store{client: client}
	s.errs = adapter.Errors{Name: "goredis", Replied: replied, Follow: s.follow}
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		s.unfit = errNil
		return s
	}
	switch c := client.(type) {
	case *redis.Client:
		s.single = true
	case *redis.ClusterClient:
		s.cluster = c
	case *redis.Ring:
		s.unfit = errRing
	}
	return s
}

// Check returns an error if the client can never work.
func (s *Store) Check() error {
	if s == nil || s.client == nil {
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
	val, err := s.process(ctx, command(ctx, evalSHA, script, keys, args))
	if s.errs.NoScript(err) {
		if err := ctx.Err(); err != nil {
			return reply, s.errs.Call("eval "+script.Name(), err)
		}
		val, err = s.process(ctx, command(ctx, eval, script, keys, args))
	}
	return s.answer(ctx, script, keys, reply, val, err)
}

// Time returns the server's clock, in microseconds.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	if err := s.Check(); err != nil {
		return time.Time{}, err
	}
	if err := ctx.Err(); err != nil {
		return time.Time{}, s.errs.Call("time", err)
	}
	now, err := s.client.Time(ctx).Result()
	if err != nil {
		return time.Time{}, s.errs.Read(ctx, "time", err)
	}
	return now, nil
}

func (s *Store) process(ctx context.Context, cmd *redis.Cmd) (any, error) {
	_ = s.client.Process(ctx, cmd) // cmd holds the error
	return cmd.Result()
}
