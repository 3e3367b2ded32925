// Package requests makes the random requests of concurrent clients, with the ops that each kind of
// policy supports. Package linear compares the answers with a model, and package soak with ledgers.
package requests

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store"
)

// A Source is where requests come from.
type Source struct {
	*rand.Rand
	Rare    int                               // one in Rare of the requests for a reset is made, and the others peek
	NewID   func(r weir.Request) weir.Request // adds an ID that no other request has
	Recent  func(key weir.Key) weir.Request   // returns an earlier request with an ID, or one with an ID that nobody used
	MaxWait func() time.Duration              // of a request that reserves tokens
}

// An Ask makes a random request for a key. To test another op of weir.Request, write an Ask,
// and add it to the lists below.
type Ask func(s *Source, key weir.Key) weir.Request

// These are the lists of a policy's asks. An ask that a list has twice is made twice as often.
var (
	Plain      = []Ask{consume, consume, consume, takeUpTo, takeUpTo, force, Peek, reset}
	NoDebt     = []Ask{consume, takeUpTo, Peek, reset, named(consume), named(consume), named(takeUpTo), again, refund, refund, refund}
	Refundable = slices.Concat(NoDebt, []Ask{settle, settle})
	Reservable = []Ask{consume, takeUpTo, force, Peek, reset, named(reserve), named(reserve), named(reserve), refund, refund, settle}
	Paused     = []Ask{consume, consume, takeUpTo, force, named(reserve), named(reserve), again, refund, settle, pauseKey, pauseKey, resume, resume, Peek, reset}
	Leases     = []Ask{named(acquire), named(acquire), named(acquire), again, renew, renew, release, release, Peek, reset}
	Queued     = []Ask{named(reserve), named(reserve), named(reserve), refund, refund, force, reset} // only by turns
	Listed     = slices.Concat(Plain, []Ask{metadata, metadata})
)

func consume(s *Source, key weir.Key) weir.Request {
	return weir.Request{Key: key, Cost: s.Int64N(4)}
}

func takeUpTo(s *Source, key weir.Key) weir.Request {
	return weir.Request{Key: key, Op: weir.TakeUpTo, Cost: 1 + s.Int64N(5)}
}

// Peek is the Ask that changes nothing.
func Peek(s *Source, key weir.Key) weir.Request {
	return weir.Request{Key: key, Op: weir.Peek, Cost: s.Int64N(4)}
}

// force is rare: in debt, most requests are denied.
func force(s *Source, key weir.Key) weir.Request {
	if s.IntN(s.Rare-1) > 0 {
		return consume(s, key)
	}
	return weir.Request{Key: key, Op: weir.Force, Cost: 1 + s.Int64N(5)}
}

// reset is rare: after it, concurrent requests are easily in order.
func reset(s *Source, key weir.Key) weir.Request {
	if s.IntN(s.Rare) > 0 {
		return Peek(s, key)
	}
	return weir.Request{Key: key, Op: weir.Reset}
}

func reserve(s *Source, key weir.Key) weir.Request {
	return weir.Request{Key: key, Cost: s.Int64N(4), MaxWait: s.MaxWait()}
}

func metadata(s *Source, key weir.Key) weir.Request {
	return weir.Request{Key: key, Cost: s.Int64N(4), Metadata: "some"}
}

func acquire(_ *Source, key weir.Key) weir.Request { return weir.Request{Key: key} }

// named returns an ask whose requests have IDs of their own.
func named(a Ask) Ask {
	return func(s *Source, key weir.Key) weir.Request { return s.NewID(a(s, key)) }
}

// again repeats a request with an ID, as after a lost reply.
func again(s *Source, key weir.Key) weir.Request { return s.Recent(key) }

func refund(s *Source, key weir.Key) weir.Request {
	r := s.Recent(key)
	// A Cost below the Cost of the decision is misuse that only the store can see.
	return weir.Request{Key: r.Key, Op: weir.Refund, ID: r.ID, Cost: max(r.Cost-s.Int64N(2), 0)}
}

func settle(s *Source, key weir.Key) weir.Request {
	r := s.Recent(key)
	return weir.Request{Key: r.Key, Op: weir.Settle, ID: r.ID, Actual: weir.ActualCost(s.Int64N(7))}
}

func renew(s *Source, key weir.Key) weir.Request {
	return weir.Request{Key: key, Op: weir.Renew, ID: s.Recent(key).ID}
}

func release(s *Source, key weir.Key) weir.Request {
	return weir.Request{Key: key, Op: weir.Release, ID: s.Recent(key).ID}
}

// pauseKey pauses a key under one of a few names, so that pauses are extended.
func pauseKey(s *Source, key weir.Key) weir.Request {
	return weir.Request{Key: key, Op: weir.Pause, ID: s.pauseName(), For: time.Duration(1+s.Int64N(1_500_000)) * time.Microsecond}
}

func resume(s *Source, key weir.Key) weir.Request {
	return weir.Request{Key: key, Op: weir.Resume, ID: s.pauseName()}
}

func (s *Source) pauseName() string { return [...]string{"p", "q", "r"}[s.IntN(3)] }

// An Answer is the answer to one request of a call.
type Answer struct {
	weir.Answer
	Each []weir.Result // of the rules; nil if the call had several requests
}

// Call makes the requests in one call, to a limiter with that many rules.
func Call(ctx context.Context, l *weir.Limiter, rules int, requests []weir.Request) []Answer {
	if len(requests) == 1 {
		a := Answer{Each: make([]weir.Result, rules)}
		a.Result, a.Err = l.Decide(ctx, requests[0], a.Each)
		return []Answer{a}
	}
	var answers []Answer
	for _, a := range l.DoMany(ctx, requests) {
		answers = append(answers, Answer{Answer: a})
	}
	return answers
}

// Lost reports whether err leaves open whether the decision was made.
func Lost(err error) bool {
	return (errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) &&
		!errors.Is(err, store.ErrForeign) && !errors.Is(err, store.ErrScript) && !errors.Is(err, store.ErrCrossSlot)
}
