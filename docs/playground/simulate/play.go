package simulate

import (
	"container/heap"
	"context"
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
	try     int
	release string // the ID of the lease
	seq     int    // orders events at the same time
}

// events is a heap, the earliest first.
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].At < e[j].At || e[i].At == e[j].At && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// Run sends the traffic.
func (p Play) Run(ctx context.Context) error {
	now := p.Start
	lim, err := weir.NewPolicy(memory.New(nil), p.Policy, &weir.Options{Clock: func() time.Time { return now }})
	if err != nil {
		return err
	}
	each := make([]weir.Result, len(p.Policy.Rules))
	var later events // retries and releases
	seq, asked := 0, 0
	push := func(e event) {
		seq++
		e.seq = seq
		heap.Push(&later, e)
	}
	arrivals := p.Arrivals
	next := func(before time.Duration) (event, bool) {
		switch {
		case len(later) > 0 && later[0].At < before && (len(arrivals) == 0 || later[0].At <= arrivals[0].At):
			return heap.Pop(&later).(event), true
		case len(arrivals) > 0 && arrivals[0].At < before:
			first := arrivals[0]
			arrivals = arrivals[1:]
			return event{Arrival: first, try: 1}, true
		}
		return event{}, false
	}
	for at := time.Duration(0); at < p.Length; at += p.Look {
		now = p.Start.Add(at)
		res, err := lim.Peek(ctx, p.Key(0).Segments()...)
		if err != nil {
			return err
		}
		p.Peeked(at, res)
		for e, ok := next(at + p.Look); ok; e, ok = next(at + p.Look) {
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
