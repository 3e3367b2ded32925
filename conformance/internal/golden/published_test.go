package golden

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// published returns the histories whose answers others have published.
func published() []History {
	return []History{cells(), readme(), singleCounter(), clockSecond(), metadataList(), spans(), log(), logYesNo()}
}

// cells is a published test of redis-cell, of one token per second and a burst of 4.
func cells() History {
	h := History{
		Name: "rediscell", Policy: weir.Policy{Name: "golden-rediscell"},
		Source: "published test vectors of GCRA: 1 per second, max burst 4. The numbers are limited, remaining, the milliseconds until " +
			"the bucket is full, and the milliseconds until the call can be repeated. The answers here are the five numbers of CL.THROTTLE, " +
			"in seconds, rounded up",
	}
	for _, v := range []struct {
		ms, quantity int
		published    string
	}{
		{0, 6, "1 5 0 never"}, {0, 1, "0 4 1000 -"}, {0, 1, "0 3 2000 -"}, {0, 1, "0 2 3000 -"}, {0, 1, "0 1 4000 -"}, {0, 1, "0 0 5000 -"},
		{0, 1, "1 0 5000 1000"}, {3000, 1, "0 2 3000 -"}, {3100, 1, "0 1 3900 -"}, {4000, 1, "0 1 4000 -"}, {8000, 1, "0 4 1000 -"},
		{9500, 1, "0 4 1000 -"}, {9500, 0, "0 4 1000 -"}, {9500, 2, "0 2 3000 -"}, {9500, 5, "1 2 3000 3000"}, {15000, 6, "1 5 0 never"},
	} {
		h.Asks = append(h.Asks, Ask{
			After: time.Duration(v.ms) * time.Millisecond, Published: v.published,
			Cell: &Cell{Key: "user", MaxBurst: 4, Count: 1, Period: time.Second, Quantity: int64(v.quantity)},
		})
	}
	return h
}

// readme is the first call that an article about redis-cell shows.
func readme() History {
	return History{
		Name: "rediscell-first", Source: "an article about redis-cell: CL.THROTTLE user123 15 30 60 1", Policy: weir.Policy{Name: "golden-first"},
		Asks: []Ask{{Cell: &Cell{Key: "user123", MaxBurst: 15, Count: 30, Period: time.Minute, Quantity: 1}, Published: "0 16 15 -1 2"}},
	}
}

// repeat returns requests for 127.0.0.1 at these times, n at each. Of each n, the first
// allowed are allowed.
func repeat(n, allowed int, times ...time.Duration) []Ask {
	var asks []Ask
	for _, after := range times {
		for i := range n {
			a := Ask{After: after, Request: weir.Request{Key: weir.KeyOf("127.0.0.1")}, Published: "allowed"}
			if i >= allowed {
				a.Published = "denied"
			}
			asks = append(asks, a)
		}
	}
	return asks
}

func one(name, source string, a algorithm.Algorithm, asks []Ask) History {
	return History{
		Name: name, Source: source, Asks: asks,
		Policy: weir.Policy{Name: "golden-" + name, Rules: []weir.Rule{{Name: name, Algorithm: a}}},
	}
}

func singleCounter() History {
	return one("single-counter", "an article about Redis: 10 requests in a window of 1 s, which starts with the first request",
		algorithm.FixedWindow{Limit: 10, Window: time.Second}, repeat(11, 10, 300*time.Millisecond, 1300*time.Millisecond))
}

func clockSecond() History {
	return one("clock-second", "an article about Redis: 10 calls in a second of the clock",
		algorithm.FixedWindow{Limit: 10, Window: time.Second, Aligned: true}, repeat(11, 10, 900*time.Millisecond, time.Second))
}

func metadataList() History {
	asks := repeat(11, 10, 0, time.Second)
	for i := range asks {
		asks[i].Request.Metadata = fmt.Sprint("user:", 1000+i%3)
	}
	return one("metadata-list", "an article about Redis: 10 requests in a window of 1 s, with the user of each",
		algorithm.MetadataWindow{Limit: 10, Window: time.Second}, asks)
}

// spans has the limits of its article, divided by 100.
func spans() History {
	asks := repeat(11, 10, 0, time.Second, 2*time.Second, 3*time.Second, 4*time.Second)
	asks = append(asks, repeat(1, 0, 5*time.Second, 9*time.Second)...)
	asks = append(asks, repeat(11, 10, 10*time.Second, 11*time.Second)...)
	asks = append(asks, repeat(1, 0, 12*time.Second)...)
	asks = append(asks, repeat(11, 10, 15*time.Second)...)
	return one("sliding-buckets", "an article about Redis: counters for each second, and limits for 1 s, 10 s and 15 s. Its limits 1000, 5000 and 7000 are divided by 100",
		algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{
			{Window: time.Second, Limit: 10}, {Window: 10 * time.Second, Limit: 50}, {Window: 15 * time.Second, Limit: 70},
		}}, asks)
}

// calls returns a history of two logs, and the requests at half seconds. A letter of a or b
// is the answer to a request of that consumer: see verdict.
func calls(name, source string, a, b string, firstB time.Duration) History {
	h := History{
		Name: name, Source: source,
		Policy: weir.Policy{
			Name: "golden-" + name, Segments: []string{"resource", "consumer"},
			Rules: []weir.Rule{
				{Name: "resource", By: []string{"resource"}, Algorithm: algorithm.SlidingLog{Limit: 5, Window: 10 * time.Second}},
				{Name: "consumer", Algorithm: algorithm.SlidingLog{Limit: 3, Window: 10 * time.Second}},
			},
		},
	}
	add := func(after time.Duration, consumer string, letter byte) {
		h.Asks = append(h.Asks, Ask{After: after, Request: weir.Request{Key: weir.KeyOf("calc", consumer)}, Published: string(letter)})
	}
	for at := time.Duration(0); a != "" || b != ""; at += time.Second / 2 {
		if at%time.Second == 0 && a != "" {
			add(at, "a", a[0])
			a = a[1:]
		}
		if at >= firstB && (at-firstB)%(2*time.Second) == 0 && b != "" {
			add(at, "b", b[0])
			b = b[1:]
		}
	}
	return h
}

func log() History {
	return calls("resource-and-consumer", "an article about Redis: 5 calls to a resource in 10 s, and 3 of each consumer. A: allowed, R: denied by the limit of the resource, C: denied by the limit of the consumer alone. -: not published",
		strings.Repeat("-", 10)+strings.Repeat("AAARCRCRRR", 4), strings.Repeat("AARRR", 4)+"AAR", 4*time.Second)
}

// logYesNo begins with a call of a 7 s before the others.
func logYesNo() History {
	h := calls("resource-and-consumer-yes-no", "the same article: T: allowed, F: denied. Consumer a has made a call 7 s before",
		"TTFTFFFFFFTTFTFFFFFFTTFTF", "TTFFFTTFFF", 1500*time.Millisecond)
	before := Ask{After: -7 * time.Second, Request: weir.Request{Key: weir.KeyOf("calc", "a")}, Published: "T"}
	h.Asks = append([]Ask{before}, h.Asks...)
	return h
}
