// Package goredis keeps limiter state in Redis, from 6.0, or Valkey through the
// client github.com/redis/go-redis/v9, from 9.7.3.
//
// # Clients
//
// [New] takes the client that the application already has, and never closes it:
//
//   - a [redis.Client], for one server, or for a proxy that looks like one;
//   - a [redis.Client] made by [redis.NewFailoverClient], for Sentinel;
//   - a [redis.ClusterClient], for Redis Cluster and Valkey Cluster;
//   - whatever [redis.NewUniversalClient] makes of an address or several.
//
// A [redis.Ring] is refused: it sends MGET to the shard of the first key alone,
// and when a shard drops out its keys move to others, where every limit starts
// afresh. So is a nil client. New then returns a store whose Check, like every
// other method, returns an error that says so.
//
// Scripts go to masters, whatever the client's ReadOnly, RouteByLatency and
// RouteRandomly say; with these set, MGet may read from a replica of a cluster.
// The clock that Time tells is that of any one server of a cluster.
//
// # Contexts
//
// A context that is done before a call sends nothing. During a call, go-redis
// looks at the context while it waits for a connection and between tries; a
// read or a write under way ends at the deadline only with
// ContextTimeoutEnabled set. Without it, and always for a cancellation that
// comes without a deadline, the bound is the client's DialTimeout, ReadTimeout
// and WriteTimeout for each try. A call that fails when its context is done
// returns the context's error, whichever way the client put it, and the step
// may have run.
//
// # Retries
//
// The store never repeats a step whose reply was lost. The client may: by
// default go-redis tries a command again after a timeout or a lost connection,
// and a step that had run then charges once more. So one decision charges up to
// MaxRetries + 1 times (4 by default), and never lets anyone through for free.
// A limiter is better off with MaxRetries: -1, since its caller would rather
// hear of trouble early, and decide what to do, than wait through backoffs for
// a decision that charged twice. A ClusterClient does not retry on a node by
// default, but its MaxRedirects counts lost replies too: up to MaxRedirects + 1
// charges (4 by default). It is better left on, as it is also what follows a
// slot that has moved.
//
// Newer versions of the client dial five times, 100 ms apart, unless
// DialerRetries says otherwise, and a ClusterClient of theirs asks its servers
// for COMMAND unless DisableRoutingPolicies is set: an ACL should allow that.
//
// # Failover
//
// A ClusterClient looks at its cluster's topology once in 10 to 60 seconds, or
// when a server sends it elsewhere, which a dead one does not. So the store
// asks the client for a new topology, in the background and at most four times
// a second, when a node cannot be reached or says that it no longer serves. A
// call still fails with [store.ErrUnavailable] until a replica was promoted.
//
// A server before Redis 7.0 that was demoted behind an address that stays the
// same reports READONLY from inside the script, where go-redis does not see it
// and keeps the connection: there, set ConnMaxLifetime.
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

// A Store keeps limiter state where its client is connected to. It is safe for
// concurrent use.
type Store struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // the client, when it is one
	single  bool                 // the client is a *redis.Client
	unfit   error                // why the client can never work
	errs    adapter.Errors
	reload  adapter.Gate // to the cluster's topology
}

// New returns a store over client, without asking the server for anything. A
// client that can never work, nil or a [redis.Ring], is reported by Check.
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

// Check returns an error when New was given a client that can never work.
func (s *Store) Check() error {
	if s == nil || s.client == nil {
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
