package weirhttp_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/weirhttp"
)

// The pauses after answers of real services, whose fields are those of their
// documentation. Times that depend on the clock are written as UNIX+30, MS+30, DATE+30 and
// RFC3339+30, all of which are 30 seconds after the answer.
func TestServices(t *testing.T) {
	const none, s = 0, time.Second
	for _, tt := range []struct {
		name   string
		status int
		fields string // separated by |
		want   time.Duration
	}{
		// docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
		{"GitHub", 403, "X-RateLimit-Limit: 5000|X-RateLimit-Remaining: 0|X-RateLimit-Used: 5000|X-RateLimit-Reset: UNIX+30", 30 * s},
		{"GitHub, the last request", 200, "X-RateLimit-Limit: 60|X-RateLimit-Remaining: 0|X-RateLimit-Used: 60|X-RateLimit-Reset: UNIX+30", 30 * s},
		{"GitHub, the first request", 200, "X-RateLimit-Limit: 60|X-RateLimit-Remaining: 59|X-RateLimit-Used: 1|X-RateLimit-Reset: UNIX+3600", none},
		{"GitHub, the secondary limit", 403, "Retry-After: 60|X-RateLimit-Limit: 5000|X-RateLimit-Remaining: 4987|X-RateLimit-Reset: UNIX+2847", 60 * s},
		// docs.gitlab.com/administration/settings/user_and_ip_rate_limits
		{"GitLab", 429, "RateLimit-Limit: 60|RateLimit-Remaining: 0|RateLimit-Reset: UNIX+30|RateLimit-ResetTime: DATE+30|Retry-After: 30", 30 * s},
		// gitlab.com/gitlab-org/gitlab/-/issues/199738: the fields describe another limit
		{"GitLab, a limit without fields", 429, "RateLimit-Limit: 600|RateLimit-Observed: 5|RateLimit-Remaining: 595|RateLimit-Reset: UNIX+61", none},
		// docs.discord.com/developers/topics/rate-limits
		{"Discord", 429, "Retry-After: 65|X-RateLimit-Remaining: 0|X-RateLimit-Reset: UNIX+64.57|X-RateLimit-Reset-After: 64.57", 65 * s},
		{"Discord, a shared limit", 429, "Retry-After: 100|X-RateLimit-Limit: 10|X-RateLimit-Remaining: 9|X-RateLimit-Reset: UNIX+64.57", 100 * s},
		{"Discord, the last request", 200, "X-RateLimit-Limit: 5|X-RateLimit-Remaining: 0|X-RateLimit-Reset: UNIX+1.25|X-RateLimit-Reset-After: 1.25", 1250 * time.Millisecond},
		// docs.slack.dev/apis/web-api/rate-limits
		{"Slack", 429, "Retry-After: 30", 30 * s},
		// shopify.dev/docs/api/admin-rest/usage/rate-limits
		{"Shopify", 429, "X-Shopify-Shop-Api-Call-Limit: 40/40|Retry-After: 2.0", 2 * s},
		{"Shopify, a full bucket", 200, "X-Shopify-Shop-Api-Call-Limit: 40/40", none},
		// www.twilio.com/docs/sendgrid/api-reference
		{"SendGrid", 429, "X-RateLimit-Limit: 150|X-RateLimit-Remaining: 0|X-RateLimit-Reset: UNIX+30", 30 * s},
		// docs.x.com/fundamentals/rate-limits
		{"X", 429, "x-rate-limit-limit: 900|x-rate-limit-remaining: 0|x-rate-limit-reset: UNIX+30", 30 * s},
		// github.com/reddit-archive/reddit/wiki/API
		{"Reddit", 200, "x-ratelimit-used: 100|x-ratelimit-remaining: 0.0|x-ratelimit-reset: 30", 30 * s},
		// developer.zendesk.com/documentation/api-basics/best-practices/best-practices-for-avoiding-rate-limiting
		{"Zendesk", 429, "Retry-After: 30|x-rate-limit: 700|x-rate-limit-remaining: 0|ratelimit-remaining: 0|ratelimit-reset: 30", 30 * s},
		{"Zendesk, an endpoint", 429, "Retry-After: 30|x-rate-limit-remaining: 699|ratelimit-remaining: 699|ratelimit-reset: 41|zendesk-ratelimit-tickets-index: total=100; remaining=0; resets=30", 30 * s},
		// developer.okta.com/docs/reference/rl-best-practices
		{"Okta", 429, "X-Rate-Limit-Limit: 1200|X-Rate-Limit-Remaining: 0|X-Rate-Limit-Reset: UNIX+30", 30 * s},
		// github.com/auth0/docs: articles/policies/rate-limits.md
		{"Auth0", 429, "X-RateLimit-Limit: 50|X-RateLimit-Remaining: 0|X-RateLimit-Reset: UNIX+30", 30 * s},
		// developers.cloudflare.com/fundamentals/api/reference/limits
		{"Cloudflare", 429, `Ratelimit: "default";r=0;t=29|Ratelimit-Policy: "default";q=1200;w=300|retry-after: 30`, 30 * s},
		{"Cloudflare, the last request", 200, `Ratelimit: "default";r=0;t=30|Ratelimit-Policy: "burst";q=100;w=60`, 30 * s},
		{"Cloudflare until 2025", 429, "x-ratelimit-limit: 1200|x-ratelimit-remaining: 0|x-ratelimit-reset: DATE+30", 30 * s},
		// developers.notion.com/reference/request-limits
		{"Notion, overloaded", 529, "Retry-After: 30", 30 * s},
		// jira.atlassian.com/browse/JRACLOUD-69262: the reset has no seconds
		{"Jira", 429, "Retry-After: 30|X-RateLimit-Limit: 350|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 2026-01-01T00:00Z", 30 * s},
		// docs.datadoghq.com/api/latest/rate-limits
		{"Datadog", 429, "X-RateLimit-Limit: 100|X-RateLimit-Period: 60|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 30", 30 * s},
		// support.pagerduty.com/docs/rest-api-rate-limits
		{"PagerDuty", 429, "ratelimit-limit: 960|ratelimit-remaining: 0|ratelimit-reset: 30", 30 * s},
		// github.com/digitalocean/openapi
		{"DigitalOcean", 429, "ratelimit-limit: 5000|ratelimit-remaining: 0|ratelimit-reset: UNIX+30", 30 * s},
		{"DigitalOcean, the burst limit", 429, "ratelimit-limit: 5000|ratelimit-remaining: 0|ratelimit-reset: UNIX+1800|retry-after: 29", 29 * s},
		// docs.docker.com/docker-hub/usage/pulls: w is the window, and nothing tells the reset
		{"Docker Hub", 429, "ratelimit-limit: 100;w=21600|ratelimit-remaining: 0;w=21600", none},
		// docs.joinmastodon.org/api/rate-limits
		{"Mastodon", 429, "X-RateLimit-Limit: 300|X-RateLimit-Remaining: 0|X-RateLimit-Reset: RFC3339+30", 30 * s},
		// developers.intercom.com/docs/references/rest-api/errors/rate-limiting
		{"Intercom", 429, "X-RateLimit-Limit: 167|X-RateLimit-Remaining: 0|X-RateLimit-Reset: UNIX+10", 10 * s},
		// developers.binance.com/docs/binance-spot-api-docs/rest-api/limits
		{"Binance, a banned address", 418, "X-MBX-USED-WEIGHT-1M: 6001|Retry-After: 120", 120 * s},
		// docs.konghq.com/hub/kong-inc/rate-limiting
		{"Kong", 429, "RateLimit-Limit: 5|RateLimit-Remaining: 0|RateLimit-Reset: 1|X-RateLimit-Remaining-Second: 0|X-RateLimit-Remaining-Minute: 9000", 1 * s},
		// github.com/envoyproxy/envoy: rate_limit_filter.rst
		{"Envoy", 429, "x-ratelimit-limit: 10, 10;w=60|x-ratelimit-remaining: 0|x-ratelimit-reset: 30|x-envoy-ratelimited: true", 30 * s},
		// github.com/traefik/traefik: rate_limiter.go
		{"Traefik", 429, "Retry-After: 30|X-Retry-In: 29.412s", 30 * s},
		// github.com/spring-cloud/spring-cloud-gateway: RedisRateLimiter.java; -1: not known
		{"Spring Cloud Gateway", 200, "X-RateLimit-Remaining: -1|X-RateLimit-Burst-Capacity: 20|X-RateLimit-Replenish-Rate: 10", none},
		// github.com/express-rate-limit/express-rate-limit: headers.ts
		{"express-rate-limit, legacy and draft 6", 200, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: UNIX+30|RateLimit-Limit: 100|RateLimit-Remaining: 0|RateLimit-Reset: 30", 30 * s},
		{"express-rate-limit, draft 7", 200, "RateLimit-Policy: 100;w=60|RateLimit: limit=100, remaining=0, reset=30", 30 * s},
		{"express-rate-limit, draft 8, two limiters", 200, `RateLimit: "1000-in-1hr"; r=990; t=3000|RateLimit: "10-in-1min"; r=0; t=30`, 30 * s},
		// github.com/laravel/framework: ThrottleRequests.php
		{"Laravel, the last request", 200, "X-RateLimit-Limit: 60|X-RateLimit-Remaining: 0", none},
		// github.com/apache/apisix: limit-count.md
		{"APISIX", 503, "X-RateLimit-Limit: 2|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 30", 30 * s},
		// github.com/TykTechnologies/tyk: internal/rate/headers.go
		{"Tyk, without a quota", 200, "X-RateLimit-Limit: 0|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 0", none},
		// openrouter.ai/docs/api_reference/limits
		{"OpenRouter", 429, "X-RateLimit-Limit: 15|X-RateLimit-Remaining: 0|X-RateLimit-Reset: MS+30", 30 * s},
		// learn.microsoft.com/en-us/rest/api/cosmos-db/common-cosmosdb-rest-response-headers
		{"Azure Cosmos DB", 429, "x-ms-retry-after-ms: 30250", 30250 * time.Millisecond},
		// docs.attio.com and developer.lemlist.com: rate limits
		{"Attio", 429, "Retry-After: DATE+1", 1 * s},
		{"lemlist, tokens left", 200, "Retry-After: 2|X-RateLimit-Limit: 20|X-RateLimit-Remaining: 7", none},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
			answer := func(n int, _ *http.Request) (*http.Response, error) {
				if n > 0 {
					return response(200, nil), nil
				}
				var fields []string
				for field := range strings.SplitSeq(tt.fields, "|") {
					name, value, _ := strings.Cut(field, ": ")
					fields = append(fields, name, clock(value))
				}
				return response(tt.status, nil, fields...), nil
			}
			got := twoTimes(t, &weirhttp.Transport{MaxPause: time.Hour}, answer)
			if want := []time.Duration{0, tt.want}; !slices.Equal(got, want) {
				t.Errorf("%s: requests left at %v, want %v", tt.name, got, want)
			}
		})
	}
}

// clock returns a time of TestServices as the service writes it.
func clock(value string) string {
	form, after, _ := strings.Cut(value, "+")
	d, _ := time.ParseDuration(after + "s")
	at := time.Now().Add(d)
	switch form {
	case "UNIX":
		return strconv.FormatFloat(float64(at.UnixMilli())/1e3, 'f', -1, 64)
	case "MS":
		return strconv.FormatInt(at.UnixMilli(), 10)
	case "DATE":
		return at.Format(http.TimeFormat)
	case "RFC3339":
		return at.Format("2006-01-02T15:04:05.000000Z07:00")
	}
	return value
}
