package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// TestSame plays one trace through every store, in virtual time, and compares
// all that is answered, to the last bit, with what the memory store answers.
func TestSame(t *testing.T) {
	seed := rand.Uint64()
	want, err := trace(t.Context(), memory.New(nil), seed)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range want {
		if strings.Contains(line, failed) {
			t.Fatalf("seed %d: the trace is of answers, and has an error: %s", seed, line)
		}
	}
	everywhere(t, func(t *testing.T, st store.Store) {
		got, err := trace(t.Context(), st, seed)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("seed %d, step %d:\ngot    %s\nmemory %s", seed, i, got[i], want[i])
			}
		}
	})
}

// failed marks a line about an error.
const failed = " unavailable "

// traced are rules of every kind, all of which a request has to pass.
var traced = []weir.Rule{
	{Name: "all", By: []int{0}, Algorithm: algorithm.FixedWindow{Limit: 40, Window: 10 * time.Second, Aligned: true}},
	{Name: "thirds", By: []int{0, 1}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 12}},
	{Name: "whole", By: []int{0, 1}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(4), Burst: 14}},
	{Name: "spans", By: []int{0, 1}, Algorithm: algorithm.SlidingBuckets{Width: 500 * time.Millisecond, Spans: []algorithm.Span{
		{Window: time.Second, Limit: 6}, {Window: 8 * time.Second, Limit: 30},
	}}},
	{Name: "log", By: []int{0, 1}, Algorithm: algorithm.SlidingLog{Limit: 25, Window: 7 * time.Second}},
	{Name: "kept", By: []int{0, 1}, Algorithm: algorithm.MetadataWindow{Limit: 20, Window: 5 * time.Second}},
}

// given are rules of every kind that can be given back, beside one that holds leases.
var given = []weir.Rule{
	{Name: "counter", By: []int{0}, Algorithm: algorithm.SlidingCounter{Limit: 20, Window: 10 * time.Second}},
	{Name: "tokens", By: []int{0, 1}, Algorithm: algorithm.TokenBucket{Capacity: 6, Refill: algorithm.PerMinute(35)}},
	{Name: "once", By: []int{0, 1}, Algorithm: algorithm.TokenBucket{Capacity: 7, Refill: algorithm.Rate{Count: 5, Period: 7 * time.Second}, AtOnce: true}},
	{Name: "queue", By: []int{0, 1}, Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerMinute(70), Queue: 7}},
	{Name: "thirds", By: []int{0, 1}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 50}},
	{Name: "spans", By: []int{0, 1}, Algorithm: algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: 8 * time.Second, Limit: 9}}}},
	{Name: "log", By: []int{0, 1}, Algorithm: algorithm.SlidingLog{Limit: 8, Window: 7 * time.Second}},
	{Name: "leases", By: []int{0, 1}, Algorithm: algorithm.Concurrency{Limit: 2, Lease: 25 * time.Second}, Cost: 1},
}

// ahead are rules that can be taken from ahead of time.
var ahead = []weir.Rule{
	{Name: "all", By: []int{0}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(30), Burst: 9}},
	{Name: "ahead", By: []int{0, 1}, Algorithm: algorithm.TokenBucket{Capacity: 4, Refill: algorithm.PerSecond(3)}},
	{Name: "turns", By: []int{0, 1}, Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerSecond(7), Queue: 20}},
}

// trace asks st what seed says, and returns a line for each answer.
func trace(ctx context.Context, st store.Store, seed uint64) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	// A prefix of its own, which no line shows.
	opts := &weir.Options{Prefix: fmt.Sprintf("weirtest-same-%x", rand.Uint64()), Clock: func() time.Time { return now }}
	lim, err := weir.NewRules(st, traced, opts)
	if err != nil {
		return nil, err
	}
	giver, err := weir.NewRules(st, given, &weir.Options{Prefix: opts.Prefix + "-given", Clock: opts.Clock})
	if err != nil {
		return nil, err
	}
	waiter, err := weir.NewRules(st, ahead, &weir.Options{Prefix: opts.Prefix + "-ahead", Clock: opts.Clock})
	if err != nil {
		return nil, err
	}
	plan, err := algorithm.TokenBucket{Capacity: 12, Refill: algorithm.PerSecond(3)}.NewLimit()
	if err != nil {
		return nil, err
	}
	throttler, err := weir.NewThrottler(st, opts)
	if err != nil {
		return nil, err
	}
	var lines []string
	say := func(what string, answer any, err error) {
		text := ""
		if err != nil {
			// The text of an error names the client; what it is does not.
			text = fmt.Sprint(failed, strings.Contains(err.Error(), store.ErrUnavailable.Error()))
		}
		lines = append(lines, fmt.Sprintf("%s: %+v%s", what, answer, text))
	}
	r := rand.New(rand.NewPCG(seed, 1))
	users := []string{"ann", "bob", "a{b}:c%", "\x00\xff"}
	each := make([]weir.Result, len(traced))
	type decision struct {
		id   string
		path []string
	}
	var taken, reserved []decision
	recent := func(list []decision) decision { // one of the last, not always the latest
		if len(list) == 0 {
			return decision{"none", []string{"calc", "nobody"}}
		}
		return list[max(len(list)-1-r.IntN(6), 0)]
	}
	for i := range 600 {
		now = now.Add(time.Duration(r.Int64N(900_000)-50_000) * time.Microsecond)
		path := []string{"calc", users[r.IntN(len(users))]}
		switch n := r.IntN(32); {
		case n >= 20:
			req := weir.Request{Path: path, Cost: 1 + r.Int64N(6)}
			switch {
			case n < 25:
				req.UpTo, req.ID, req.Lease = n < 23, fmt.Sprint(i), fmt.Sprint(i)
				if n == 21 {
					req.Limits = make([]algorithm.Limit, len(given))
					req.Limits[1] = plan
				}
				taken = append(taken, decision{req.ID, path})
				res, err := giver.Do(ctx, req)
				say(fmt.Sprintf("take %q %d", path, req.Cost), res, err)
			case n < 27:
				d := recent(taken)
				gave, err := giver.Refund(ctx, d.id, d.path...)
				say("refund", gave, err)
			case n < 28:
				d := recent(taken)
				res, err := giver.Renew(ctx, d.id, d.path...)
				say("renew", res, err)
			case n < 29:
				d := recent(taken)
				held, err := giver.Release(ctx, d.id, d.path...)
				say("release", held, err)
			default:
				req.MaxWait, req.ID = time.Duration(r.Int64N(3_000_000))*time.Microsecond, fmt.Sprint(i)
				res, err := waiter.Do(ctx, req)
				say("reserve", res, err)
				reserved = append(reserved, decision{req.ID, path})
				if n == 31 {
					d := recent(reserved)
					gave, err := waiter.Refund(ctx, d.id, d.path...)
					say("cancel", gave, err)
				}
			}
		case n < 14:
			req := weir.Request{Path: path, Cost: r.Int64N(5), Peek: n < 2, Metadata: users[r.IntN(len(users))], Each: each}
			res, err := lim.Do(ctx, req)
			say(fmt.Sprintf("do %q %d", path, req.Cost), res, err)
			say("each", each, nil)
		case n < 16:
			res, err := throttler.Throttle(ctx, path[1], 15, 30, time.Minute, r.Int64N(4))
			say("throttle", res, err)
		case n < 17:
			list, err := lim.Entries(ctx, "", path...)
			say("entries", list, err)
		case n < 19:
			var paths [][]string
			for _, user := range users {
				paths = append(paths, []string{"calc", user})
			}
			list, err := lim.PeekMany(ctx, paths)
			say("peek many", list, err)
		default:
			say("reset", "", lim.ResetRule(ctx, traced[r.IntN(len(traced))].Name, path...))
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return lines, nil
}
