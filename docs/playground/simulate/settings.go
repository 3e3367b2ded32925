// Package simulate sends chosen traffic to limiters, in virtual time. It is what the
// playground shows: the library itself decides, on the memory store.
package simulate

import (
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// Settings are what a reader can choose.
type Settings struct {
	Seed    uint64 `json:"seed"` // of the random traffic
	Traffic Choice `json:"traffic"`

	// Sides are limiters that get the same traffic. Each has its rules.
	Sides [][]Choice `json:"sides"`
}

// A Choice is the name of a kind of traffic or of an algorithm, with its numbers by name.
// A number that is left out has its default.
type Choice struct {
	Kind    string           `json:"kind"`
	Numbers map[string]int64 `json:"numbers"`
}

// A Catalog lists what can be chosen.
type Catalog struct {
	Traffic    []Kind `json:"traffic"`
	Algorithms []Kind `json:"algorithms"`
}

// A Kind is a kind of traffic, or an algorithm.
type Kind struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	About   string   `json:"about"`
	Numbers []Number `json:"numbers"`
	Random  bool     `json:"random,omitempty"` // the traffic depends on the seed

	rule func(numbers) algorithm.Algorithm
	send func(*traffic, numbers)
}

// A Number is a setting of a Kind.
type Number struct {
	Name    string `json:"name"`
	Label   string `json:"label"`
	Unit    string `json:"unit"`
	Min     int64  `json:"min"`
	Max     int64  `json:"max"`
	Default int64  `json:"default"`

	// Options are the names of the values, from Min on. If there are none, the number is
	// a quantity.
	Options []string `json:"options,omitempty"`
}

// numbers are the numbers of a Choice, all of them valid.
type numbers map[string]int64

func (n numbers) seconds(name string) time.Duration { return time.Duration(n[name]) * time.Second }

func (n numbers) rate() algorithm.Rate {
	return algorithm.Rate{Count: n["tokens"], Period: n.seconds("period")}
}

// choose returns the kind and the numbers of c.
func choose(kinds []Kind, c Choice) (Kind, numbers, error) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == c.Kind })
	if i < 0 {
		return Kind{}, nil, fmt.Errorf("there is no %q", c.Kind)
	}
	k, all := kinds[i], numbers{}
	for _, n := range k.Numbers {
		value, ok := c.Numbers[n.Name]
		if !ok {
			value = n.Default
		}
		if value < n.Min || value > n.Max {
			return Kind{}, nil, fmt.Errorf("%s: %s is %d: it must be from %d to %d", k.Title, n.Name, value, n.Min, n.Max)
		}
		all[n.Name] = value
	}
	return k, all, nil
}

// Kinds returns what can be chosen. The algorithms are those of package algorithm, except
// Pause: it limits nothing until an operator pauses a key.
func Kinds() Catalog {
	return Catalog{Traffic: slices.Clone(traffics), Algorithms: slices.Clone(algorithms)}
}

func quantity(name, label, unit string, from, to, normal int64) Number {
	return Number{Name: name, Label: label, Unit: unit, Min: from, Max: to, Default: normal}
}

func option(name, label string, options ...string) Number {
	return Number{Name: name, Label: label, Max: int64(len(options) - 1), Options: options}
}

// The numbers that several algorithms have.
var (
	tokens  = quantity("tokens", "Tokens per period", "", 1, 60, 10)
	period  = quantity("period", "Period", "s", 1, 60, 10)
	limit   = quantity("limit", "Limit", "tokens", 1, 60, 10)
	window  = quantity("window", "Window", "s", 1, 60, 10)
	aligned = option("aligned", "Windows start", "with a request", "aligned to the clock")
	wait    = quantity("wait", "A request may wait", "s", 0, 30, 0)
	by      = option("by", "One limit for", "each client", "all clients")
)

var periods = []algorithm.Period{algorithm.Day, algorithm.Week, algorithm.Month, algorithm.Quarter, algorithm.Year}

// algorithms are in the order of docs/reference/algorithms.md.
var algorithms = []Kind{
	{
		Name: "gcra", Title: "GCRA", About: "Decides like a token bucket, for a limit that never changes.",
		Numbers: []Number{tokens, period, quantity("burst", "Burst", "tokens", 1, 60, 10), wait, by},
		rule: func(n numbers) algorithm.Algorithm {
			return algorithm.GCRA{Rate: n.rate(), Burst: n["burst"]}
		},
	},
	{
		Name: "token-bucket", Title: "Token bucket", About: "A burst at once, then an even rate, or all tokens of a period together.",
		Numbers: []Number{
			quantity("capacity", "Capacity", "tokens", 1, 60, 10), tokens, period,
			option("at-once", "Tokens are refilled", "one by one", "together"), wait, by,
		},
		rule: func(n numbers) algorithm.Algorithm {
			return algorithm.TokenBucket{Capacity: n["capacity"], Refill: n.rate(), AtOnce: n["at-once"] == 1}
		},
	},
	{
		Name: "leaky-bucket", Title: "Leaky bucket", About: "A queue that requests leave at an even rate.",
		Numbers: []Number{
			tokens, period, quantity("queue", "Queue", "", 0, 60, 9),
			quantity("wait", "A request may wait", "s", 0, 30, 10), by,
		},
		rule: func(n numbers) algorithm.Algorithm {
			return algorithm.LeakyBucket{Rate: n.rate(), Queue: n["queue"]}
		},
	},
	{
		Name: "fixed-window", Title: "Fixed window", About: "A quota for each window. Two quotas can meet at an edge.",
		Numbers: []Number{limit, window, aligned, by},
		rule: func(n numbers) algorithm.Algorithm {
			return algorithm.FixedWindow{Limit: n["limit"], Window: n.seconds("window"), Aligned: n["aligned"] == 1}
		},
	},
	{
		Name: "calendar", Title: "Calendar", About: "A quota for each day, week, month, quarter or year. In this traffic, all of them end at 30 s.",
		Numbers: []Number{limit, option("every", "Every", "day", "week", "month", "quarter", "year"), by},
		rule: func(n numbers) algorithm.Algorithm {
			c := algorithm.Calendar{Limit: n["limit"], Every: periods[n["every"]]}
			if c.Every == algorithm.Week {
				c.Day = (int(midnight.Weekday())+6)%7 + 1
			}
			return c
		},
	},
	{
		Name: "metadata-window", Title: "Metadata window", About: "Decides like a fixed window, and keeps metadata of each request.",
		Numbers: []Number{limit, window, aligned, by},
		rule: func(n numbers) algorithm.Algorithm {
			return algorithm.MetadataWindow{Limit: n["limit"], Window: n.seconds("window"), Aligned: n["aligned"] == 1}
		},
	},
	{
		Name: "sliding-buckets", Title: "Sliding buckets", About: "A count for each short bucket. Fewer buckets are less exact.",
		Numbers: []Number{limit, quantity("width", "Width of a bucket", "s", 1, 10, 2), quantity("buckets", "Buckets in the window", "", 1, 20, 5), by},
		rule: func(n numbers) algorithm.Algorithm {
			width := n.seconds("width")
			return algorithm.SlidingBuckets{Width: width, Spans: []algorithm.Span{{Window: time.Duration(n["buckets"]) * width, Limit: n["limit"]}}}
		},
	},
	{
		Name: "sliding-counter", Title: "Sliding window counter", About: "An estimate from the counts of two windows.",
		Numbers: []Number{limit, window, by},
		rule: func(n numbers) algorithm.Algorithm {
			return algorithm.SlidingCounter{Limit: n["limit"], Window: n.seconds("window")}
		},
	},
	{
		Name: "sliding-log", Title: "Sliding window log", About: "Exact in every interval. Stores the time of each request.",
		Numbers: []Number{limit, window, by},
		rule: func(n numbers) algorithm.Algorithm {
			return algorithm.SlidingLog{Limit: n["limit"], Window: n.seconds("window")}
		},
	},
	{
		Name: "concurrency", Title: "Concurrency limit", About: "A bound on the requests that run at once.",
		Numbers: []Number{
			quantity("limit", "Limit", "leases", 1, 60, 10), quantity("lease", "Lease", "s", 1, 60, 10),
			quantity("hold", "A request runs for", "s", 1, 60, 8), by,
		},
		rule: func(n numbers) algorithm.Algorithm {
			return algorithm.Concurrency{Limit: n["limit"], Lease: n.seconds("lease")}
		},
	},
}

// A side is a limiter, and how its requests are made.
type side struct {
	policy weir.Policy
	wait   time.Duration // Request.MaxWait
	hold   time.Duration // how long each request holds a lease; 0 if it needs none
}

// newSide returns the side with these rules. Requests wait as long as every rule lets
// them, and hold a lease as long as the rule that holds it longest.
func newSide(rules []Choice) (side, error) {
	s := side{policy: weir.Policy{Name: "api", Segments: []string{"tenant", "client"}}}
	for i, c := range rules {
		k, n, err := choose(algorithms, c)
		if err != nil {
			return s, err
		}
		r := weir.Rule{Name: []string{"first", "second"}[min(i, 1)], Algorithm: k.rule(n)}
		if len(rules) == 1 {
			r.Name = "limit"
		}
		if n["by"] == 1 {
			r.By = []string{"tenant"}
		}
		s.policy.Rules = append(s.policy.Rules, r)
		if w := n.seconds("wait"); i == 0 || w < s.wait {
			s.wait = w
		}
		s.hold = max(s.hold, n.seconds("hold"))
	}
	return s, nil
}
