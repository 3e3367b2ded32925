package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
)

// TestACL checks that a user can do everything with the ACL line in docs/reference/stores.md and
// the words for the client's own commands, and that each word of the line is needed.
func TestACL(t *testing.T) {
	docs, err := os.ReadFile("../../docs/reference/stores.md")
	if err != nil {
		t.Fatal(err)
	}
	if line := "ACL SETUSER limiter on >PASSWORD ~weir:* " + servers.ACL + "\n"; !strings.Contains(string(docs), line) {
		t.Errorf("docs/reference/stores.md has no line %q", line)
	}
	// The oldest and the newest server, one of each kind, and one with a user of its own.
	some := []string{"redis-6.0", "redis-cluster-8.0", "sentinel-8.0", "tls-8.0", "valkey-9.1"}
	var alone sync.Map // by server: its log of denied commands is short
	for _, a := range adapters {
		for _, server := range servers.All() {
			if !slices.Contains(some, server.Name) {
				continue
			}
			t.Run(a.name+"/"+server.Name, func(t *testing.T) {
				t.Parallel()
				if reason := a.lacks[server.Kind]; reason != "" {
					t.Skip(reason)
				}
				server.Start(t)
				mu, _ := alone.LoadOrStore(server, new(sync.Mutex))
				mu.(*sync.Mutex).Lock()
				defer mu.(*sync.Mutex).Unlock()
				words := strings.Fields("~weirtest-* " + servers.ACL)
				if own := a.words[server.Kind]; own != "" {
					words = append(words, own) // as one word, because a client's versions differ in what they send
				}
				if err := everything(t, a, server, words); err != nil {
					t.Fatalf("with %q: %v", words, err)
				}
				if server.Name != "redis-cluster-8.0" && server.Name != "tls-8.0" {
					return // a run for each word takes long
				}
				for i, word := range words {
					err := everything(t, a, server, slices.Delete(slices.Clone(words), i, i+1))
					if !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, errDenied) {
						t.Errorf("without %q: got %v, want %v or %v", word, err, store.ErrUnavailable, errDenied)
					}
				}
			})
		}
	}
}

// errDenied means that the ACL denied a command of the client itself. The client may
// work without it.
var errDenied = errors.New("denied by the ACL")

// everything calls all that limiters can do, as a user with the words.
func everything(t *testing.T, a adapter, server *servers.Server, words []string) error {
	flushScripts(t, servers.Client(t, server.Admin())) // so that EVAL is needed too
	e := server.Grant(t, strings.Join(words, " "))
	st, closeClient, err := a.open(e)
	if err != nil {
		return fmt.Errorf("%w: %w", errDenied, err)
	}
	t.Cleanup(closeClient)
	ctx := t.Context()

	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	virtual := func() time.Time { return clock }
	prefix := fmt.Sprintf("weirtest-acl-%d", time.Now().UnixNano())
	for i, a := range []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 100},
		algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 100},
		algorithm.FixedWindow{Limit: 100, Window: time.Second},
		algorithm.SlidingCounter{Limit: 100, Window: time.Second},
		algorithm.TokenBucket{Capacity: 100, Refill: algorithm.PerSecond(100)},
		algorithm.MetadataWindow{Limit: 100, Window: time.Second},
		algorithm.SlidingBuckets{Width: 100 * time.Millisecond, Spans: []algorithm.Span{{Limit: 100, Window: time.Second}}},
		algorithm.SlidingLog{Limit: 100, Window: time.Second},
	} {
		for _, now := range []func() time.Time{nil, virtual} {
			lim, err := weir.New(fmt.Sprint(i, now == nil), st, a, &weir.Options{Prefix: prefix, Clock: now})
			if err != nil {
				return err
			}
			if err := use(ctx, lim, &clock); err != nil {
				return err
			}
		}
	}
	lim, err := weir.New("leases", st, algorithm.Concurrency{Limit: 3, Lease: time.Second}, &weir.Options{Prefix: prefix, Clock: virtual})
	if err != nil {
		return err
	}
	if err := useLeases(ctx, lim, &clock); err != nil {
		return err
	}
	for _, node := range server.Nodes {
		log, err := servers.Client(t, node.Endpoint()).(*redis.Client).Do(ctx, "ACL", "LOG", 100).Slice()
		if err != nil {
			return err
		}
		for _, entry := range log {
			fields, ok := entry.(map[any]any)
			if !ok {
				return fmt.Errorf("ACL LOG: got a %T", entry)
			}
			// Clients work without telling their names and versions. An error is an
			// answer to a ping too.
			what := fields["object"]
			if fields["username"] == e.User && what != "client|setinfo" && what != "client" && what != "ping" {
				return fmt.Errorf("%w: %v", errDenied, what)
			}
		}
	}
	return nil
}

// useLeases acquires leases in each way in which that can go.
func useLeases(ctx context.Context, lim *weir.Limiter, clock *time.Time) error {
	for i, id := range []string{"a", "b", "b", "c", "denied", "d", "e"} {
		*clock = clock.Add([]time.Duration{0, 600, 0, 0, 0, 600, 60_000}[i] * time.Millisecond) // before e, all expire
		if _, err := lim.Decide(ctx, weir.Request{Key: weir.KeyOf("key"), ID: id}, nil); err != nil {
			return err
		}
	}
	for _, op := range []weir.Op{weir.Renew, weir.Release} {
		if res, err := lim.Decide(ctx, weir.Request{Key: weir.KeyOf("key"), Op: op, ID: "e"}, nil); err != nil || !res.Allowed {
			return fmt.Errorf("%v: got %+v, %w", op, res, err)
		}
	}
	return nil
}

// use calls every verb of the limiter in each way in which it can go.
func use(ctx context.Context, lim *weir.Limiter, clock *time.Time) error {
	for _, step := range []struct {
		cost  int64
		after time.Duration
	}{
		{60, 0},
		{30, 600 * time.Millisecond},
		{60, 0},                      // denied
		{60, 600 * time.Millisecond}, // some entries of a sliding log have expired
		{1, time.Minute},             // all have expired
	} {
		*clock = clock.Add(step.after)
		if _, err := lim.AllowN(ctx, step.cost, "key"); err != nil {
			return err
		}
	}
	if _, err := lim.Peek(ctx, "key"); err != nil {
		return err
	}
	if _, err := lim.TakeUpTo(ctx, 3, "key"); err != nil {
		return err
	}
	peeks := []weir.Request{{Key: weir.KeyOf("key"), Op: weir.Peek}, {Key: weir.KeyOf("other"), Op: weir.Peek}}
	for _, answer := range lim.DoMany(ctx, peeks) {
		if answer.Err != nil {
			return answer.Err
		}
	}
	if _, err := lim.Entries(ctx, "key"); err != nil && !errors.Is(err, weir.ErrUnsupported) {
		return err
	}
	if err := useRefunds(ctx, lim); err != nil {
		return err
	}
	return lim.Reset(ctx, "key")
}

// useRefunds refunds some tokens of a key, and then all of another key.
func useRefunds(ctx context.Context, lim *weir.Limiter) error {
	for i, key := range []string{"key", "refunded"} {
		r := weir.Request{Key: weir.KeyOf(key), ID: fmt.Sprint("id", i)}
		switch res, err := lim.Decide(ctx, r, nil); {
		case errors.Is(err, weir.ErrUnsupported):
			return nil // by the algorithm
		case err != nil || !res.Allowed:
			return fmt.Errorf("with an ID: got %+v, %w", res, err)
		}
		if _, err := lim.Refund(ctx, r); err != nil { // on the server's clock, the tokens may be back already
			return fmt.Errorf("refund: %w", err)
		}
	}
	return nil
}
