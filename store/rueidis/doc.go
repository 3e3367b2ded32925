// Package rueidis implements a store that keeps the state of limiters in Redis or Valkey.
// It uses the client github.com/redis/rueidis:
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{
//		InitAddress:       []string{"localhost:6379"},
//		ForceSingleClient: true, // leave it out for a cluster
//		DisableCache:      true, // the store does not use the client's cache
//		DisableRetry:      true, // MGet is not retried
//		AlwaysPipelining:  true, // a deadline ends only one call
//		Dialer:            net.Dialer{Timeout: time.Second},
//		DialCtxFn:         rueidisstore.Dial, // the client could panic
//		ConnWriteTimeout:  time.Second,
//	})
//	if err != nil {
//		return err
//	}
//	lim, err := weir.New("api", rueidisstore.New(client), algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}, nil)
//
// It supports Redis from 6.0, every version of Valkey, and the client from v1.0.76. The
// package has the same name as the client. The example imports this package as
// rueidisstore.
//
// # Clients
//
// [New] takes the client that the application already has, and never closes it. It can be
// any client that [rueidis.NewClient] makes: for one server, Sentinel, Redis Cluster or
// Valkey Cluster. The store rejects a nil client: every method of the store, and
// weir.New, returns an error.
//
// [rueidis.NewClient] connects to the server, and fails if there is none. With
// ForceSingleClient, it returns a client together with the error. That client works as
// soon as the server does. Without ForceSingleClient, the client sends CLUSTER SLOTS to a
// single address, to find out whether the server is a cluster.
//
// Set DisableCache, because the store does not use the client's cache. If a server does
// not support RESP3 or CLIENT TRACKING, its clients need this option.
//
// Concurrent calls share connections, and the client sends them together. Do not set
// DisableAutoPipelining: each call would then use another connection.
//
// Set DialCtxFn to [Dial]. Without it, the client can end the process: it panics if a server
// that has too many clients rejects a connection, and the deadline of the call that made the
// connection has just passed.
//
// For TLS, set TLSConfig, and Sentinel.TLSConfig for sentinels, and use v1.0.79 or newer.
// With older versions, a reply that arrives while its connection is being closed can crash
// the process.
//
// Scripts are sent to masters, because the store marks no script as read-only. The
// function SendToReplicas must return false for scripts, as the method IsReadOnly of a
// command does. If it returns true, or if ReplicaOnly is set, scripts run on replicas,
// where they fail or read old state. SendToReplicas can return true for MGET: MGet is
// then sent to a replica. Time uses the clock of any node of a cluster, which can be a
// replica.
//
// # Contexts
//
// If the context is done before a call, nothing is sent. During a call, a deadline or a
// cancellation ends the call at once, with the context's error. The script may have run,
// or may run later: the client does not remove it from the queue of a connection.
//
// If a connection has only one call, the client sets the deadline of the call on the
// connection. When the deadline passes, the connection is closed. Other calls that use
// the connection at that time return [store.ErrUnavailable]. With AlwaysPipelining, a
// deadline ends only one call.
//
// Two waits do not end with the context:
//
//   - the wait while another call makes the connection: up to Dialer.Timeout, 5 s by
//     default;
//   - the wait while the queue of the connection is full, with 1,024 calls by default,
//     unless the environment variable RUEIDIS_QUEUE_TYPE is flowbuffer.
//
// If a call has no deadline and the server does not reply, the call fails after
// ConnWriteTimeout, 10 s by default. On a shared connection, it fails after the sum of
// ConnWriteTimeout and Dialer.KeepAlive. Set lower values for a limiter.
//
// # Retries
//
// If a reply was lost, neither the store nor the client runs the script again. So a
// decision consumes tokens at most once. The client retries only commands that are marked
// as read-only or retryable. MGet is read-only: the client retries it until the context
// is done, or forever if it has no end, unless DisableRetry is set.
//
// The client follows MOVED and ASK. This is safe, because the script has not run on the
// first node. Unless MaxMovedRedirections is set, only the context limits the number of
// redirections.
//
// # Failover
//
// A cluster client reads the topology after MOVED, and within a second after a
// connection was lost or could not be made. Until a replica is promoted, calls return
// [store.ErrUnavailable]. With Sentinel, the client subscribes to messages about new
// masters. If it can miss such messages, set TopologyRefreshInterval, which exists from
// v1.0.77.
package rueidis
