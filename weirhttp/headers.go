package weirhttp

import (
	"net/http"
	"strconv"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/gate"
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
	case m.opts.Headers == XRateLimit:
		if res.Rule != "" {
			h.Set(xRateLimitLimit, strconv.FormatInt(res.Limit, 10))
			h.Set(xRateLimitRemaining, strconv.FormatInt(res.Remaining, 10))
			h.Set(xRateLimitReset, strconv.FormatInt(seconds(res.ResetAfter), 10))
		}
		return
	}
	var pk []byte
	if m.opts.PartitionKey != nil {
		pk = m.opts.PartitionKey(r)
	}
	s.Text = s.Text[:0]
	for i := range rules {
		s.Text = appendPolicy(s.Text, &rules[i], pk, i > 0)
	}
	end := len(s.Text)
	for i := range rules {
		s.Text = appendState(s.Text, &rules[i], pk, i > 0)
	}
	h[rateLimitPolicy] = append(h[rateLimitPolicy], string(s.Text[:end]))
	h[rateLimit] = append(h[rateLimit], string(s.Text[end:]))
}

// appendPolicy appends the item of RateLimit-Policy for one rule.
func appendPolicy(b []byte, rule *weir.Result, pk []byte, more bool) []byte {
	b = appendName(b, rule, more)
	b = sfv.AppendInteger(append(b, ";q="...), max(rule.Limit, 0))
	if rule.Window > 0 {
		b = sfv.AppendInteger(append(b, ";w="...), seconds(rule.Window))
	} else {
		b = append(b, `;qu="concurrent-requests"`...)
	}
	return appendPartition(b, pk)
}

// appendState appends the item of RateLimit for one rule.
func appendState(b []byte, rule *weir.Result, pk []byte, more bool) []byte {
	b = appendName(b, rule, more)
	b = sfv.AppendInteger(append(b, ";r="...), max(rule.Remaining, 0))
	window := rule.ResetAfter
	if !rule.Allowed && rule.RetryAfter != weir.Never {
		window = max(rule.RetryAfter, 1)
	}
	if rule.Window > 0 {
		b = sfv.AppendInteger(append(b, ";t="...), seconds(window))
	}
	return appendPartition(b, pk)
}

func appendName(b []byte, rule *weir.Result, more bool) []byte {
	if more {
		b = append(b, ", "...)
	}
	return sfv.AppendString(b, rule.Rule)
}

func appendPartition(b, pk []byte) []byte {
	if len(pk) > 0 {
		b = sfv.AppendBytes(append(b, ";pk="...), pk)
	}
	return b
}
