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

// goldenDir has the golden vectors. docs/reference/golden-vectors.md describes them.
const goldenDir = "../testdata"

// TestGolden replays the golden vectors on a server, over every adapter: the calls, the
// replies, the answers and what the keys hold must be those of the files. With -update, it
// first writes the files.
func TestGolden(t *testing.T) {
	servers.Need(t)
	names, err := golden.Names(goldenDir)
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	if *update {
		server, rdb := adapters[0].single(t)
		st := adapters[0].store(t, server.Endpoint)
		for _, name := range names {
			_, h := readGolden(t, name)
			f, err := golden.OnMemory(t.Context(), h)
			if err != nil {
				t.Fatal(err)
			}
			f.TakeReplies(recordOnServer(t, h, st, rdb))
			if err := f.Write(goldenDir); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			server, rdb := a.single(t)
			st := a.store(t, server.Endpoint)
			for _, name := range names {
				want, h := readGolden(t, name)
				start := time.Now()
				got := recordOnServer(t, h, st, rdb)
				got.TakeTTLs(want, time.Since(start)+2*time.Millisecond)
				if diff := got.Differ(want); diff != "" {
					t.Errorf("%s: %s", h.Name, diff)
				}
			}
		})
	}
}

// readGolden reads the file of that name, and its history.
func readGolden(t *testing.T, name string) (*golden.File, golden.History) {
	t.Helper()
	f, err := golden.Read(goldenDir, name)
	if err != nil {
		t.Fatal(err)
	}
	h, err := f.History()
	if err != nil {
		t.Fatal(err)
	}
	return f, h
}

// recordOnServer records h on a server.
func recordOnServer(t *testing.T, h golden.History, st store.Store, rdb *redis.Client) *golden.File {
	t.Helper()
	f, err := golden.Record(t.Context(), h, st, func(keys []string) (map[string]golden.Content, error) {
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
	return f
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
