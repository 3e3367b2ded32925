package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// TestShadow sends the same random requests to a limiter with shadow rules on every store. The
// answers must be those of the memory store. In a cluster, a shadow rule's key is on another
// node.
func TestShadow(t *testing.T) {
	seed := rand.Uint64()
	want := shadowTrace(t, memory.New(nil), seed)
	denials := 0
	for _, res := range want {
		if errors.Is(res.Shadow, weir.ErrDenied) {
			denials++
		}
	}
	if denials < 10 {
		t.Errorf("seed %d: the shadow rules denied %d requests, want more", seed, denials)
	}
	everywhere(t, func(t *testing.T, p place) {
		for i, got := range shadowTrace(t, p.st, seed) {
			if !reflect.DeepEqual(got, want[i]) { // also what a *weir.DeniedError holds
				t.Fatalf("seed %d, answer %d:\ngot    %+v\nmemory %+v", seed, i, got, want[i])
			}
		}
	})
}

func shadowTrace(t *testing.T, st store.Store, seed uint64) []weir.Result {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l, err := weir.NewPolicy(st, weir.Policy{
		Name: "shadow", Segments: []string{"tenant", "user"},
		Rules: []weir.Rule{
			{Name: "user", By: []string{"user"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 9}},
			{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.FixedWindow{Limit: 30, Window: time.Minute}, Shadow: true},
			{Name: "log", Algorithm: algorithm.SlidingLog{Limit: 6, Window: 5 * time.Second}, Shadow: true},
		},
	}, &weir.Options{Prefix: fmt.Sprintf("weirtest-shadow-%x", rand.Uint64()), Clock: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	var results []weir.Result
	for range 60 {
		now = now.Add(time.Duration(r.IntN(1000)) * time.Millisecond)
		q := weir.Request{Key: weir.KeyOf("acme", []string{"ann", "bob"}[r.IntN(2)]), Cost: 1 + r.Int64N(3)}
		res, err := l.Decide(context.Background(), q, nil)
		if res.Shadow != nil && !errors.Is(res.Shadow, weir.ErrDenied) {
			err = res.Shadow
		}
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, res)
	}
	return results
}
