package simulate

import (
	"context"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// A Result is what each side answers. If the settings are not valid, or the rules do not
// go together, Error says why.
type Result struct {
	Length int64  `json:"length"` // of the traffic; all times are in microseconds
	Error  string `json:"error,omitempty"`

	Arrivals []int64  `json:"arrivals"` // of the first tries
	Sides    []Answer `json:"sides"`
}

// An Answer is what one side answers.
type Answer struct {
	Error     string     `json:"error,omitempty"`
	Rules     []string   `json:"rules"`     // each in words
	Decisions []Decision `json:"decisions"` // in order of time

	// Remaining is what the first client has left, in the rule with the least.
	Remaining []Remaining `json:"remaining"`
	Limit     int64       `json:"limit"` // the largest Remaining

	Allowed      int   `json:"allowed"` // with those that waited
	Waited       int   `json:"waited"`
	Denied       int   `json:"denied"`
	DeniedBy     []int `json:"deniedBy"` // by each rule; a request can be denied by several
	LongestDelay int64 `json:"longestDelay"`
	LongestRetry int64 `json:"longestRetry"` // of the denied requests that can be allowed later

	Code string `json:"code"` // Go
	File string `json:"file"` // YAML, for package weirfile
}

// A Decision is the answer to one request. RetryAfter is -1 if the request can never be
// allowed. The Delay of a denied request is 0.
type Decision struct {
	At         int64  `json:"at"`
	Client     int    `json:"client"`
	Try        int    `json:"try"` // from 1 on
	Allowed    bool   `json:"allowed"`
	Rule       string `json:"rule"`
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retryAfter"`
	Delay      int64  `json:"delay"`
}

// A Remaining holds from a time on.
type Remaining struct {
	At int64 `json:"at"`
	N  int64 `json:"n"`
}

// Run sends the traffic to each side.
func Run(ctx context.Context, s Settings) Result {
	res := Result{Length: Length.Microseconds(), Arrivals: []int64{}, Sides: []Answer{}}
	t, err := newTraffic(s)
	if err != nil {
		res.Error = err.Error()
		return res
	}
	for _, first := range t.arrivals {
		res.Arrivals = append(res.Arrivals, first.At.Microseconds())
	}
	for _, rules := range s.Sides {
		var a Answer
		sd, err := newSide(rules)
		if err == nil {
			a, err = sd.answer(ctx, t)
		}
		if err != nil {
			a = Answer{Error: err.Error()}
		}
		res.Sides = append(res.Sides, a)
	}
	return res
}

// look is the time between two peeks at what remains.
const look = 100 * time.Millisecond

// answer sends t to a limiter of s.
func (s side) answer(ctx context.Context, t *traffic) (Answer, error) {
	a := Answer{Decisions: []Decision{}, Code: s.code(), File: s.file(), DeniedBy: make([]int, len(s.policy.Rules))}
	for _, r := range s.policy.Rules {
		a.Rules = append(a.Rules, algorithm.Words(r.Algorithm))
	}
	err := Play{
		Policy: s.policy, Start: start, Length: Length, Arrivals: t.arrivals, Key: key,
		Wait: s.wait, Hold: s.hold, Tries: t.tries, Retry: t.retry,
		Look: look, Peeked: a.peeked, Decided: a.decided,
	}.Run(ctx)
	return a, err
}

func key(client int) weir.Key { return weir.KeyOf("acme", "client-"+strconv.Itoa(client+1)) }

// peeked adds what the first client has left.
func (a *Answer) peeked(at time.Duration, res weir.Result) {
	a.Limit = max(a.Limit, res.Remaining)
	if n := len(a.Remaining); n == 0 || a.Remaining[n-1].N != res.Remaining {
		a.Remaining = append(a.Remaining, Remaining{at.Microseconds(), res.Remaining})
	}
}

// decided adds the answer to a request.
func (a *Answer) decided(arrival Arrival, try int, res weir.Result, each []weir.Result) {
	d := Decision{
		At: arrival.At.Microseconds(), Client: arrival.Client, Try: try, Allowed: res.Allowed, Rule: res.Rule,
		Remaining: res.Remaining, RetryAfter: res.RetryAfter.Microseconds(),
	}
	if res.RetryAfter == weir.Never {
		d.RetryAfter = -1
	}
	if res.Allowed {
		d.Delay = res.Delay.Microseconds()
		a.Allowed++
		a.LongestDelay = max(a.LongestDelay, d.Delay)
		if d.Delay > 0 {
			a.Waited++
		}
	} else {
		a.Denied++
		for i := range each {
			if !each[i].Allowed {
				a.DeniedBy[i]++
			}
		}
		a.LongestRetry = max(a.LongestRetry, d.RetryAfter)
	}
	a.Decisions = append(a.Decisions, d)
}
