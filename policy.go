package weir

import (
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
)

// MaxRules is the largest number of rules of a limiter.
const MaxRules = compose.MaxRules

// A Policy describes the keys and the rules of a [Limiter]. Processes that share limits
// use the same Policy.
type Policy struct {
	// Name is part of every key in the store. It has 1 to MaxSegment bytes. Limiters with
	// the same name, prefix and store share their state.
	Name string

	// Segments names the segments of the keys. It has 1 to MaxSegments names. nil means
	// one segment named "key".
	Segments []string

	// Secret names the segments that are stored as a hash, for example API keys. nil
	// means none. The hash is a SHA-256 without a salt. So whoever reads the store can
	// find a value with few possibilities, for example a phone number or a short code, by
	// trying them all: pass an HMAC of such a value, with a key of your own.
	Secret []string

	// Rules has 1 to MaxRules rules, and any shadow rules: see Rule.Shadow. A request is
	// allowed only if all rules allow it. A policy cannot have both an
	// algorithm.Concurrency and an algorithm.MetadataWindow.
	Rules []Rule
}

// A Rule is one limit of a [Limiter].
type Rule struct {
	// Name identifies the rule in results and in keys. It has 1 to MaxSegment bytes. If a
	// limiter has only one rule, the name can be empty. Results then show the name of the
	// algorithm.
	Name string

	// By names the segments that identify the limit. nil means all segments. At least one
	// segment must be common to all rules of a limiter.
	By []string

	// Algorithm is the algorithm of the rule with its parameters, for example
	// algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}.
	Algorithm algorithm.Algorithm

	// Cost is the number of tokens that each request consumes from this rule. 0 means
	// Request.Cost.
	Cost int64

	// Shadow makes the rule a shadow rule: it decides every request and consumes tokens
	// as if it were the only rule, but changes no answer. Result.Shadow says what it
	// would have done. So a limit can be tried beside the enforced ones, in the
	// same round trip if the store is a store.Batcher.
	//
	// A shadow rule needs a Name, and By can be any segments. It also sees the requests
	// that the other rules deny, and holds their leases until they expire or are
	// released. It makes no decision during an outage, or when a wrapper answers. It
	// cannot be an algorithm.MetadataWindow, and can be an algorithm.Concurrency only if
	// another rule is one too.
	//
	// If Shadow is no longer set, the rule keeps its state only if its By has no segment
	// besides those that all rules share.
	Shadow bool
}

// Options are the optional settings of a [Limiter]. The zero value is the default.
type Options struct {
	// Prefix is the beginning of every key. If it is empty, DefaultPrefix is used. It is
	// escaped like a segment: { } : and % are replaced, for example : by %3A. If it is
	// longer than MaxSegment bytes, it is replaced by its SHA-256.
	Prefix string

	// Clock returns the time of a decision. If it is nil, the store's clock is used. Set
	// Clock in tests, and for servers that do not allow the command TIME in scripts. If
	// the clocks of several processes differ, more requests than the limit can be
	// allowed. With a Clock, every key is kept one hour longer than needed.
	//
	// The time must be after the Unix epoch and before the year 2112.
	Clock func() time.Time

	// Settles says that decisions will be settled. If Settle cannot be used with the
	// rules, New, NewPolicy and With then return the ErrUnsupported that Settle would
	// return after the work. They also return it if a rule without a Cost can be in debt
	// by less than 100 times its limit: Settle might then charge only a part of an actual
	// cost.
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
