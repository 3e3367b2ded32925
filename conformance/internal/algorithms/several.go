package algorithms

import (
	"math/rand/v2"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/random"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/lualocals"
)

func checkMix(t *T) {
	t.Beside(t.Times(80), 20, func(r *rand.Rand) []algorithm.Algorithm {
		list := []algorithm.Algorithm{t.Draw(r)}
		for range 1 + r.IntN(4) {
			list = append(list, random.Pick(r, random.GCRA, random.FixedWindow, random.SlidingCounter, random.SlidingLog, t.Draw)(r))
		}
		return list
	})
}

// checkSixteen first makes decisions over sixteen equal rules. Then the rules differ, and one
// of them is at its bounds.
func checkSixteen(t *T) {
	huge := t.subject.Huge
	h := 0
	t.Beside(t.Times(24), 12, func(r *rand.Rand) []algorithm.Algorithm {
		list := make([]algorithm.Algorithm, weir.MaxRules)
		for i := range list {
			if list[i] = list[0]; i == 0 || h > 0 {
				list[i] = t.Draw(r)
			}
		}
		if h > 0 && len(huge) > 0 {
			list[len(list)-1] = huge[h%len(huge)]
		}
		h++
		t.compiles(list)
		return list
	})
}

// compiles checks that the scripts of list have no more locals than Lua allows.
func (t *T) compiles(list []algorithm.Algorithm) {
	rules := make([]compose.Rule, len(list))
	for i, a := range list {
		rules[i].Limit = t.LimitOf(a)
	}
	p, err := compose.New(rules)
	if err != nil {
		t.Fatalf("%d rules: %v", len(list), err)
	}
	for _, v := range p.Verbs() {
		s := p.Script(v)
		if n := lualocals.Of(s); n > lualocals.Max {
			t.Fatalf("%s has %d locals at once, and Lua allows %d: put some of them between do and end", s.Name(), n, lualocals.Max)
		}
	}
}
