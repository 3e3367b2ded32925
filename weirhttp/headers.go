package weirhttp

import (
	"net/http"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/weirhttp/internal/sfv"
)

// The names of the fields, as http.Header has them.
const (
	rateLimitPolicy     = "Ratelimit-Policy"
	rateLimit           = "Ratelimit"
	xRateLimitLimit     = "X-Ratelimit-Limit"
	xRateLimitRemaining = "X-Ratelimit-Remaining"
	xRateLimitReset     = "X-Ratelimit-Reset"
)

// setHeaders sets the fields of the dialect.
func (m *middleware) setHeaders(h http.Header, r *http.Request, res *weir.Result, s *gate.Scratch) {
	rules := s.Rules(res)
	switch {
	case m.opts.Headers == NoHeaders || len(rules) == 0:
		return
	case m.opts.Headers != RateLimitDraft11:
		if res.Rule != "" && res.Type != weir.PauseRule {
			h.Set(xRateLimitLimit, strconv.FormatInt(res.Limit, 10))
			h.Set(xRateLimitRemaining, strconv.FormatInt(res.Remaining, 10))
			if res.Type == weir.LeaseRule { // a lease can be released at any time
				h.Del(xRateLimitReset)
				return
			}
			reset := seconds(res.ResetAfter)
			if m.opts.Headers == XRateLimitUnix {
				reset = time.Now().Add(res.ResetAfter).Add(time.Second - 1).Unix() // rounded up
			}
			h.Set(xRateLimitReset, strconv.FormatInt(reset, 10))
		}
		return
	}
	var pk []byte
	if m.opts.PartitionKey != nil {
		pk = m.opts.PartitionKey(r)
	}
	s.Text = appendItems(s.Text[:0], rules, pk, appendPolicy)
	end := len(s.Text)
	if end == 0 {
		return
	}
	s.Text = appendItems(s.Text, rules, pk, appendState)
	h[rateLimitPolicy] = append(h[rateLimitPolicy], string(s.Text[:end]))
	h[rateLimit] = append(h[rateLimit], string(s.Text[end:]))
}

// appendItems appends an item for each rule, with the parameters that appendParams
// appends. A rule that pauses has no quota, so it has no item: Retry-After tells how long
// it denies.
func appendItems(b []byte, rules []weir.Result, pk []byte, appendParams func(b []byte, rule *weir.Result) []byte) []byte {
	start := len(b)
	for i := range rules {
		if rules[i].Type == weir.PauseRule {
			continue
		}
		if len(b) > start {
			b = append(b, ", "...)
		}
		b = appendParams(sfv.AppendString(b, rules[i].Rule), &rules[i])
		if len(pk) > 0 {
			b = sfv.AppendBytes(append(b, ";pk="...), pk)
		}
	}
	return b
}

// appendPolicy appends the parameters of RateLimit-Policy.
func appendPolicy(b []byte, rule *weir.Result) []byte {
	b = sfv.AppendInteger(append(b, ";q="...), max(rule.Limit, 0))
	switch {
	case rule.Type == weir.LeaseRule:
		b = append(b, `;qu="concurrent-requests"`...)
	case rule.Window > 0:
		b = sfv.AppendInteger(append(b, ";w="...), seconds(rule.Window))
	}
	return b
}

// appendState appends the parameters of RateLimit.
func appendState(b []byte, rule *weir.Result) []byte {
	b = sfv.AppendInteger(append(b, ";r="...), max(rule.Remaining, 0))
	window := rule.ResetAfter
	if !rule.Allowed && rule.RetryAfter != weir.Never {
		window = max(rule.RetryAfter, 1)
	}
	if rule.Type != weir.LeaseRule {
		b = sfv.AppendInteger(append(b, ";t="...), seconds(window))
	}
	return b
}
