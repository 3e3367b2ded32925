package gate

import (
	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// Each returns n of each unit of lim, for requests that ask about any caller.
func Each(lim *weir.Limiter, n int64) weir.Costs {
	amounts := map[string]int64{}
	for _, unit := range lim.Units() {
		amounts[unit] = n
	}
	return weir.CostsOf(amounts)
}

// Words describes the limit of a rule in words.
func Words(rule *weir.RuleInfo) string {
	text := algorithm.Words(rule.Algorithm)
	if rule.Unit != "" {
		text += ", counted in " + rule.Unit
	}
	return text
}
