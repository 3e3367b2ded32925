package weirfile_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirfile"
	"github.com/weir-go/weir/weirhttp"
)

const text = `
policies:
  api:
    segments: [tenant, user]
    rules:
      user: {algorithm: fixed window, limit: 1000, window: 1h}
    plans:
      pro:
        user: {limit: 5000}
    overrides:
      - match: {tenant: acme, user: bob}
        rules:
          user: {limit: 20000}
`

// A user has the limits of a plan, or of an override. A program loads a file with Load, and
// Limits.Watch follows its changes.
func Example() {
	file, err := weirfile.Parse("limits.yaml", []byte(text), nil)
	if err != nil {
		panic(err) // every mistake, with its line
	}
	limits, err := file.Limits(memory.New(nil))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for user, plan := range map[string]string{"ann": "pro", "bob": "pro", "cid": ""} {
		lim, err := limits.For(ctx, "api", plan, weir.KeyOf("acme", user))
		if err != nil {
			panic(err)
		}
		res, err := lim.Allow(ctx, "acme", user)
		fmt.Println(user, res.Allowed, res.Remaining, err)
	}
	// Unordered output:
	// ann true 4999 <nil>
	// bob true 19999 <nil>
	// cid true 999 <nil>
}

// A middleware has the limiter of the policy, and asks for that of each request. Umbra is blocked.
func ExampleLimits_Policy() {
	file, err := weirfile.Parse("limits.yaml", []byte(text+"      - {match: {tenant: umbra}, blocked: true}\n"), nil)
	if err != nil {
		panic(err)
	}
	limits, err := file.Limits(memory.New(nil))
	if err != nil {
		panic(err)
	}
	lim, err := limits.Policy("api")
	if err != nil {
		panic(err)
	}
	segment := func(name string) weirhttp.Segment { // weirhttp.Header would make it a hash
		return func(r *http.Request) (string, error) { return r.Header.Get(name), nil }
	}
	request := weirhttp.By(segment("X-Tenant"), segment("X-User"))
	limit, err := weirhttp.New(lim, request, &weirhttp.Options{
		Headers: weirhttp.RateLimitDraft11,
		Plan: func(r *http.Request) (weir.Decider, error) {
			req, err := request(r)
			if err != nil {
				return nil, err
			}
			return limits.For(r.Context(), "api", "", req.Key)
		},
	})
	if err != nil {
		panic(err)
	}
	handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, key := range [][2]string{{"acme", "ann"}, {"acme", "bob"}, {"umbra", "cid"}} {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.Header.Set("X-Tenant", key[0])
		r.Header.Set("X-User", key[1])
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 200 "user";r=999;t=3600
	// 200 "user";r=19999;t=3600
	// 429
}

func ExampleDiff() {
	file, err := weirfile.Parse("limits.yaml", []byte(text), nil)
	if err != nil {
		panic(err)
	}
	next, err := weirfile.Parse("limits.yaml", []byte(strings.Replace(text, "limit: 5000", "limit: 7000", 1)), nil)
	if err != nil {
		panic(err)
	}
	for _, change := range weirfile.Diff(file, next) {
		fmt.Println(change)
	}
	// Output: policy "api", plan "pro", rule "user": kept: algorithm: fixed window, limit: 5000, window: 1h becomes algorithm: fixed window, limit: 7000, window: 1h: the count and the end of the current window stay
}
