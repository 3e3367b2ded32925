package simulate

import (
	"context"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store/memory"
)

// An Arrival is the first try of a request.
type Arrival struct {
	At     time.Duration // since the start of the traffic
	Client int
}

// A Play sends traffic to a limiter, in virtual time.
type Play struct {
	Policy   weir.Policy
	Start    time.Time
	Length   time.Duration
	Arrivals []Arrival // in order of time
	Key      func(client int) weir.Key

	Wait  time.Duration // Request.MaxWait
	Hold  time.Duration // how long each request holds a lease; 0 if it needs none
	Tries int           // how often a denied request is sent in all
	Retry time.Duration // the time from a denial to the next try; 0 means RetryAfter

	// Peeked gets what the first client has left, each time that Look has passed.
	Look   time.Duration
	Peeked func(at time.Duration, res weir.Result)

	// Decided gets each answer, and the results of the rules.
	Decided func(a Arrival, try int, res weir.Result, each []weir.Result)
}

// An event is a request, or the release of the lease of one.
type event struct {
	Arrival
	try     int    // 0 for a release
	release string // the ID of the lease
}

// Run sends the traffic.
func (p Play) Run(ctx context.Context) error {
	now := p.Start
	lim, err := weir.NewPolicy(memory.New(nil), p.Policy, &weir.Options{Clock: func() time.Time { return now }})
	if err != nil {
		return err
	}
	each := make([]weir.Result, len(p.Policy.Rules))
	asked, queue := 0, []event(nil)
	for _, a := range p.Arrivals {
		queue = append(queue, event{Arrival: a, try: 1})
	}
	// A retry or a release comes before the arrivals at the same time.
	push := func(e event) {
		i := sort.Search(len(queue), func(i int) bool {
			return queue[i].At > e.At || queue[i].At == e.At && queue[i].try == 1
		})
		queue = slices.Insert(queue, i, e)
	}
	for at := time.Duration(0); at < p.Length; at += p.Look {
		now = p.Start.Add(at)
		res, err := lim.Peek(ctx, p.Key(0).Segments()...)
		if err != nil {
			return err
		}
		p.Peeked(at, res)
		for len(queue) > 0 && queue[0].At < at+p.Look {
			e := queue[0]
			queue = queue[1:]
			now = p.Start.Add(e.At)
			r := weir.Request{Key: p.Key(e.Client)}
			if e.release != "" {
				r.Op, r.ID = weir.Release, e.release
				if _, err := lim.Decide(ctx, r, nil); err != nil {
					return err
				}
				continue
			}
			r.MaxWait = p.Wait
			if p.Hold > 0 {
				r.ID = strconv.Itoa(asked)
			}
			asked++
			res, err := lim.Decide(ctx, r, each)
			if err != nil {
				return err
			}
			p.Decided(e.Arrival, e.try, res, each)
			again := event{Arrival: e.Arrival, try: e.try + 1}
			switch {
			case res.Allowed && p.Hold > 0:
				push(event{Arrival: Arrival{e.At + p.Hold, e.Client}, release: r.ID})
			case res.Allowed || e.try >= p.Tries:
			case p.Retry > 0:
				again.At += p.Retry
				push(again)
			case res.RetryAfter != weir.Never:
				again.At += res.RetryAfter
				push(again)
			}
		}
	}
	return nil
}
