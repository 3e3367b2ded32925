// Package valkey implements a store that keeps the state of limiters in Valkey or Redis.
// It uses the client github.com/valkey-io/valkey-go:
//
//	client, err := valkey.NewClient(valkey.ClientOption{
//		InitAddress:       []string{"localhost:6379"},
//		ForceSingleClient: true, // leave it out for a cluster
//		DisableCache:      true, // the store does not use the client's cache
//		DisableRetry:      true, // MGet is not retried
//		AlwaysPipelining:  true, // a deadline ends only one call
//		Dialer:            net.Dialer{Timeout: time.Second},
//		DialCtxFn:         valkeystore.Dial, // the client could panic
//		ConnWriteTimeout:  time.Second,
//	})
//	if err != nil {
//		return err
//	}
//	lim, err := weir.New("api", valkeystore.New(client), algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}, nil)
//
// It supports every version of Valkey, Redis from 6.0, and the client from v1.0.76. The
// package has the same name as the client. The example imports this package as
// valkeystore.
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
// ForceSingleClient, it returns a client together with the error. That client works as
// soon as the server does.
//
// Set DisableCache, because the store does not use the client's cache. Concurrent calls
// share connections, and the client sends them together. Scripts are sent to masters. The
// function SendToReplicas must return false for scripts, as the method IsReadOnly of a
// command does.
//
// # Errors and contexts
//
// If the context is done before a call, nothing is sent. During a call, a deadline or a
// cancellation ends the call at once, with the context's error. The script may have run,
// or may run later. If callers share a connection, set AlwaysPipelining: otherwise a
// deadline can close the connection, and the calls of others return
// [store.ErrUnavailable].
//
// If a call has no deadline and the server does not reply, the call fails after
// ConnWriteTimeout, 10 s by default. Set a lower value for a limiter.
//
// If a reply was lost, neither the store nor the client runs the script again. So a
// decision consumes tokens at most once. MGet is retried until the context is done,
// unless DisableRetry is set.
//
// A client of a cluster or of Sentinel follows new masters. Until a replica is
// promoted, calls return [store.ErrUnavailable].
package valkey

//go:generate go run ../internal/genvalkey
