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

// traced are rules of every kind, all of which a request has to pass.
var traced = []weir.Rule{
	{Name: "all", By: []int{0}, Algorithm: algorithm.FixedWindow{Limit: 60, Window: 10 * time.Second, Aligned: true}},
	{Name: "thirds", By: []int{0, 1}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 12}},
	{Name: "whole", By: []int{0, 1}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(4), Burst: 14}},
	{Name: "spans", By: []int{0, 1}, Algorithm: algorithm.SlidingBuckets{Width: 500 * time.Millisecond, Spans: []algorithm.Span{
		{Window: time.Second, Limit: 6}, {Window: 8 * time.Second, Limit: 30},
	}}},
	{Name: "log", By: []int{0, 1}, Algorithm: algorithm.SlidingLog{Limit: 25, Window: 7 * time.Second}},
	{Name: "kept", By: []int{0, 1}, Algorithm: algorithm.MetadataWindow{Limit: 20, Window: 5 * time.Second}},
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
	throttler, err := weir.NewThrottler(st, opts)
	if err != nil {
		return nil, err
	}
	var lines []string
	say := func(what string, answer any, err error) {
		text := ""
		if err != nil {
			// The text of an error names the client; what it is does not.
			text = fmt.Sprint(" unavailable ", strings.Contains(err.Error(), store.ErrUnavailable.Error()))
		}
		lines = append(lines, fmt.Sprintf("%s: %+v%s", what, answer, text))
	}
	r := rand.New(rand.NewPCG(seed, 1))
	users := []string{"ann", "bob", "a{b}:c%", "\x00\xff"}
	each := make([]weir.Result, len(traced))
	for range 400 {
		now = now.Add(time.Duration(r.Int64N(900_000)-50_000) * time.Microsecond)
		path := []string{"calc", users[r.IntN(len(users))]}
		switch n := r.IntN(20); {
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
