// Package rueidisapi has the code that two stores share: the store over rueidis, and the
// store over valkey-go. valkey-go is a fork of rueidis: it has the same methods, and other
// types.
package rueidisapi

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

// A Client sends commands. C is the client's type of a command, and R is its type of a
// result.
type Client[C, R any] interface {
	Do(ctx context.Context, cmd C) R
	DoMulti(ctx context.Context, cmds ...C) []R
}

// A Way is a command that runs a script: EVALSHA or EVAL.
type Way bool

// The ways to run a script.
const (
	EvalSHA Way = false
	Eval    Way = true
)

// A Dialect makes the commands of a client, and reads its results. A client can recycle a
// command after its use, so a new command is made for each call.
type Dialect[C, R any] struct {
	// Run returns the command that runs script. The keys have the same slot.
	Run func(way Way, script *store.Script, keys []string, args []store.Arg) C

	// MGet returns the command that reads keys. On a cluster, the keys have the same slot.
	MGet func(keys []string) C

	// Time returns the command that reads the clock.
	Time func() C

	// Append appends the values of result to values, and reports whether the reply is a
	// list. If an element of the reply is no value, the error is NotValue. Any other
	// error is from the client.
	//
	// Append is a function of the adapter, and not of this package: here, a message of
	// the client would have to be allocated.
	Append func(values []store.Value, result R) (out []store.Value, list bool, err error)
}

// NotValue is the error of a reply whose element of this index is not an integer, a string
// or nil.
type NotValue int

func (n NotValue) Error() string {
	return fmt.Sprintf("element %d of the reply has another type: it must be an integer, a string or nil", int(n))
}

func isNotValue(err error) bool {
	var n NotValue
	return errors.As(err, &n)
}

var (
	// errUnsent is the error of a command without a result of the client, or of a wrapper.
	errUnsent = errors.New("the client returned no result")

	errNotTime = errors.New("the reply is not a list of seconds and microseconds")
)

// A Store has the methods of a store. Its fields do not change.
type Store[C, R any] struct {
	Client  Client[C, R]
	Dialect Dialect[C, R]
	Single  bool // all keys are on one server
	Errs    adapter.Errors
}

// Eval is the Eval of a [store.Store].
func (s *Store[C, R]) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	err := store.CheckKeys(keys)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return reply, s.call(script, err)
	}
	out, _, err := s.Dialect.Append(reply, s.Client.Do(ctx, s.Dialect.Run(EvalSHA, script, keys, args)))
	if s.Errs.NoScript(err) {
		if err := ctx.Err(); err != nil {
			return reply, s.call(script, err)
		}
		out, _, err = s.Dialect.Append(reply, s.Client.Do(ctx, s.Dialect.Run(Eval, script, keys, args)))
	}
	if err != nil {
		return reply, s.failed(ctx, script, keys, err)
	}
	return out, nil
}

// call returns the error of a call for err, which does not come from the client.
func (s *Store[C, R]) call(script *store.Script, err error) error {
	return s.Errs.Call("eval "+script.Name(), err)
}

// failed returns the error of a call for err, which comes from the client or from Append.
func (s *Store[C, R]) failed(ctx context.Context, script *store.Script, keys []string, err error) error {
	if isNotValue(err) {
		return s.call(script, fmt.Errorf("%w: %w", store.ErrScript, err))
	}
	return s.Errs.Eval(ctx, script, keys, err)
}

// Time is the Time of a [store.Store].
func (s *Store[C, R]) Time(ctx context.Context) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, s.Errs.Call("time", err)
	}
	values, list, err := s.Dialect.Append(make([]store.Value, 0, 2), s.Client.Do(ctx, s.Dialect.Time()))
	if err != nil && !isNotValue(err) {
		return time.Time{}, s.Errs.Read(ctx, "time", err)
	}
	if list && len(values) == 2 {
		seconds, err1 := strconv.ParseInt(values[0].Str(), 10, 64)
		micros, err2 := strconv.ParseInt(values[1].Str(), 10, 64)
		if err1 == nil && err2 == nil {
			return time.Unix(seconds, micros*int64(time.Microsecond)), nil
		}
	}
	return time.Time{}, s.Errs.Read(ctx, "time", errNotTime)
}
