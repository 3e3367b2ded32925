package explain_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/explain"
	"github.com/weir-go/weir/store/memory"
)

// api returns a limiter, whose clock stands still, after a few requests.
func api() *weir.Limiter {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	lim, err := weir.NewPolicy(memory.New(&memory.Options{Now: func() time.Time { return now }}), weir.Policy{
		Name:     "api",
		Segments: []string{"tenant", "user"},
		Rules: []weir.Rule{
			{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.TokenBucket{Capacity: 200, Refill: algorithm.PerSecond(100)}},
			{Name: "user", Algorithm: algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}},
		},
	}, nil)
	if err != nil {
		panic(err)
	}
	for user, n := range map[string]int{"ann": 25, "bob": 5} {
		for range n {
			if _, err := lim.Allow(context.Background(), "acme", user); err != nil {
				panic(err)
			}
		}
	}
	return lim
}

func ExampleExplain() {
	doc, err := explain.Explain(context.Background(), api(), "acme", "ann")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(doc.Why)
	for _, r := range doc.Rules {
		fmt.Printf("%-6s %s: %s\n", r.Name, r.Words, r.State)
	}
	// Output:
	// denied by rule "user": 0 of 20 tokens left; full again in 2 s; the next request is allowed in 100 ms
	// tenant a bucket of 200 tokens, refilled at 100 tokens per second: 175 of 200 tokens left; full again in 250 ms
	// user   a bucket of 20 tokens, refilled at 10 tokens per second: 0 of 20 tokens left; full again in 2 s; the next request is allowed in 100 ms
}

func ExampleTop() {
	top, err := explain.Top(context.Background(), api(), 10, &explain.ListOptions{Rule: "user", Segments: []string{"acme"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range top.Callers {
		fmt.Printf("%s/%s: %s\n", c.Segments[0].Value, c.Segments[1].Value, c.State)
	}
	// Output:
	// acme/ann: 0 of 20 tokens left; full again in 2 s; the next request is allowed in 100 ms
	// acme/bob: 15 of 20 tokens left; full again in 500 ms
}

func ExampleDocument() {
	doc, err := explain.Explain(context.Background(), api(), "acme", "bob")
	if err != nil {
		fmt.Println(err)
		return
	}
	doc.Rules = doc.Rules[1:] // one is enough here
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	_ = out.Encode(doc)
	// Output:
	// {
	//   "policy": "api",
	//   "key": [
	//     {
	//       "name": "tenant",
	//       "value": "acme"
	//     },
	//     {
	//       "name": "user",
	//       "value": "bob"
	//     }
	//   ],
	//   "slot": 11304,
	//   "allowed": true,
	//   "retry_after": 0,
	//   "why": "allowed; the rule with the fewest tokens is \"user\": 15 of 20 tokens left; full again in 500 ms",
	//   "rules": [
	//     {
	//       "name": "user",
	//       "by": [
	//         "tenant",
	//         "user"
	//       ],
	//       "algorithm": "tokenbucket",
	//       "words": "a bucket of 20 tokens, refilled at 10 tokens per second",
	//       "cost": 1,
	//       "keys": [
	//         "weir:api:{acme}:user.t2:bob"
	//       ],
	//       "slot": 11304,
	//       "limit": 20,
	//       "window": 2,
	//       "used": 5,
	//       "remaining": 15,
	//       "allowed": true,
	//       "retry_after": 0,
	//       "reset_after": 0.5,
	//       "state": "15 of 20 tokens left; full again in 500 ms"
	//     }
	//   ]
	// }
}
