package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/conformance/internal/golden"
	"github.com/weir-go/weir/store"
)

// TestGolden replays the golden vectors on a server, over every adapter: the calls, the
// replies, the answers and what the keys hold must be those of the files. With -update, it
// first writes the files. conformance/reports/golden-vectors.md describes them.
func TestGolden(t *testing.T) {
	servers.Need(t)
	const dir = "../testdata"
	files, err := golden.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		server, rdb := adapters[0].single(t)
		st := adapters[0].store(t, server.Endpoint)
		for i, f := range files {
			got, err := f.OnMemory(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got.TakeReplies(recordOnServer(t, f, st, rdb))
			if err := got.Write(dir); err != nil {
				t.Fatal(err)
			}
			files[i] = got
		}
	}
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			server, rdb := a.single(t)
			st := a.store(t, server.Endpoint)
			for _, want := range files {
				start := time.Now()
				got := recordOnServer(t, want, st, rdb)
				got.TakeTTLs(want, time.Since(start)+2*time.Millisecond)
				if diff := got.Differ(want); diff != "" {
					t.Errorf("%s: %s", want.Name, diff)
				}
			}
		})
	}
}

// recordOnServer records the history of f on a server.
func recordOnServer(t *testing.T, f *golden.File, st store.Store, rdb *redis.Client) *golden.File {
	t.Helper()
	got, err := f.Record(t.Context(), st, func(keys []string) (map[string]golden.Content, error) {
		found := map[string]golden.Content{}
		for _, key := range keys {
			c, err := content(t.Context(), rdb, key)
			if err != nil {
				return nil, err
			}
			if c != nil {
				found[key] = *c
			}
		}
		return found, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// content returns what a key holds, or nil if it does not exist.
func content(ctx context.Context, rdb *redis.Client, key string) (*golden.Content, error) {
	kind, err := rdb.Type(ctx, key).Result()
	if err != nil || kind == "none" {
		return nil, err
	}
	ttl, err := rdb.PTTL(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	c := &golden.Content{TTL: ttl.Milliseconds()}
	switch kind {
	case "string":
		c.Text, err = rdb.Get(ctx, key).Result()
	case "list":
		c.List, err = rdb.LRange(ctx, key, 0, -1).Result()
	case "zset":
		var members []redis.Z
		members, err = rdb.ZRangeWithScores(ctx, key, 0, -1).Result()
		for _, m := range members {
			c.Set = append(c.Set, golden.Member{Text: m.Member.(string), Score: int64(m.Score)})
		}
	default:
		err = fmt.Errorf("%s is a %s", key, kind)
	}
	return c, err
}
