package compose

import "time"

// A Shown collects the answers of the rules to a request, one by one, and tells which of
// them the weir.Result describes. If the request is allowed, it is the rule with the
// fewest tokens remaining, otherwise the rule with the longest RetryAfter. If there are
// several such rules, it is the first.
type Shown struct {
	Allowed bool          // all rules together allow the request; set it before the first Add
	Rule    int           // the index of the rule that the Result describes
	Delay   time.Duration // the longest Delay of all rules

	remaining  int64
	retryAfter time.Duration
	granted    int64
	follows    bool
}

// Add adds the answer of rule i. The first rule is 0. If the rule pauses and the request
// is allowed, remaining is math.MaxInt64, so that any other rule is shown instead.
func (s *Shown) Add(i int, remaining int64, retryAfter, delay time.Duration) {
	if i == 0 || s.Allowed && remaining < s.remaining || !s.Allowed && retryAfter > s.retryAfter {
		s.Rule, s.remaining, s.retryAfter = i, remaining, retryAfter
	}
	s.Delay = max(s.Delay, delay)
}

// Grant adds the tokens that a rule consumed. follows is true if it consumes the cost of
// the request, and no rule counts a unit.
func (s *Shown) Grant(follows bool, tokens int64) {
	if follows {
		s.granted, s.follows = tokens, true
	}
}

// Granted returns what each rule without a Cost consumed. If every rule has one, or a rule
// counts a unit, it returns false: it is then what the rule that is shown consumed.
func (s *Shown) Granted() (n int64, ok bool) { return s.granted, s.follows }
