package conformance

import (
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

var fixedWindowChecks = []check{
	{"Anchored", "a FixedWindow starts with its first request", fixedWindowAnchored},
	{"Aligned", "an aligned FixedWindow starts at a multiple of its length", fixedWindowAligned},
	{"Carry", "if Limit or Window changes under a live key, the current window keeps its count and its end", fixedWindowCarry},
}

func fixedWindowAnchored(t *T) {
	s := time.Second
	t.trace(algorithm.FixedWindow{Limit: 3, Window: 10 * time.Second}, []step{
		{3 * s, 1, true, 2, 10 * s, 0},
		{4 * s, 3, false, 2, 9 * s, 9 * s},
		{4 * s, 0, true, 2, 9 * s, 0},
		{5 * s, 2, true, 0, 8 * s, 0},
		{5 * s, 1, false, 0, 8 * s, 8 * s},
		{13*s - time.Microsecond, 1, false, 0, time.Microsecond, time.Microsecond},
		{13 * s, 1, true, 2, 10 * s, 0},
		{23 * s, 4, false, 3, 0, weir.Never},
		{23 * s, 0, true, 3, 0, 0},
		{30 * s, 3, true, 0, 10 * s, 0},
		{60 * s, 1, true, 2, 10 * s, 0},
	})
}

func fixedWindowAligned(t *T) {
	s := time.Second
	t.trace(algorithm.FixedWindow{Limit: 3, Window: 10 * time.Second, Aligned: true}, []step{
		{3 * s, 1, true, 2, 7 * s, 0},
		{9 * s, 3, false, 2, 1 * s, 1 * s},
		{10*s - time.Microsecond, 2, true, 0, time.Microsecond, 0},
		{10*s - time.Microsecond, 1, false, 0, time.Microsecond, time.Microsecond},
		{10 * s, 3, true, 0, 10 * s, 0},
		{29 * s, 1, true, 2, 1 * s, 0},
		{30 * s, 4, false, 3, 0, weir.Never},
	})
}

func fixedWindowCarry(t *T) {
	s := time.Second
	a := algorithm.FixedWindow{Limit: 5, Window: time.Minute}
	t.moves(
		step{at: 0, cost: 3, allowed: true, left: 2, reset: 60 * s}.under(a),
		step{at: 1 * s, reset: 59 * s, retry: 59 * s}.under(algorithm.FixedWindow{Limit: 2, Window: 2 * time.Minute}),
	)
}
