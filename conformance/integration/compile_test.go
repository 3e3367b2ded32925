package integration

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/conformance/internal/lualocals"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/store"
)

// TestCompile compiles the scripts of sixteen rules with miniredis's Lua. A function there
// has 200 registers for its locals and what it works out, where the one of Redis has 250.
// Fifteen rules are of one of the three kinds with the most locals, and one is of any kind: its
// expressions may be the longest.
func TestCompile(t *testing.T) {
	notLight(t)
	t.Parallel()
	var limits []*contract.Limit
	for _, k := range formKinds(rand.New(rand.NewPCG(1, 22))) {
		l := program(k.limits[0]).Limit(0)
		if !slices.ContainsFunc(limits, func(other *contract.Limit) bool { return other.Kind == l.Kind }) {
			limits = append(limits, l)
		}
	}
	scripts := func(most, other *contract.Limit) (all []*store.Script) {
		var rules []compose.Rule
		for i := range compose.MaxRules - 1 {
			rules = append(rules, compose.Rule{Limit: most, Cost: int64(i % 2)})
		}
		p, err := compose.New(append(rules, compose.Rule{Limit: other}))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range p.Verbs() {
			all = append(all, p.Script(v))
		}
		return all
	}
	locals := map[*contract.Limit]int{}
	for _, l := range limits {
		for _, script := range scripts(l, l) {
			locals[l] = max(locals[l], lualocals.Of(script))
		}
	}
	slices.SortFunc(limits, func(a, b *contract.Limit) int { return locals[b] - locals[a] })
	for _, most := range limits[:3] {
		for _, other := range limits {
			for _, script := range scripts(most, other) {
				chunk, err := parse.Parse(strings.NewReader(script.Lua()), "")
				if err == nil {
					_, err = lua.Compile(chunk, "")
				}
				if err != nil {
					t.Errorf("%s: %v", script.Name(), err)
				}
			}
		}
	}
}
