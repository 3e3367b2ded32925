package weirfile_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirfile"
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
