package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
)

// unavailableError returns the error of a client that could not connect.
func unavailableError(at *target, err error) error {
	return fmt.Errorf("the store at %s cannot be used: %w", at.where(), errors.Join(store.ErrUnavailable, err))
}

// administerRedis sets the functions of s for a server of Redis or Valkey. They use
// go-redis, whatever the client of the store is.
func (s *server) administerRedis(at *target) {
	c := goredisOf(at)
	closeStore := s.close
	s.close = func() { _ = c.Close(); closeStore() }
	s.product = func(ctx context.Context) string {
		info, _ := c.Info(ctx, "server").Result()
		product := productOf(info) + map[kind]string{cluster: ", cluster", sentinel: ", Sentinel"}[at.kind]
		if at.tls != nil {
			product += ", TLS"
		}
		return product
	}
	s.count = func(ctx context.Context) (int64, error) { return c.DBSize(ctx).Result() }
	s.keys = func(ctx context.Context, part string) (map[string]time.Duration, error) {
		var mu sync.Mutex
		found := map[string]time.Duration{}
		err := eachMaster(ctx, c, func(ctx context.Context, node *redis.Client) error {
			some, err := scan(ctx, node, part)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(found, some)
			return err
		})
		return found, err
	}
	s.dropScripts = func(ctx context.Context) error {
		return eachMaster(ctx, c, func(ctx context.Context, node *redis.Client) error { return node.ScriptFlush(ctx).Err() })
	}
}

// eachMaster calls f with a client of every master.
func eachMaster(ctx context.Context, c redis.UniversalClient, f func(context.Context, *redis.Client) error) error {
	if cluster, ok := c.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, f)
	}
	return f(ctx, c.(*redis.Client))
}

// scan returns the keys of a node that contain part, with their TTLs. Each command takes
// the server about 0.1 ms.
func scan(ctx context.Context, node *redis.Client, part string) (map[string]time.Duration, error) {
	found := map[string]time.Duration{}
	for cursor := uint64(0); ; {
		names, next, err := node.Scan(ctx, cursor, "*"+part+"*", 100).Result()
		if err != nil {
			return nil, err
		}
		ttls := make([]*redis.DurationCmd, len(names))
		_, err = node.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, name := range names {
				ttls[i] = p.PTTL(ctx, name)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		for i, name := range names {
			if ttl := ttls[i].Val(); ttl != -2 { // -2: the key has expired since
				found[name] = ttl
			}
		}
		if cursor = next; cursor == 0 {
			return found, nil
		}
	}
}
