// Package rueidis keeps limiter state in Redis, from 6.0, or Valkey, through the client
// github.com/redis/rueidis, from v1.0.76:
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
//	if err != nil {
//		return err
//	}
//	lim, err := weir.New("api", rueidisstore.New(client), algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}, nil)
//
// The package has the same name as the client. A program that imports both can name this
// one rueidisstore.
//
// # Clients
//
// [New] takes the client that the application already has, and never closes it: any
// client that [redis.NewClient] makes, for one server, Sentinel, Redis Cluster or Valkey
// Cluster. A nil client is rejected: every method of the store, and weir.New, returns an
// error.
//
// [redis.NewClient] connects, and fails without a server. With ForceSingleClient, it
// returns a client together with that error; the client works as soon as the server does.
// Without ForceSingleClient, the client sends CLUSTER SLOTS to a single address to learn
// what the server is. Set DisableCache: the store caches nothing on the client, and
// servers without RESP3 or CLIENT TRACKING need it.
//
// Concurrent calls share connections, and are sent in one write.
//
// Scripts go to masters: the store marks no script as read-only. SendToReplicas must
// return false for scripts, as IsReadOnly does. If it returns true for them, or with
// ReplicaOnly, scripts run on replicas, where they fail or read old state. MGet is
// read-only: SendToReplicas can send it to a replica. Time is the clock of any one node
// of a cluster, also of a replica.
//
// # Contexts
//
// If the context is done before a call, nothing is sent. During a call, a deadline or a
// cancellation ends the call at once, with the context's error. The step may have run, or
// may still run: the client does not remove it from the queue of a connection.
//
// If a call is alone on its connection, the client sets the call's deadline on the
// connection. If the deadline passes, the connection is closed, and calls that have joined
// it meanwhile return [store.ErrUnavailable]. With AlwaysPipelining, a deadline ends only
// its own call.
//
// Two waits do not check the context:
//
//   - the wait for a connection that another call is making: up to Dialer.Timeout, 5 s by
//     default;
//   - the wait for space while 1,024 calls are queued on one connection, unless the
//     environment variable RUEIDIS_QUEUE_TYPE is flowbuffer.
//
// Without a deadline, a silent server is noticed after ConnWriteTimeout, 10 s by default,
// and, on a shared connection, after one more Dialer.KeepAlive. Set lower values for a
// limiter.
//
// # Retries
//
// The store never retries a step whose reply was lost, and neither does the client. It
// retries only commands that are marked as read-only or retryable, and scripts are
// neither. So a decision consumes once at most. The client follows MOVED and ASK, after
// which the step has not run, without a bound unless MaxMovedRedirections or the context
// sets one. MGet is read-only: the client retries it until the context is done, unless
// DisableRetry is set.
//
// # Failover
//
// A cluster client reads a new topology after MOVED, and within a second after a
// connection was lost or could not be made. Until a replica is promoted, calls return
// [store.ErrUnavailable]. With Sentinel, the client subscribes to new masters. From
// v1.0.77, TopologyRefreshInterval covers a message that was missed.
package rueidis

import (
	"context"
	"errors"
	"reflect"
	"time"

	redis "github.com/redis/rueidis"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

var (
	_ store.Store   = (*Store)(nil)
	_ store.Batcher = (*Store)(nil)
	_ store.Checker = (*Store)(nil)
)

var (
	errNil     = errors.New("rueidis: the client is nil: want one that rueidis.NewClient returned")
	errNotTime = errors.New("the reply is not a list of seconds and microseconds")
)

// A Store keeps limiter state on the servers of its client. It is safe for concurrent use.
type Store struct {
	client redis.Client
	single bool // all keys are on one server
	errs   adapter.Errors
}

// New returns a store over client. It sends nothing to the server. Check reports a nil
// client.
func New(client redis.Client) *Store {
	s := &Store{}
	// The client reads a new topology by itself.
	s.errs = adapter.Errors{Name: "rueidis", Replied: replied, Follow: func() {}}
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return s
	}
	s.client = client
	// A wrapper may have no mode. An unknown mode is treated as a cluster: any server
	// accepts the commands for a cluster.
	mode := client.Mode()
	s.single = mode == redis.ClientModeStandalone || mode == redis.ClientModeSentinel
	return s
}

// Check returns an error if the client is nil.
func (s *Store) Check() error {
	if s == nil || s.client == nil {
		return errNil
	}
	return nil
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
	val, err := s.client.Do(ctx, s.command(evalSHA, script, keys, args)).ToMessage()
	if s.errs.NoScript(err) {
		if err := ctx.Err(); err != nil {
			return reply, s.errs.Call("eval "+script.Name(), err)
		}
		val, err = s.client.Do(ctx, s.command(eval, script, keys, args)).ToMessage()
	}
	return s.answer(ctx, script, keys, reply, &val, err)
}

// Time returns the server's clock, in microseconds.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	if err := s.Check(); err != nil {
		return time.Time{}, err
	}
	if err := ctx.Err(); err != nil {
		return time.Time{}, s.errs.Call("time", err)
	}
	list, err := s.client.Do(ctx, s.client.B().Time().Build()).ToArray()
	if err != nil {
		return time.Time{}, s.errs.Read(ctx, "time", err)
	}
	if len(list) == 2 {
		seconds, err1 := list[0].AsInt64()
		micros, err2 := list[1].AsInt64()
		if err1 == nil && err2 == nil {
			return time.Unix(seconds, micros*int64(time.Microsecond)), nil
		}
	}
	return time.Time{}, s.errs.Read(ctx, "time", errNotTime)
}
