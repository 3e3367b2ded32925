package integration

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
)

// text is the value of a key in words.
func text(h store.Content) string {
	switch h.Kind {
	case store.Numbers:
		return h.Nums.String()
	case store.Set:
		return fmt.Sprint(h.Members)
	}
	return "missing"
}

// onServer is the value and the TTL of a key on a server.
func onServer(ctx context.Context, rdb *redis.Client, key string) string {
	ttl := max(rdb.PTTL(ctx, key).Val(), 0)
	if value, err := rdb.Get(ctx, key).Result(); err == nil {
		return fmt.Sprint(value, ttl)
	}
	var h store.Content
	for _, z := range rdb.ZRangeWithScores(ctx, key, 0, -1).Val() {
		h.Kind, h.Members = store.Set, append(h.Members, store.Member{Score: int64(z.Score), Text: z.Member.(string)})
	}
	return fmt.Sprint(text(h), ttl)
}
