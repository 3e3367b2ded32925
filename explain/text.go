package explain

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/prose"
)

// usage returns the state of the rule info that the peek r has found.
func usage(info *weir.RuleInfo, r *weir.Result) Usage {
	u := Usage{
		Limit: r.Limit, Window: Duration(r.Window), Remaining: r.Remaining, Used: max(r.Limit-r.Remaining, 0),
		Allowed: r.Allowed, RetryAfter: Duration(r.RetryAfter), ResetAfter: Duration(r.ResetAfter),
	}
	if info.Queues && r.Window > 0 { // Remaining is all or nothing; each turn takes as long as another
		u.Used = scale(r.ResetAfter, r.Limit, r.Window)
	}
	u.State = state(info, &u)
	return u
}

// scale returns d*n/per, rounded up. If it is too large, scale returns the largest
// integer.
func scale(d time.Duration, n int64, per time.Duration) int64 {
	hi, lo := bits.Mul64(uint64(max(d, 0)), uint64(n))
	if hi >= uint64(per) {
		return 1<<63 - 1
	}
	whole, rest := bits.Div64(hi, lo, uint64(per))
	if rest > 0 {
		whole++
	}
	return int64(min(whole, 1<<63-1))
}

// state describes u in a sentence.
func state(info *weir.RuleInfo, u *Usage) string {
	cost := max(info.Cost, 1)
	switch retry := time.Duration(u.RetryAfter); {
	case info.Type == weir.PauseRule && u.Allowed:
		return "not paused"
	case info.Type == weir.PauseRule:
		return "paused: " + next(cost, retry)
	case info.Type == weir.LeaseRule:
		return leases(u, cost)
	case info.Queues:
		return queue(u, cost)
	}
	limit := prose.Count(u.Limit, "token")
	if info.Unit != "" {
		limit = fmt.Sprintf("%d %s", u.Limit, info.Unit)
	}
	parts := []string{fmt.Sprintf("%d of %s left", u.Remaining, limit)}
	if u.Used == 0 {
		parts[0] = fmt.Sprintf("all of %s left", limit)
	}
	if u.ResetAfter > 0 {
		parts = append(parts, "full again in "+prose.Duration(time.Duration(u.ResetAfter)))
	}
	return strings.Join(append(parts, denial(u, cost)...), "; ")
}

// leases describes the state of a concurrency limit. Leases can be released at any time,
// so the times are upper bounds.
func leases(u *Usage, cost int64) string {
	parts := []string{fmt.Sprintf("%d of %s held", u.Used, prose.Count(u.Limit, "lease"))}
	if u.Used == 0 {
		parts[0] = fmt.Sprintf("none of %s held", prose.Count(u.Limit, "lease"))
	}
	switch {
	case u.Allowed:
	case time.Duration(u.RetryAfter) == weir.Never:
		parts = append(parts, denial(u, cost)...)
	default:
		parts = append(parts, fmt.Sprintf("the next request is allowed when one is released, or in %s when one expires", prose.Duration(time.Duration(u.RetryAfter))))
	}
	if u.ResetAfter > 0 {
		parts = append(parts, fmt.Sprintf("the last one expires in %s unless it is renewed", prose.Duration(time.Duration(u.ResetAfter))))
	}
	return strings.Join(parts, "; ")
}

// queue describes the state of a queue. A request that can wait gets a turn while there
// is one.
func queue(u *Usage, cost int64) string {
	if u.ResetAfter <= 0 {
		return fmt.Sprintf("the queue of %s is empty", prose.Count(u.Limit, "turn"))
	}
	parts := []string{fmt.Sprintf("%d of %s taken", u.Used, prose.Count(u.Limit, "turn"))}
	parts = append(parts, "the queue is empty in "+prose.Duration(time.Duration(u.ResetAfter)))
	for _, text := range denial(u, cost) {
		parts = append(parts, text+" without waiting")
	}
	return strings.Join(parts, "; ")
}

// denial says when the next request is allowed, if it is not allowed now.
func denial(u *Usage, cost int64) []string {
	if u.Allowed {
		return nil
	}
	return []string{next(cost, time.Duration(u.RetryAfter))}
}

// next says when a request of that cost is allowed.
func next(cost int64, retry time.Duration) string {
	request := "the next request"
	if cost != 1 {
		request += fmt.Sprintf(", of %d tokens,", cost)
	}
	if retry == weir.Never {
		return request + " can never be allowed"
	}
	return request + " is allowed in " + prose.Duration(retry)
}

// why says why the request is allowed or denied. shown is the rule that the answer
// describes.
func why(d *Document, shown string) string {
	var text, more string
	live := 0
	for _, r := range d.Rules {
		switch {
		case r.Name == shown && d.Allowed:
			text = fmt.Sprintf("allowed; the rule with the fewest tokens is %q: %s", r.Name, r.State)
		case r.Name == shown:
			text = fmt.Sprintf("denied by rule %q: %s", r.Name, r.State)
		case r.Shadow && !r.Allowed:
			more += fmt.Sprintf("; the shadow rule %q would deny it: %s", r.Name, r.State)
		}
		if !r.Shadow {
			live++
		}
	}
	if d.Allowed && live == 1 {
		text = "allowed: " + d.Rules[0].State // shadow rules are the last
	}
	return text + more
}
