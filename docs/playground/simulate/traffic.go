package simulate

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Length is how long traffic lasts. Time is in microseconds from its start.
const Length = 60 * time.Second

// midnight starts a day, a month, a quarter and a year, in the middle of the traffic.
var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var start = midnight.Add(-Length / 2)

// traffic is the first attempts of all requests, and what a denied client does.
type traffic struct {
	random   *rand.Rand
	arrivals []Arrival // in order of time

	tries int           // how often a request is sent in all
	retry time.Duration // the time from a denial to the next try; 0 means RetryAfter
}

func (t *traffic) add(at time.Duration, client int) {
	if at < Length {
		t.arrivals = append(t.arrivals, Arrival{at.Truncate(time.Microsecond), client})
	}
}

var traffics = []Kind{
	{
		Name: "bursts", Title: "Bursts", About: "One client sends many requests within half a second, again and again.",
		Numbers: []Number{quantity("size", "Requests in a burst", "", 1, 100, 20), quantity("every", "Time between bursts", "s", 2, 30, 8)},
		send: func(t *traffic, n numbers) {
			for at := time.Second; at < Length; at += n.seconds("every") {
				for i := range n["size"] {
					t.add(at+time.Second/2*time.Duration(i)/time.Duration(n["size"]), 0)
				}
			}
		},
	},
	{
		Name: "steady", Title: "Steady", About: "One client sends requests at an even pace.",
		Numbers: []Number{quantity("rate", "Requests in 10 s", "", 1, 500, 15)},
		send: func(t *traffic, n numbers) {
			for i := range n["rate"] * int64(Length/(10*time.Second)) {
				t.add(10*time.Second*time.Duration(i)/time.Duration(n["rate"]), 0)
			}
		},
	},
	{
		Name: "storm", Title: "Retry storm", About: "Many callers share one key. They start within a second, and a denied caller tries again.",
		Random: true,
		Numbers: []Number{
			quantity("callers", "Callers", "", 1, 200, 40), quantity("tries", "Tries of a caller", "", 1, 20, 6),
			quantity("retry", "Retry after (0: RetryAfter)", "s", 0, 20, 2),
		},
		send: func(t *traffic, n numbers) {
			t.tries, t.retry = int(n["tries"]), n.seconds("retry")
			for range n["callers"] {
				t.add(5*time.Second+time.Duration(t.random.Int64N(int64(time.Second))), 0)
			}
		},
	},
	{
		Name: "clients", Title: "Many clients", About: "Clients send requests at random times. The first one is busier than the others.",
		Random: true,
		Numbers: []Number{
			quantity("clients", "Clients", "", 1, 30, 8), quantity("rate", "Requests of a client in 10 s", "", 1, 20, 6),
			quantity("busy", "The first is busier by", "×", 1, 10, 4),
		},
		send: func(t *traffic, n numbers) {
			for client := range int(n["clients"]) {
				mean := float64(10*time.Second) / float64(n["rate"])
				if client == 0 {
					mean /= float64(n["busy"])
				}
				for at := 0.0; ; {
					if at += t.random.ExpFloat64() * mean; at >= float64(Length) {
						break
					}
					t.add(time.Duration(at), client)
				}
			}
		},
	},
}

// newTraffic returns the traffic that was chosen.
func newTraffic(s Settings) (*traffic, error) {
	k, n, err := choose(traffics, s.Traffic)
	if err != nil {
		return nil, err
	}
	t := &traffic{random: rand.New(rand.NewPCG(s.Seed, 0)), tries: 1}
	k.send(t, n)
	slices.SortStableFunc(t.arrivals, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
	return t, nil
}
