package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// The limit of every subject.
const (
	limit  = 10
	window = 10 * time.Second
)

var rate = algorithm.Rate{Count: limit, Period: window}

// A subject is an algorithm that has a picture.
type subject struct {
	file      string // of the picture, without ending
	algorithm algorithm.Algorithm
	variant   string // tells it from another with the same algorithm; mostly empty

	hold time.Duration // how long a request goes on that holds a lease; 0: it needs none
}

// subjects are in the order of docs/algorithms.md. A MetadataWindow decides as a
// FixedWindow does, and has no picture of its own.
var subjects = []subject{
	{file: "gcra", algorithm: algorithm.GCRA{Rate: rate, Burst: limit}},
	{file: "tokenbucket", algorithm: algorithm.TokenBucket{Capacity: limit, Refill: rate}},
	{file: "tokenbucketatonce", algorithm: algorithm.TokenBucket{Capacity: limit, Refill: rate, AtOnce: true}, variant: ", at once"},
	{file: "leakybucket", algorithm: algorithm.LeakyBucket{Rate: rate, Queue: limit - 1}},
	{file: "fixedwindow", algorithm: algorithm.FixedWindow{Limit: limit, Window: window, Aligned: true}},
	{file: "slidingbuckets", algorithm: algorithm.SlidingBuckets{Width: window / 5, Spans: []algorithm.Span{{Window: window, Limit: limit}}}},
	{file: "slidingcounter", algorithm: algorithm.SlidingCounter{Limit: limit, Window: window}},
	{file: "slidinglog", algorithm: algorithm.SlidingLog{Limit: limit, Window: window}},
	{file: "concurrency", algorithm: algorithm.Concurrency{Limit: limit, Lease: window}, hold: window / 2},
}

// kind is the name of the algorithm's type.
func (s subject) kind() string {
	return strings.TrimPrefix(fmt.Sprintf("%T", s.algorithm), "algorithm.")
}

func (s subject) name() string { return s.kind() + s.variant }

// title is the algorithm with its settings.
func (s subject) title() string {
	text := fmt.Sprintf("%s%+v", s.kind(), s.algorithm)
	if s.hold > 0 {
		text += fmt.Sprintf(", each request goes on for %v", s.hold)
	}
	return text
}
