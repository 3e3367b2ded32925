package rueidis

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
	"github.com/weir-go/weir/store/internal/errreply"
)

var (
	_ store.Store   = (*Store)(nil)
	_ store.Batcher = (*Store)(nil)
	_ store.Checker = (*Store)(nil)
	_ store.Lister  = (*Store)(nil)
)

var errNil = errors.New("rueidis: the client is nil: it must be a client that rueidis.NewClient returned")

// A Store keeps the state of limiters on the servers of its client. Make one with [New].
// It is safe for concurrent use. The methods of a nil or zero Store return an error.
type Store struct {
	client rueidis.Client
	single bool // all keys are on one server
	base   adapter.Base
}

// New returns a store that uses client. It sends nothing to the server. If client is nil,
// or a wrapper of nil, Check returns an error.
func New(client rueidis.Client) *Store {
	mode, ok := modeOf(client)
	if !ok {
		return &Store{}
	}
	// A wrapper can have no mode. The store treats an unknown mode as a cluster, because
	// every server accepts the commands for a cluster.
	return &Store{
		client: client,
		single: mode == rueidis.ClientModeStandalone || mode == rueidis.ClientModeSentinel,
		// The client removes a leading ERR from error replies, and reads a new topology
		// by itself.
		base: adapter.Base{Name: "rueidis", Replied: adapter.Replied[*rueidis.RedisError], Client: clients[mode], Follow: func() {}},
	}
}

// modeOf returns the mode of client, and whether there is a client: a wrapper of a nil
// client panics.
func modeOf(client rueidis.Client) (mode rueidis.ClientMode, ok bool) {
	if adapter.Nil(client) {
		return "", false
	}
	defer func() { ok = recover() == nil }()
	return client.Mode(), true
}

// clients are the modes that the client can have. A mode that is not known gives
// errreply.Unknown.
var clients = map[rueidis.ClientMode]errreply.Client{
	rueidis.ClientModeStandalone: errreply.Single,
	rueidis.ClientModeSentinel:   errreply.Sentinel,
	rueidis.ClientModeCluster:    errreply.Cluster,
}

// Check implements [store.Checker]. It returns an error if the client is nil.
func (s *Store) Check() error {
	if s == nil || s.client == nil {
		return errNil
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
		return appendValues(reply, s.client.Do(ctx, s.command(name, script, keys, args)))
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
	return adapter.ParseTime(appendValues(make([]store.Value, 0, 2), s.client.Do(ctx, s.client.B().Time().Build())))
}
