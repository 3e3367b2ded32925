package patterns_test

import (
	"context"
	"fmt"
	"os"

	"github.com/weir-go/weir/examples/patterns"
	"github.com/weir-go/weir/store/memory"
)

func ExampleSingleCounter() {
	if err := patterns.SingleCounter(context.Background(), os.Stdout, memory.New(nil)); err != nil {
		fmt.Println(err)
	}
	// Output:
	// request 1: allowed, 9 left
	// request 2: allowed, 8 left
	// request 3: allowed, 7 left
	// request 4: allowed, 6 left
	// request 5: allowed, 5 left
	// request 6: allowed, 4 left
	// request 7: allowed, 3 left
	// request 8: allowed, 2 left
	// request 9: allowed, 1 left
	// request 10: allowed, 0 left
	// request 11: denied, retry after 300ms
	// request 12: denied, retry after 230ms
	// after 1s: allowed true, 9 left
}

func ExampleClockSecond() {
	if err := patterns.ClockSecond(context.Background(), os.Stdout, memory.New(nil)); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 00:00:00.9
	// 192.0.2.1, key-a: 6 of 6 allowed
	// 192.0.2.2, key-a: 4 of 5 allowed, then denied by "apikey", retry after 100ms
	// 192.0.2.1, key-b: 4 of 5 allowed, then denied by "ip", retry after 100ms
	// 192.0.2.3, key-c: 1 of 2 allowed, then denied by "all", retry after 100ms
	// 00:00:01.0
	// 192.0.2.2, key-a: 5 of 5 allowed
	// search 1 of ann: found, 4 more this minute
	// search 2 of ann: found, 3 more this minute
	// search 3 of ann: found, 2 more this minute
	// search 4 of ann: found, 1 more this minute
	// search 5 of ann: found, 0 more this minute
	// search 6 of ann: please wait 59s
}

func ExampleMetadataList() {
	if err := patterns.MetadataList(context.Background(), os.Stdout, memory.New(nil)); err != nil {
		fmt.Println(err)
	}
	// Output:
	// request 11, of bob: denied, retry after 300ms
	// the quota went to ann eve eve bob eve eve eve ann eve eve
	// of 10 requests, eve made 7, ann 2 and bob 1
	// after 1s: 0 entries
}

func ExampleSlidingBuckets() {
	if err := patterns.SlidingBuckets(context.Background(), os.Stdout, memory.New(nil)); err != nil {
		fmt.Println(err)
	}
	// Output:
	// second  0: 1000 allowed; too many at once, retry after 1s
	// second  1: 1000 allowed; too many at once, retry after 1s
	// second  2: 1000 allowed; too many at once, retry after 1s
	// second  3: 1000 allowed; too many at once, retry after 1s
	// second  4: 1000 allowed; too many in 10 seconds, retry after 6s
	// second  5:    0 allowed; too many in 10 seconds, retry after 5s
	// second  6:    0 allowed; too many in 10 seconds, retry after 4s
	// second  7:    0 allowed; too many in 10 seconds, retry after 3s
	// second  8:    0 allowed; too many in 10 seconds, retry after 2s
	// second  9:    0 allowed; too many in 10 seconds, retry after 1s
	// second 10: 1000 allowed; too many at once, retry after 1s
	// second 11: 1000 allowed; too many in 15 seconds: slow down, retry after 4s
	// second 12:    0 allowed; too many in 15 seconds: slow down, retry after 3s
	// second 13:    0 allowed; too many in 15 seconds: slow down, retry after 2s
	// second 14:    0 allowed; too many in 15 seconds: slow down, retry after 1s
	// second 15: 1000 allowed; too many at once, retry after 1s
	// second 16: 1000 allowed; too many at once, retry after 1s
}

func ExampleResourceAndConsumer() {
	if err := patterns.ResourceAndConsumer(context.Background(), os.Stdout, memory.New(nil)); err != nil {
		fmt.Println(err)
	}
	// Output:
	// A allowed, R denied by the resource's limit, C denied only by the consumer's limit
	//   a, from 0s on: AAACCCCRRRAAARCRCRRRAAARCRCRRRAAARCRCRRRAAARCRCRRR
	//   b, from 4s on: AARRRAARRRAARRRAARRRAAR
	// T yes, F no
	//   a, from 0s on: TTFTFFFFFFTTFTFFFFFFTTFTF
	//   b, from 1.5s on: TTFFFTTFFF
	// calc is in slot 15575, mail in slot 4247
}

func ExampleThrottle() {
	if err := patterns.Throttle(context.Background(), os.Stdout, memory.New(nil)); err != nil {
		fmt.Println(err)
	}
	// Output:
	// at 0s, quantity 1: [0 16 15 -1 2]
	// at 0s, quantity 15: [0 16 0 -1 32]
	// at 0s, quantity 1: [1 16 0 2 32]
	//   X-RateLimit-Limit: 16
	//   X-RateLimit-Remaining: 0
	//   X-RateLimit-Reset: 32
	//   Retry-After: 2
	// at 1.5s, quantity 0: [0 16 0 -1 31]
	// at 2s, quantity 1: [0 16 0 -1 32]
	// at 3s, quantity 17: [1 16 0 -1 31]
	//   X-RateLimit-Limit: 16
	//   X-RateLimit-Remaining: 0
	//   X-RateLimit-Reset: 31
}
