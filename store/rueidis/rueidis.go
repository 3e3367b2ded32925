// Package rueidis keeps limiter state in Redis, from 6.0, or Valkey through the
// client github.com/redis/rueidis, from v1.0.76, which was once published as
// github.com/rueian/rueidis.
//
// The package has the name of its client. A program that imports both calls
// this one rueidisstore, as the examples do.
//
// # Clients
//
// [New] takes the client that the application already has, and never closes it:
// whatever [redis.NewClient] makes, for one server, Sentinel, Redis Cluster or
// Valkey Cluster. A nil client is refused: New then returns a store whose Check,
// like every other method, returns an error that says so.
//
// It is [redis.NewClient] that connects, and fails without a server. With
// ForceSingleClient it returns a client beside that error, which works once the
// server does. Without, it asks a lone address for CLUSTER SLOTS to learn what
// it is. DisableCache suits a limiter: nothing here is cached on the client, and
// servers without RESP3 or CLIENT TRACKING need it.
//
// Concurrent calls share connections and leave in one write, as rueidis does
// with any commands.
//
// Scripts go to masters: the store marks none as read-only, so a SendToReplicas
// that returns what IsReadOnly says keeps them there. One that returns true for
// other commands sends scripts to replicas, where they fail or read the past, and
// so does ReplicaOnly. MGet is read-only, and may read from a replica where
// SendToReplicas says so. The clock that Time tells is that of any one node of a
// cluster, replicas included.
//
// # Contexts
//
// A context that is done before a call sends nothing. A deadline or a
// cancellation that comes during a call, also one without a deadline, ends it at
// once with the context's error. The step may have run, or may still run: it can
// wait in the queue of a connection, from where the client does not take it back.
//
// A caller alone on its connection gives that connection its deadline: when it
// passes the connection is closed, and whoever had joined it meanwhile gets
// [store.ErrUnavailable]. With AlwaysPipelining a deadline ends the one call.
//
// Two waits do not look at the context: for a connection that another call is
// making, up to Dialer.Timeout, 5 s by default, and for room when 1,024 calls
// wait on one connection, unless the environment sets RUEIDIS_QUEUE_TYPE to
// flowbuffer.
//
// Without a deadline, a server that fell silent is noticed after
// ConnWriteTimeout, 10 s by default, and where callers share a connection after
// one more Dialer.KeepAlive. A limiter is better off with less.
//
// # Retries
//
// The store never repeats a step whose reply was lost, and neither does the
// client: it repeats what is marked read-only or retryable, and a script is
// neither. One decision charges once at most. The client does follow MOVED and
// ASK, whose step has not run, without end unless MaxMovedRedirections or the
// context sets one. MGet is read-only, and the client tries it again until the
// context is done, unless DisableRetry is set.
//
// # Failover
//
// A cluster client learns of a new topology from MOVED, and, of its own accord,
// within a second after a connection was lost or could not be made. The store has
// nothing to add. A call fails with [store.ErrUnavailable] until a replica was
// promoted. With Sentinel, the client hears of a new master by subscription; from
// v1.0.77, TopologyRefreshInterval makes up for a message that was missed.
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

// A Store keeps limiter state where its client is connected to. It is safe for
// concurrent use.
type Store struct {
	client redis.Client
	single bool // all keys are on one server
	errs   adapter.Errors
}

// New returns a store over client, without asking the server for anything. A nil
// client is reported by Check.
func New(client redis.Client) *Store {
	s := &Store{}
	// The client looks for a new topology by itself.
	s.errs = adapter.Errors{Name: "rueidis", Replied: replied, Follow: func() {}}
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return s
	}
	s.client = client
	// A wrapper may know no mode: what is not known to be single is taken for a
	// cluster, whose commands any server understands.
	mode := client.Mode()
	s.single = mode == redis.ClientModeStandalone || mode == redis.ClientModeSentinel
	return s
}

// Check returns an error when New was given a nil client.
func (s *Store) Check() error {
	if s == nil || s.client == nil {
		return errNil
	}
	return nil
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
