package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// The limit of every setup.
const (
	limit  = 10
	window = 10 * time.Second
)

var rate = algorithm.Rate{Count: limit, Period: window}

// A setup is an algorithm with settings, and has a picture.
type setup struct {
	file      string // name of the picture's file, without ending
	algorithm algorithm.Algorithm
	variant   string // tells two setups of one algorithm apart; mostly empty

	waits bool          // requests wait for their turn
	hold  time.Duration // how long each request holds a lease; 0 if it needs none
}

// setups are in the order of docs/reference/algorithms.md. MetadataWindow has no picture: it
// decides as FixedWindow does.
var setups = []setup{
	{file: "gcra", algorithm: algorithm.GCRA{Rate: rate, Burst: limit}},
	{file: "tokenbucket", algorithm: algorithm.TokenBucket{Capacity: limit, Refill: rate}},
	{file: "tokenbucketatonce", algorithm: algorithm.TokenBucket{Capacity: limit, Refill: rate, AtOnce: true}, variant: ", at once"},
	{file: "leakybucket", algorithm: algorithm.LeakyBucket{Rate: rate, Queue: limit - 1}, waits: true},
	{file: "fixedwindow", algorithm: algorithm.FixedWindow{Limit: limit, Window: window, Aligned: true}},
	{file: "slidingbuckets", algorithm: algorithm.SlidingBuckets{Width: window / 5, Spans: []algorithm.Span{{Window: window, Limit: limit}}}},
	{file: "slidingcounter", algorithm: algorithm.SlidingCounter{Limit: limit, Window: window}},
	{file: "slidinglog", algorithm: algorithm.SlidingLog{Limit: limit, Window: window}},
	{file: "concurrency", algorithm: algorithm.Concurrency{Limit: limit, Lease: window}, hold: window / 2},
}

// kind is the name of the algorithm's type.
func (s setup) kind() string {
	return strings.TrimPrefix(fmt.Sprintf("%T", s.algorithm), "algorithm.")
}

func (s setup) name() string { return s.kind() + s.variant }

// title names the algorithm and its settings.
func (s setup) title() string {
	text := fmt.Sprintf("%s%+v", s.kind(), s.algorithm)
	if s.hold > 0 {
		text += fmt.Sprintf(", each request holds its lease for %v", s.hold)
	}
	return text
}
