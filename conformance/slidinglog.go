package conformance

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

var slidingLogChecks = []check{
	{"Trace", "a token leaves a SlidingLog exactly one Window after it was consumed", slidingLogTrace},
	{"Demonstration", "a resource and its consumers get the answers of the published demonstration", slidingLogDemonstration},
	{"SameMicrosecond", "SlidingLog keeps every token of one microsecond", slidingLogSameMicrosecond},
	{"Bounded", "a SlidingLog keeps at most 15 entries more than Limit, and 3 if Limit is up to 5", slidingLogBounded},
	{"Lowered", "if Limit changes under a live key, the new limit judges the tokens of a SlidingLog", slidingLogLowered},
	{"Cost", "a request consumes at most 1000 tokens of a SlidingLog at once", slidingLogCost},
}

// slidingLogMembers are texts that are no entry.
var slidingLogMembers = []string{
	"l2 0000000000000001", "l2", "l2  00000001", "l2 -1 00000001", "l1 1 00000001", "x", " l2 1 00000001", "l2 1 1.5", "l2 1 00000001 x",
	"l2 9007199254740992 00000001", "l2 4503599627370496 00000001", "l2 1 123456789", "l2 99999999999999999999999999 00000001",
}

func slidingLogTrace(t *T) {
	s, us := time.Second, time.Microsecond
	t.trace(algorithm.SlidingLog{Limit: 3, Window: 10 * time.Second}, []step{
		{0, 1, true, 2, 10 * s, 0},
		{4 * s, 1, true, 1, 10 * s, 0},
		{4 * s, 0, true, 1, 10 * s, 0},
		{4 * s, 2, false, 1, 10 * s, 6 * s},
		{4 * s, 4, false, 1, 10 * s, weir.Never},
		{5 * s, 1, true, 0, 10 * s, 0},
		{6 * s, 1, false, 0, 9 * s, 4 * s},
		{6 * s, 2, false, 0, 9 * s, 8 * s},
		{6 * s, 3, false, 0, 9 * s, 9 * s},
		{10*s - us, 1, false, 0, 5*s + us, us},
		{10 * s, 1, true, 0, 10 * s, 0},
		{14 * s, 1, true, 0, 10 * s, 0},
		{24*s - us, 3, false, 2, us, us},
		{24 * s, 3, true, 0, 10 * s, 0},
		{34 * s, 0, true, 3, 0, 0},
	})
}

// slidingLogDemonstration replays two published runs of a limiter with a limit for a
// resource, 5 per 10 s, and one for each of its consumers, 3 per 10 s.
func slidingLogDemonstration(t *T) {
	each := make([]weir.Result, 2)
	run := func(resource string, first, last, bFirst, bLast time.Duration) (a, b string, l *weir.Limiter) {
		c := newClock()
		start := c.us
		l = t.limiter(c,
			weir.Rule{Name: "resource", By: []string{"s0"}, Algorithm: algorithm.SlidingLog{Limit: 5, Window: 10 * time.Second}},
			weir.Rule{Name: "consumer", By: []string{"s0", "s1"}, Algorithm: algorithm.SlidingLog{Limit: 3, Window: 10 * time.Second}})
		ask := func(who string) string {
			switch res := t.do(l, weir.Request{Key: weir.KeyOf(resource, who)}, each...); {
			case res.Allowed:
				return "A"
			case !each[0].Allowed:
				return "R"
			}
			return "C"
		}
		for at := first; at <= last; at += time.Second / 2 {
			if c.us = start + at.Microseconds(); at%time.Second == 0 {
				if at == first || at >= 0 {
					a += ask("a")
				}
			}
			if at >= bFirst && at <= bLast && (at-bFirst)%(2*time.Second) == 0 {
				b += ask("b")
			}
		}
		return a, b, l
	}

	a, b, l := run("calc", 0, 49*time.Second, 4*time.Second, 48*time.Second)
	if got, want := a[10:], strings.Repeat("AAARCRCRRR", 4); got != want {
		t.errorf("consumer A from 10 s on: got %s, want %s", got, want)
	}
	if want := strings.Repeat("AARRR", 5)[:len(b)]; b != want {
		t.errorf("consumer B from 4 s on: got %s, want %s", b, want)
	}
	for who, want := range map[string]int64{"a": 3, "b": 2} {
		t.do(l, weir.Request{Key: weir.KeyOf("calc", who), Op: weir.Peek}, each...)
		if live := 5 - each[0].Remaining; live != 5 {
			t.errorf("the resource has %d live entries at the end, want 5", live)
		}
		if live := 3 - each[1].Remaining; live != want {
			t.errorf("consumer %s has %d live entries at the end, want %d", who, live, want)
		}
	}

	a, b, _ = run("yesno", -7*time.Second, 24*time.Second, 1500*time.Millisecond, 19500*time.Millisecond)
	yes := strings.NewReplacer("A", "T", "R", "F", "C", "F")
	if got, want := yes.Replace(a), "T"+"TTFTFFFFFF"+"TTFTFFFFFF"+"TTFTF"; got != want {
		t.errorf("consumer A, yes or no: got %s, want %s", got, want)
	}
	if got, want := yes.Replace(b), "TTFFF"+"TTFFF"; got != want {
		t.errorf("consumer B, yes or no: got %s, want %s", got, want)
	}
}

func slidingLogSameMicrosecond(t *T) {
	c := newClock()
	a := algorithm.SlidingLog{Limit: 200, Window: time.Second}
	l := t.limiter(c, one(a))
	for i := range int64(100) {
		if res := t.allow(l, 1, "k"); res.Remaining != 199-i {
			t.fatalf("token %d of one microsecond left %d, want %d", i, res.Remaining, 199-i)
		}
	}
	if res := t.allow(l, 100, "k"); !res.Allowed || res.Remaining != 0 {
		t.errorf("the last 100 at once: got %+v", res)
	}
	if n := t.eval(count, []string{t.keyOf("k", "one", a)})[0].Int(); n != 200 {
		t.errorf("200 tokens are %d entries", n)
	}
}

func slidingLogBounded(t *T) {
	for _, limit := range []int64{1, 3, 20, 100} {
		name := "limit" + strconv.FormatInt(limit, 10)
		c := newClock()
		a := algorithm.SlidingLog{Limit: limit, Window: time.Second}
		l := t.limiter(c, weir.Rule{Name: name, Algorithm: a})
		key := []string{t.keyOf("k", name, a)}
		most := limit + 15
		if limit <= 5 {
			most = limit + 3
		}
		r := t.rand()
		for i := range t.times(int(80 + 4*limit)) {
			if i%150 == 149 {
				c.advance(900 * time.Millisecond) // a pause in which almost all tokens leave
			}
			c.advance(time.Second / time.Duration(limit))
			t.allow(l, min(pick[int64](r, 1, 1, 1, 3, 20), limit), "k")
			if i%5 == 0 {
				if n := t.eval(count, key)[0].Int(); n > most {
					t.fatalf("%d entries with a limit of %d, want at most %d", n, limit, most)
				}
			}
		}
		c.advance(time.Second)
		t.allow(l, 1, "k")
		if n := t.eval(count, key)[0].Int(); n != 1 {
			t.errorf("%d entries after a pause of a whole window, want 1", n)
		}
	}
}

func slidingLogCost(t *T) {
	c := newClock()
	l := t.limiter(c, one(algorithm.SlidingLog{Limit: 3000, Window: time.Hour}))
	if _, err := l.AllowN(t.ctx, algorithm.MaxLogCost+1, "k"); !errors.Is(err, weir.ErrInvalidCost) {
		t.errorf("cost %d: got error %v, want ErrInvalidCost", algorithm.MaxLogCost+1, err)
	}
	if res := t.allow(l, 3001, "k"); res.Allowed || res.RetryAfter != weir.Never || res.Remaining != 3000 {
		t.errorf("cost 3001: got %+v", res)
	}
	for i := range int64(3) {
		if res := t.allow(l, algorithm.MaxLogCost, "k"); !res.Allowed || res.Remaining != 2000-1000*i {
			t.errorf("request %d of cost %d: got %+v", i, algorithm.MaxLogCost, res)
		}
	}
	if res := t.allow(l, 1, "k"); res.Allowed {
		t.errorf("token 3001: got %+v", res)
	}
	t.reset(l, "k")
}

func slidingLogLowered(t *T) {
	s := time.Second
	of := func(limit int64) algorithm.Algorithm { return algorithm.SlidingLog{Limit: limit, Window: 100 * s} }
	var moves []move
	for i := range int64(20) {
		moves = append(moves, step{at: time.Duration(i+1) * s, cost: 1, allowed: true, left: 19 - i, reset: 100 * s}.under(of(20)))
	}
	t.moves(append(moves,
		step{at: 20 * s, cost: 1, reset: 100 * s, retry: 97 * s}.under(of(4)), // all 20 are in the window
		step{at: 20 * s, cost: 3, reset: 100 * s, retry: 99 * s}.under(of(4)),
		step{at: 20 * s, cost: 1, reset: 100 * s, retry: 91 * s}.under(of(10)),
		step{at: 20 * s, cost: 3, reset: 100 * s, retry: 93 * s}.under(of(10)),
		step{at: 110 * s, cost: 3, reset: 10 * s, retry: 9 * s}.under(of(4)), // 10 are
		step{at: 115 * s, cost: 6, left: 5, reset: 5 * s, retry: 1 * s}.under(of(10)),
		step{at: 115 * s, cost: 1, allowed: true, left: 14, reset: 100 * s}.under(of(20)),
	)...)
}
