// Package linear records concurrent histories of limiters over a store, and checks that they
// are linearizable:
//
//	rec, err := linear.New(st)
//	…
//	history, err := rec.Record(ctx, seed, nil)
//	…
//	err = history.Check(dir)
//
// A history has the requests of several clients, each with its answer, and the order in
// which the calls began and returned. It is linearizable if there is a sequence of all
// its requests with two properties. A call that returned before another call began comes
// before it. And a limiter that gets the requests one by one, in this sequence, gives the
// recorded answers. The package compares every field of an answer, even the results of
// each rule.
//
// # The model
//
// The limiter that gets the requests one by one is the sequential model. It runs the Go
// forms of the scripts on a map. The suite in package conformance is the reason to trust
// it. On the memory store, which runs the same Go forms, the suite's tests compare every
// algorithm with a plain model. On every server, the suite compares the Lua with the Go
// forms. It does so one request at a time. This package checks what remains: concurrent
// requests.
//
// The answer of a limiter also depends on the time. So the limiters have an Options.Clock, and
// each request in a history has the time that its client's clock showed. The clients share a
// virtual time, which some requests advance. A client reads it before its call, so a later
// call can have an earlier time, as with clocks that differ. No key expires meanwhile: with an
// Options.Clock, every key is kept for more than an hour.
//
// # Unknown outcomes
//
// During a fault, a call can return an error that does not tell whether the store made
// the decision. Such a request never returns in the history. So it may come anywhere in
// the sequence after its call began, even at the end, as if it had never been made. Any
// answer is right.
//
// # The time of a check
//
// Requests whose keys in the store differ are independent, so each such group is checked alone.
// The time of a check then depends on the number of requests that are under way at once, which
// is small. It is bounded by a number of steps of the model, and not by a time, so it is the
// same on a slow machine. A check that needs more steps fails, and says so.
package linear

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"

	"github.com/anishathalye/porcupine"

	"github.com/weir-go/weir"
)

const (
	clients = 8  // of a history
	calls   = 50 // of each client
)

// start is the virtual time at which each history begins.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A History is what the clients of a [Recorder] asked, and which answers they got.
type History struct {
	// Seed chose the requests. The same seed makes the same requests. If the history is of
	// [Recorder.Drive], it also makes the same interleaving.
	Seed uint64

	// Unknown is the number of requests whose outcome is unknown.
	Unknown int

	ops []porcupine.Operation // the Input is an input, and the Output is an output
}

// An input is a request to one of the limiters.
type input struct {
	policy  int // its index in policies
	request weir.Request
	now     time.Time // by the client's clock
	many    bool      // it is one of several requests of a DoMany, which returns no result for each rule
}

// An output is the answer to an input.
type output struct {
	result  weir.Result
	each    []weir.Result // of the rules; nil if the request was one of a DoMany
	err     string        // misuse that only the store can see; "" if there is none
	unknown bool          // nobody knows whether the decision was made
}

// group returns a name of the requests that can share a key in the store with in. All rules
// of a policy have the first segment of the key.
func (in input) group() string {
	return fmt.Sprint(in.policy, " ", in.request.Key.Segments()[0])
}

// groups splits ops into groups that share no key in the store.
func groups(ops []porcupine.Operation) map[string][]porcupine.Operation {
	all := map[string][]porcupine.Operation{}
	for _, op := range ops {
		name := op.Input.(input).group()
		all[name] = append(all[name], op)
	}
	return all
}

func (in input) String() string {
	return fmt.Sprintf("%s at %v: %v %+v", policies[in.policy].Name, in.now.Sub(start), in.request.Op, in.request)
}

func (out output) String() string {
	switch {
	case out.unknown:
		return "unknown"
	case out.err != "":
		return out.err
	}
	return fmt.Sprintf("%+v, each rule: %+v", out.result, out.each)
}

// maxSteps bounds the check of a group of requests. A group has about 90 requests, and needs
// a few hundred steps. In a history with a fault, it has up to some thousand.
const maxSteps = 1 << 20

// ErrNotLinearizable is the error of a history that is not linearizable.
var ErrNotLinearizable = errors.New("the history is not linearizable")

// ErrUnchecked is the error of a history whose check needs too many steps, so nobody knows
// whether it is linearizable.
var ErrUnchecked = errors.New("the check of the history needs too many steps")

// Check returns nil if h is linearizable. Otherwise it draws the requests that share the
// failing keys in a file in dir. The error is [ErrNotLinearizable], or [ErrUnchecked], which
// leaves no file. Its text has the seed, and the path of the file.
func (h *History) Check(dir string) error { return h.check(dir, maxSteps) }

func (h *History) check(dir string, steps int) error {
	model, all := newSequential(), groups(h.ops)
	for _, first := range h.ops {
		name := first.Input.(input).group()
		ops, c := all[name], &checker{sequential: model, left: steps}
		if delete(all, name); ops == nil {
			continue // the group was checked
		}
		result := porcupine.CheckOperationsTimeout(c.model(), ops, 0)
		switch {
		case c.exhausted || result == porcupine.Unknown:
			return fmt.Errorf("seed %d, %d requests of group %q: %w: it gave up after %d", h.Seed, len(ops), name, ErrUnchecked, steps)
		case result == porcupine.Illegal:
			path := filepath.Join(dir, fmt.Sprintf("history-%d.html", h.Seed))
			text := "it is drawn in " + path
			if err := draw(ops, path); err != nil {
				text = fmt.Sprintf("it could not be drawn: %v", err)
			}
			return fmt.Errorf("seed %d, %d requests of group %q: %w: %s", h.Seed, len(ops), name, ErrNotLinearizable, text)
		}
	}
	return nil
}

// draw writes a picture of ops, which are not linearizable, to the file at path.
func draw(ops []porcupine.Operation, path string) error {
	model := (&checker{sequential: newSequential(), left: -1}).model()
	_, info := porcupine.CheckOperationsVerbose(model, ops, 0)
	return porcupine.VisualizePath(model, info, path)
}

// A pausing algorithm lets other goroutines run in the middle of a decision. The memory store
// then holds the locks of the decision's keys. Without a pause, a decision in memory is so
// short that two of them hardly ever meet.
type pausing struct{ limit *contract.Limit }

// pause returns a as a pausing algorithm, if a can be one.
func pause(a algorithm.Algorithm) algorithm.Algorithm {
	limit, err := a.NewLimit()
	if err != nil {
		panic(err)
	}
	right, ok := limit.Kind.(*contract.MeterKind)
	if !ok {
		return a
	}
	kind, l := *right, *limit
	kind.Meter = func(args []store.Arg) contract.Meter { return pausingMeter{right.Meter(args).(refundableMeter)} }
	l.Kind = &kind
	return pausing{&l}
}

func (p pausing) NewLimit() (*contract.Limit, error) { return p.limit, nil }

type refundableMeter interface {
	contract.Meter
	contract.Refunder
}

type pausingMeter struct{ refundableMeter }

func (m pausingMeter) Room(now, at int64, c contract.Cell) int64 {
	runtime.Gosched()
	return m.refundableMeter.Room(now, at, c)
}
