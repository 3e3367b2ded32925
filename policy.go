package weir

import (
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
)

// MaxRules is the largest number of rules of a limiter.
const MaxRules = compose.MaxRules

// A Policy describes the keys and the rules of a [Limiter]. Limiters with the same name,
// prefix and store share their state.
type Policy struct {
	// Name is part of every key in the store. It has 1 to MaxSegment bytes.
	Name string

	// Segments names the segments of the keys, up to MaxSegments. nil means one named
	// "key".
	Segments []string

	// Secret names the segments, such as API keys, that are stored as a SHA-256. It has
	// no salt, so pass an HMAC of a value that can be guessed, such as a phone number.
	Secret []string

	// Units names what requests consume apart from Request.Cost, such as "bytes" or
	// "microcents", up to MaxUnits. A request has amounts by unit in Request.Costs.
	Units []string

	// Rules has 1 to [MaxRules] rules, and any number of shadow rules.
	Rules []Rule
}

// A Rule is one limit of a [Limiter].
type Rule struct {
	// Name identifies the rule in results and in keys, in 1 to MaxSegment bytes. The only
	// rule of a limiter needs none.
	Name string

	// By names the segments that identify the limit; nil means all. All rules must share
	// one.
	By []string

	Algorithm algorithm.Algorithm

	// Cost is the number of tokens that each request consumes from this rule, or 0 for
	// Request.Cost.
	Cost int64

	// Unit is the unit, one of Policy.Units, of which the rule counts the amount in
	// Request.Costs. Empty means that it counts Cost. If the unit of a rule changes, give
	// the rule a new name, because its state is in the earlier unit. A rule that holds
	// leases, pauses keys or keeps metadata has none.
	Unit string

	// Shadow makes the rule a shadow rule, to try a limit out. It decides every request
	// as if it were the only rule, but changes no answer. [Result].Shadow says what it
	// would have done. It makes no decision during an outage, or when a wrapper answers.
	//
	// It needs a Name, and can have any By. An algorithm.MetadataWindow or Pause cannot
	// be one.
	Shadow bool
}

// Options are the optional settings of a [Limiter].
type Options struct {
	// Prefix is the beginning of every key in the store. Its { } : % are escaped. Empty
	// means DefaultPrefix.
	Prefix string

	// Clock returns the time of a decision, between 1970 and 2112. nil means the clock of
	// the store. Set it in tests, and for servers that do not allow TIME in scripts. If
	// the clocks of processes differ, more requests than the limit can be allowed.
	Clock func() time.Time

	// Settles requires that each rule without a Cost allows a debt of 100 times its
	// limit, so that decisions can be settled in full. Otherwise the error is
	// [ErrUnsupported]. In rules with a Unit, a decision can then be settled, and is found
	// by a repeat, for at least 10 minutes.
	//
	// Beside an algorithm.Concurrency, which then needs a Cost of 1, it lets decisions
	// with a lease be settled, refunded and finished, also for at least 10 minutes or the
	// lease time: see [Limiter.TryAcquire]. So use it in all processes or in none.
	Settles bool
}

// split returns the enforced rules and the shadow rules.
func split(rules []Rule) (live, shadow []Rule) {
	for _, r := range rules {
		if r.Shadow {
			shadow = append(shadow, r)
		} else {
			live = append(live, r)
		}
	}
	return live, shadow
}
