package simulate

import (
	"container/heap"
	"context"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
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
		res.Arrivals = append(res.Arrivals, first.at.Microseconds())
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

// An event is a request, or the release of the lease of one.
type event struct {
	arrival
	try     int
	release string // the ID of the lease
	seq     int    // orders events at the same time
}

// events is a heap, the earliest first.
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// look is the time between two peeks at what remains.
const look = 100 * time.Millisecond

// answer sends t to a limiter of s, in virtual time.
func (s side) answer(ctx context.Context, t *traffic) (Answer, error) {
	now := start
	lim, err := weir.NewPolicy(memory.New(nil), s.policy, &weir.Options{Clock: func() time.Time { return now }})
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Decisions: []Decision{}, Code: s.code(), File: s.file()}
	for _, r := range s.policy.Rules {
		a.Rules = append(a.Rules, algorithm.Words(r.Algorithm))
	}
	a.DeniedBy = make([]int, len(a.Rules))
	each := make([]weir.Result, len(a.Rules))
	var later events // retries and releases
	seq := 0
	push := func(e event) {
		seq++
		e.seq = seq
		heap.Push(&later, e)
	}
	arrivals := t.arrivals
	next := func(before time.Duration) (event, bool) {
		switch {
		case len(later) > 0 && later[0].at < before && (len(arrivals) == 0 || later[0].at <= arrivals[0].at):
			return heap.Pop(&later).(event), true
		case len(arrivals) > 0 && arrivals[0].at < before:
			first := arrivals[0]
			arrivals = arrivals[1:]
			return event{arrival: first, try: 1}, true
		}
		return event{}, false
	}
	for at := time.Duration(0); at < Length; at += look {
		now = start.Add(at)
		res, err := lim.Peek(ctx, key(0).Segments()...)
		if err != nil {
			return Answer{}, err
		}
		a.Limit = max(a.Limit, res.Remaining)
		if n := len(a.Remaining); n == 0 || a.Remaining[n-1].N != res.Remaining {
			a.Remaining = append(a.Remaining, Remaining{at.Microseconds(), res.Remaining})
		}
		for e, ok := next(at + look); ok; e, ok = next(at + look) {
			now = start.Add(e.at)
			r := weir.Request{Key: key(e.client)}
			if e.release != "" {
				r.Op, r.ID = weir.Release, e.release
				if _, err := lim.Decide(ctx, r, nil); err != nil {
					return Answer{}, err
				}
				continue
			}
			r.MaxWait = s.wait
			if s.hold > 0 {
				r.ID = strconv.Itoa(len(a.Decisions))
			}
			res, err := lim.Decide(ctx, r, each)
			if err != nil {
				return Answer{}, err
			}
			a.add(e, res, each)
			again := event{arrival: e.arrival, try: e.try + 1}
			switch {
			case res.Allowed && s.hold > 0:
				push(event{arrival: arrival{e.at + s.hold, e.client}, release: r.ID})
			case res.Allowed || e.try >= t.tries:
			case t.retry > 0:
				again.at += t.retry
				push(again)
			case res.RetryAfter != weir.Never:
				again.at += res.RetryAfter
				push(again)
			}
		}
	}
	return a, nil
}

func key(client int) weir.Key { return weir.KeyOf("acme", "client-"+strconv.Itoa(client+1)) }

// add adds the answer to a request.
func (a *Answer) add(e event, res weir.Result, each []weir.Result) {
	d := Decision{
		At: e.at.Microseconds(), Client: e.client, Try: e.try, Allowed: res.Allowed, Rule: res.Rule,
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
