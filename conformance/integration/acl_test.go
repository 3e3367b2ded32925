package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
)

// TestACL shows that a user can do everything with the line in docs/stores.md
// and what an adapter's client asks for, and that each word of the line is
// needed.
func TestACL(t *testing.T) {
	docs, err := os.ReadFile("../../docs/stores.md")
	if err != nil {
		t.Fatal(err)
	}
	if line := "ACL SETUSER limiter on >PASSWORD ~weir:* " + servers.ACL + "\n"; !strings.Contains(string(docs), line) {
		t.Errorf("docs/stores.md has no line %q", line)
	}
	for _, a := range adapters {
		for _, server := range servers.All() {
			t.Run(a.name+"/"+server.Name, func(t *testing.T) {
				if reason := a.lacks[server.Kind]; reason != "" {
					t.Skip(reason)
				}
				server.Start(t)
				if len(server.Nodes) == 0 {
					t.Skip("an external server's users are left alone")
				}
				words := strings.Fields("~weirtest-* " + servers.ACL)
				if own := a.words[server.Kind]; own != "" {
					words = append(words, own) // as one, since a client's versions differ in what they ask for
				}
				if err := everything(t, a, server, words); err != nil {
					t.Fatalf("with %q: %v", words, err)
				}
				if server.Name != "redis-cluster-8.0" && server.Name != "tls-8.0" {
					return // once for each word takes its time
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

// errDenied says that the client asked for more, and came into being without it
// or not at all.
var errDenied = errors.New("denied by the ACL")

// everything lets a user with the words do all that limiters can.
func everything(t *testing.T, a adapter, server *servers.Server, words []string) error {
	flushScripts(t, servers.Client(t, server.Admin())) // so that EVAL is needed too
	e := server.Grant(t, strings.Join(words, " "))
	st, closeClient, err := a.open(e)
	if err != nil {
		return fmt.Errorf("%w: %w", errDenied, err)
	}
	t.Cleanup(closeClient)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	virtual := func() time.Time { return clock }
	prefix := fmt.Sprintf("weirtest-acl-%d", time.Now().UnixNano())
	for i, rule := range []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 100},
		algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 100},
		algorithm.FixedWindow{Limit: 100, Window: time.Second},
		algorithm.MetadataWindow{Limit: 100, Window: time.Second},
		algorithm.SlidingBuckets{Width: 100 * time.Millisecond, Spans: []algorithm.Span{{Limit: 100, Window: time.Second}}},
		algorithm.SlidingLog{Limit: 100, Window: time.Second},
	} {
		for _, now := range []func() time.Time{nil, virtual} {
			opts := &weir.Options{Prefix: fmt.Sprint(prefix, i, now == nil), Clock: now}
			lim, err := weir.NewRules(st, []weir.Rule{{Name: "r", Algorithm: rule}}, opts)
			if err != nil {
				return err
			}
			if err := use(ctx, lim, &clock); err != nil {
				return err
			}
		}
	}
	lim, err := weir.NewRules(st, []weir.Rule{{Name: "r", Algorithm: algorithm.Concurrency{Limit: 3, Lease: time.Second}}}, &weir.Options{Prefix: prefix, Clock: virtual})
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
			// Its name and version a client is glad to tell, and does without; to
			// a ping, a refusal is an answer.
			what := fields["object"]
			if fields["username"] == e.User && what != "client|setinfo" && what != "client" && what != "ping" {
				return fmt.Errorf("%w: %v", errDenied, what)
			}
		}
	}
	return nil
}

// useLeases holds leases in each way in which that can go.
func useLeases(ctx context.Context, lim *weir.Limiter, clock *time.Time) error {
	for i, name := range []string{"a", "b", "b", "c", "denied", "d", "e"} {
		*clock = clock.Add([]time.Duration{0, 600, 0, 0, 0, 600, 60_000}[i] * time.Millisecond) // at last all are over
		if _, err := lim.Do(ctx, weir.Request{Path: []string{"path"}, Cost: 1, Lease: name}); err != nil {
			return err
		}
	}
	if _, err := lim.Renew(ctx, "e", "path"); err != nil {
		return err
	}
	_, err := lim.Release(ctx, "e", "path")
	return err
}

// use calls every verb of the limiter, once for each way in which it can go.
func use(ctx context.Context, lim *weir.Limiter, clock *time.Time) error {
	for _, step := range []struct {
		cost  int64
		after time.Duration
	}{
		{60, 0},
		{30, 600 * time.Millisecond},
		{60, 0},                      // denied
		{60, 600 * time.Millisecond}, // some of a log's entries are dead
		{1, time.Minute},             // all of them are
	} {
		*clock = clock.Add(step.after)
		if _, err := lim.AllowN(ctx, step.cost, "path"); err != nil {
			return err
		}
	}
	if _, err := lim.Peek(ctx, "path"); err != nil {
		return err
	}
	if _, err := lim.PeekMany(ctx, [][]string{{"path"}, {"other"}}); err != nil {
		return err
	}
	if _, err := lim.Entries(ctx, "", "path"); err != nil && !errors.Is(err, weir.ErrUnsupported) {
		return err
	}
	return lim.Reset(ctx, "path")
}
