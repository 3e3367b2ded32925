package conformance

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// This file compares the built-in algorithms with plain models of them. The suite compares
// every store with the memory store, so what holds here holds for every store that passes.

// modelled returns a check that makes n random histories of steps requests, and checks that
// a plain model gives each answer too.
func modelled(n, steps int) check {
	return check{"Modelled", "an algorithm answers as a plain model of it", func(t *T) {
		r := t.rand()
		for h := range n {
			a, c := t.draw(r), newClock()
			l, m, key := t.limiter(c, one(a)), newModel(a), "model"+strconv.Itoa(h)
			limit := t.limitOf(a)
			for s := range steps {
				c.advance(anyPause(r, t.unitOf(a)))
				req := t.anyRequest(r, a, key)
				if req.Op == weir.Consume && r.IntN(12) == 0 {
					req.Cost = pick(r, limit.Capacity+1, 1<<40, 1<<63-1)
				}
				t.sameAsModel(a, m, c, l, req, s)
			}
		}
	}}
}

// atBounds is a check that makes requests for large parts of the largest limits, at two
// times, and checks that a plain model gives each answer too.
var atBounds = check{"AtBounds", "an algorithm at its bounds answers as a plain model of it", func(t *T) {
	for i, a := range t.backend.subject.Huge {
		t.leases = t.kindOf(a).Leases
		for j, at := range []int64{newClock().us, 1<<52 - 1} {
			c := &clock{us: at}
			l, m, key := t.limiter(c, one(a)), newModel(a), "bounds"+strconv.Itoa(i)+"."+strconv.Itoa(j)
			limit := t.limitOf(a).Capacity
			list := []weir.Request{{}, {Cost: limit / 3}, {Cost: 1}, {Cost: limit / 2}, {Cost: limit}}
			if longest := t.longestWait(a); longest > 0 {
				for _, cost := range []int64{limit, limit/3 + 1, 1, limit} {
					list = append(list, weir.Request{Cost: cost, MaxWait: longest})
				}
			}
			for s, req := range list {
				if c.us < 1<<52-1 {
					c.advance(7 * time.Microsecond)
				}
				if req.Key, req.Cost = weir.KeyOf(key), t.fitting(a, max(req.Cost, 1)); t.leases {
					req.ID = t.lease()
				}
				t.sameAsModel(a, m, c, l, req, s)
			}
		}
	}
}}

// sameAsModel makes a request, and checks that the model gives the same answer.
func (t *T) sameAsModel(a algorithm.Algorithm, m model, c *clock, l *weir.Limiter, req weir.Request, step int) {
	got := t.do(l, req)
	if req.Op == weir.Release {
		got = weir.Result{Allowed: got.Allowed}
	}
	if want := predict(a, m, c.us, req); got != want {
		t.fatalf("%+v, step %d, %+v:\ngot  %+v\nwant %+v, as a plain model answers", a, step, req, got, want)
	}
}

// modelTest runs c on the algorithm of g, changed by m.
func modelTest(t *testing.T, g group, c check, m mutation) *T {
	b := m.backend()
	b.Seed, b.subject = 0, g.subject
	return runCheck(t, b, c)
}

func TestModels(t *testing.T) {
	t.Parallel()
	for _, g := range builtins {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			histories := 500
			if testing.Short() {
				histories = 50
			}
			for _, c := range []check{modelled(histories, 30), atBounds} {
				if r := modelTest(t, g, c, mutation{}); len(r.failures) > 0 {
					t.Errorf("broken: %s\nseed %d: %s", c.text, r.seed, strings.Join(r.failures, "\n"))
				}
			}
		})
	}
}

// TestModelMutants shows that the model of each algorithm finds a mutant that miscounts.
func TestModelMutants(t *testing.T) {
	t.Parallel()
	for _, g := range builtins {
		i := slices.IndexFunc(mutants, func(m mutant) bool {
			return m.check == g.name+"/Same" && strings.Contains(m.name, "miscounted")
		})
		if i < 0 {
			t.Errorf("no mutant of %s miscounts", g.name)
		} else if r := modelTest(t, g, modelled(1000, 30), mutants[i].wrong); len(r.failures) == 0 {
			t.Errorf("the model of %s does not find that %s", g.name, mutants[i].name)
		}
	}
}
