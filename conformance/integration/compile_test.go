package integration

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
)

// TestCompile compiles the scripts of sixteen rules with miniredis's Lua. A function there
// has 200 registers for its locals and what it works out, where the one of Redis has 250.
// Fifteen rules are of one kind, and one is of another: the first kind may have the most
// locals, and the other the longest expression. With -short, each kind is with one other.
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
	for i, most := range limits {
		for j, other := range limits {
			if testing.Short() && j != (i+1)%len(limits) {
				continue
			}
			var rules []compose.Rule
			for i := range compose.MaxRules - 1 {
				rules = append(rules, compose.Rule{Limit: most, Cost: int64(i % 2)})
			}
			p, err := compose.New(append(rules, compose.Rule{Limit: other}))
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range p.Verbs() {
				script := p.Script(v)
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
