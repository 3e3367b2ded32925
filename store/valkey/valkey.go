// Package valkey implements a store that keeps the state of limiters in Valkey or Redis. It
// uses the client github.com/valkey-io/valkey-go:
//
//	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{"localhost:6379"}})
//	if err != nil {
//		return err
//	}
//	lim, err := weir.New("api", valkeystore.New(client), algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}, nil)
//
// It supports every version of Valkey, Redis from 6.0, and the client from v1.0.76. The
// package has the same name as the client. The example imports this package as valkeystore.
//
// valkey-go is a fork of rueidis: the same version of both has the same code, with other
// names of types. So this package behaves as store/rueidis does, and the documentation of
// store/rueidis has the details.
//
// # Clients
//
// [New] takes the client that the application already has, and never closes it. It can be
// any client that [valkey.NewClient] makes: for one server, Sentinel, Valkey Cluster or
// Redis Cluster. The store rejects a nil client: every method of the store, and weir.New,
// returns an error.
//
// [valkey.NewClient] connects to the server, and fails if there is none. With
// ForceSingleClient, it returns a client together with the error. That client works as soon
// as the server does.
//
// Set DisableCache, because the store does not use the client's cache. Concurrent calls
// share connections, and the client sends them together. Scripts are sent to masters. The
// function SendToReplicas must return false for scripts, as the method IsReadOnly of a
// command does.
//
// # Errors and contexts
//
// If the context is done before a call, nothing is sent. During a call, a deadline or a
// cancellation ends the call at once, with the context's error. The script may have run, or
// may run later. If callers share a connection, set AlwaysPipelining: otherwise a deadline
// can close the connection, and the calls of others return [store.ErrUnavailable].
//
// If a call has no deadline and the server does not reply, the call fails after
// ConnWriteTimeout, 10 s by default. Set a lower value for a limiter.
//
// If a reply was lost, neither the store nor the client runs the script again. So a
// decision consumes tokens at most once. MGet is retried until the context is done, unless
// DisableRetry is set.
//
// A client of a cluster or of Sentinel follows new masters by itself. Until a replica is
// promoted, calls return [store.ErrUnavailable].
package valkey

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
	"github.com/weir-go/weir/store/internal/rueidisapi"
)

var (
	_ store.Store   = (*Store)(nil)
	_ store.Batcher = (*Store)(nil)
	_ store.Checker = (*Store)(nil)
)

var errNil = errors.New("valkey: the client is nil: it must be a client that valkey.NewClient returned")

// A Store keeps the state of limiters on the servers of its client. Make one with [New]. It
// is safe for concurrent use. The methods of a nil or zero Store return an error.
type Store struct {
	shared *rueidisapi.Store[valkey.Completed, valkey.ValkeyResult] // nil without a client
}

// New returns a store that uses client. It sends nothing to the server. If client is nil,
// Check returns an error.
func New(client valkey.Client) *Store {
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return &Store{}
	}
	// A wrapper can have no mode. The store treats an unknown mode as a cluster, because
	// every server accepts the commands for a cluster.
	mode := client.Mode()
	return &Store{&rueidisapi.Store[valkey.Completed, valkey.ValkeyResult]{
		Client:  client,
		Dialect: dialect(client),
		Single:  mode == valkey.ClientModeStandalone || mode == valkey.ClientModeSentinel,
		// The client reads a new topology by itself.
		Errs: adapter.Errors{Name: "valkey", Replied: replied, Follow: func() {}},
	}}
}

// Check implements [store.Checker]. It returns an error if the client is nil.
func (s *Store) Check() error {
	if s == nil || s.shared == nil {
		return errNil
	}
	return nil
}

// Eval implements [store.Store]. It sends EVALSHA, and then EVAL if the server does not know
// the script.
func (s *Store) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if err := s.Check(); err != nil {
		return reply, err
	}
	return s.shared.Eval(ctx, script, keys, args, reply)
}

// EvalBatch implements [store.Batcher]. It sends one pipeline, which the client of a cluster
// splits by node. If a server does not know a script, it sends a second pipeline with the
// calls of such scripts.
func (s *Store) EvalBatch(ctx context.Context, calls []store.Eval) {
	if err := s.Check(); err != nil {
		for i := range calls {
			calls[i].Err = err
		}
		return
	}
	s.shared.EvalBatch(ctx, calls)
}

// MGet implements [store.Store]. On one server, it sends one MGET. On a cluster, it sends one
// MGET for each slot, in one pipeline.
func (s *Store) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if err := s.Check(); err != nil {
		return values, err
	}
	return s.shared.MGet(ctx, keys, values)
}

// Time implements [store.Store]. It returns the time of a server, in microseconds.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	if err := s.Check(); err != nil {
		return time.Time{}, err
	}
	return s.shared.Time(ctx)
}
