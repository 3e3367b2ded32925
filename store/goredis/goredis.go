// Package goredis implements a store that keeps the state of limiters in Redis or Valkey.
// It uses the client github.com/redis/go-redis/v9:
//
//	rdb := redis.NewClient(&redis.Options{
//		Addr:                  "localhost:6379",
//		MaxRetries:            -1, // a script whose reply was lost is not sent again
//		DialTimeout:           200 * time.Millisecond,
//		ReadTimeout:           200 * time.Millisecond,
//		WriteTimeout:          200 * time.Millisecond,
//		ContextTimeoutEnabled: true, // calls end at their deadlines
//		// DialerRetries: 1, if your version has it: without it, a dead server looks slow
//	})
//	lim, err := weir.New("api", goredis.New(rdb), algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}, nil)
//
// It supports Redis from 6.0, every version of Valkey, and the client from v9.7.3.
//
// # Clients
//
// [New] takes the client that the application already has, and never closes it:
//
//   - a [redis.Client], for one server, or for a proxy that behaves like one server;
//   - a [redis.Client] made by [redis.NewFailoverClient], for Sentinel;
//   - a [redis.ClusterClient], for Redis Cluster and Valkey Cluster;
//   - any client that [redis.NewUniversalClient] makes;
//   - a struct that embeds one of these, or an interface that holds it, for example to
//     instrument the calls. The store calls the methods of the struct, and otherwise
//     treats it as the client that it embeds.
//
// The store rejects a nil or zero client and a [redis.Ring]: every method of the store, and
// weir.New, returns an error. A Ring sends an MGET only to the shard of the first key.
// If a shard is down, the Ring uses other shards for the keys of that shard, and these
// shards do not have the state of the limits.
//
// Scripts are sent to masters, even if the client has ReadOnly, RouteByLatency or
// RouteRandomly. With one of these options, MGet can read from a replica of a cluster.
// Time uses the clock of any server of a cluster.
//
// # Contexts
//
// If the context is done before a call, nothing is sent. During a call, go-redis checks
// the context while it waits for a connection, and between retries. With
// ContextTimeoutEnabled, a deadline also ends a read or a write. A cancellation never
// ends a read or a write. The client's DialTimeout, ReadTimeout and WriteTimeout limit
// the time of each attempt. If a call fails after its context is done, it returns the
// context's error. The script may have run.
//
// # Retries
//
// If a reply was lost, the store does not run the script again, but the client can. By
// default, go-redis retries a command after a timeout or a lost connection. If the script
// had already run, it then consumes tokens again. So a decision without an ID can consume
// tokens up to MaxRetries+1 times, 4 by default, and 7 times if the server loses its
// scripts meanwhile. A decision with a weir.Request.ID consumes them once. Set MaxRetries
// to -1. Then every decision consumes tokens at most once, and the caller gets an error
// earlier. With and without retries, no request is allowed without consuming tokens.
//
// A ClusterClient also retries after a lost reply, as often as MaxRedirects allows. So a
// decision without an ID can consume tokens up to MaxRedirects+1 times, 4 by default. Its
// MaxRetries is -1 by default. Do not disable MaxRedirects: the client needs it to follow
// slots that move.
//
// A batch, for example of weir.Limiter.DoMany or store.Coalesce, is one pipeline. If one
// of its replies is lost, versions of the client without NoRetry send the whole pipeline
// of that server again, including calls that were answered. Newer versions send no batch
// again.
//
// From v9.15 on, the client dials up to five times, 100 ms apart, unless the option
// DialerRetries is set. A server that refuses connections then looks slow, so set
// it to 1. In versions that have the option DisableRoutingPolicies, a ClusterClient sends
// COMMAND, unless the option is set. If the servers use an ACL, it must then allow
// COMMAND.
//
// # Failover
//
// A ClusterClient reads the topology of its cluster again after a redirection, and
// after 10 s, or 60 s from v9.22.0. A node that is down sends no redirection. So if a
// node cannot be reached, or reports that it no longer serves, the store makes the
// client read the topology. It does so in the background, at most four times per
// second. Until a replica is promoted, calls return [store.ErrUnavailable].
//
// If a server with a version before Redis 7.0 is demoted, it replies READONLY from
// inside the script. go-redis does not detect this, and keeps the connection. If such
// servers have a fixed address, set ConnMaxLifetime.
//
// With Sentinel, set all three timeouts. A client that knows no master asks the sentinels
// under a lock, for which other callers wait past their deadlines. The timeouts limit how
// long it is held.
package goredis

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

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
	errNil  = errors.New("goredis: the client is nil or a zero value: it must be a *redis.Client of NewClient, or a *redis.ClusterClient of NewClusterClient")
	errRing = errors.New("goredis: the client is a *redis.Ring, which reads all keys of an MGET from one shard and " +
		"loses limits if a shard is down: it must be a *redis.ClusterClient, or a *redis.Client of one server")
	errDials    = errors.New("goredis: the client dials a server that refuses connections several times, with pauses, so that the server looks slow: set DialerRetries to 1 in its options")
	errDeadline = errors.New("goredis: the client ignores the deadlines of contexts: set ContextTimeoutEnabled in its options")
)

// A Store keeps the state of limiters on the servers of its client. Make one with [New].
// It is safe for concurrent use. The methods of a nil or zero Store return an error.
type Store struct {
	client  redis.UniversalClient
	inner   redis.UniversalClient // the client that client wraps, or client itself
	cluster *redis.ClusterClient  // inner, if it is a *redis.ClusterClient
	single  bool                  // inner is a *redis.Client
	unfit   error                 // the reason why the client can never work
	base    adapter.Base
	reload  adapter.Gate // limits reloads of the topology
}

// New returns a store that uses client. It sends nothing to the server. If the client can
// never work, because it is nil, zero or a [redis.Ring], Check returns an error.
func New(client redis.UniversalClient) *Store {
	s := &Store{client: client, inner: adapter.Wrapped(client)}
	s.base = adapter.Base{Name: "goredis", Replied: adapter.Replied[redis.Error], Follow: s.follow}
	const module = "github.com/redis/go-redis/v9"
	if v := reflect.Indirect(reflect.ValueOf(s.inner)); adapter.Nil(s.inner) || v.Type().PkgPath() == module && v.IsZero() {
		s.unfit = errNil
		return s
	}
	switch c := s.inner.(type) {
	case *redis.Client:
		s.single = true
		s.base.Client = errreply.Single
		if c.Options().Addr == "FailoverClient" { // as redis.NewFailoverClient names it
			s.base.Client = errreply.Sentinel
		}
	case *redis.ClusterClient:
		s.cluster = c
		s.base.Client = errreply.Cluster
	case *redis.Ring:
		s.unfit = errRing
	}
	return s
}

// Check implements [store.Checker]. It returns an error if the client can never work.
func (s *Store) Check() error {
	if s == nil || s.client == nil {
		return errNil
	}
	return s.unfit
}

// CheckDeadline implements [store.DeadlineChecker]. It returns an error if the option
// ContextTimeoutEnabled of the client is not set, if the client has the option
// DialerRetries, and it is not 1, or if the client is of another type that does not show
// its options.
func (s *Store) CheckDeadline() error {
	if err := s.Check(); err != nil {
		return err
	}
	switch c := s.inner.(type) {
	case interface{ Options() *redis.Options }:
		return checkDeadline(c.Options(), c.Options().ContextTimeoutEnabled)
	case interface{ Options() *redis.ClusterOptions }:
		return checkDeadline(c.Options(), c.Options().ContextTimeoutEnabled)
	}
	return fmt.Errorf("goredis: the client is a %T, which does not show whether it heeds the deadlines of contexts: "+
		"embed the *redis.Client or the *redis.ClusterClient that it wraps, or give it its method Options", s.client)
}

// checkDeadline checks options, which point to the options of a client.
func checkDeadline(options any, heeds bool) error {
	if !heeds {
		return errDeadline
	}
	// Older versions of the client have no such option, and dial once.
	if f := reflect.ValueOf(options).Elem().FieldByName("DialerRetries"); f.IsValid() && f.CanInt() && f.Int() != 1 {
		return errDials
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
		cmd := command(ctx, name, script, keys, args)
		_ = s.client.Process(ctx, cmd) // cmd holds the error
		return appendValues(reply, cmd.Val(), cmd.Err())
	})
}

// Time implements [store.Store]. It returns the time of a server, in microseconds.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	if err := s.Check(); err != nil {
		return time.Time{}, err
	}
	return s.base.Time(ctx, func(ctx context.Context) (time.Time, error) { return s.client.Time(ctx).Result() })
}

// follow makes a cluster client read the topology again, in the background. It does so at
// most four times per second. The client runs one reload at a time.
func (s *Store) follow() {
	if s.cluster != nil && s.reload.Open() {
		s.cluster.ReloadState(context.Background())
	}
}
