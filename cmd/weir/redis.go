package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// mistake says what is wrong with the URL of at if its first server is not what the URL
// says. If err, the error of the store, is a timeout, mistake does not ask the server.
func (at *target) mistake(ctx context.Context, err error) string {
	if at.kind == postgres || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // it is only advice
	defer cancel()
	if _, plain := at.info(ctx, nil); at.TLSConfig != nil && plain {
		return "it does not use TLS: the URL must begin with redis or valkey, without the second s"
	} else if at.TLSConfig == nil && !plain {
		if _, secure := at.info(ctx, &tls.Config{InsecureSkipVerify: true}); secure {
			return "it uses TLS: the URL must begin with rediss or valkeys"
		}
	}
	info, _ := at.info(ctx, at.TLSConfig)
	for _, is := range []struct {
		kind
		mode, url string
	}{{single, "standalone", "redis://HOST:6379"}, {cluster, "cluster", "redis+cluster://HOST:7000"}, {sentinel, "sentinel", "redis+sentinel://HOST:26379?master_name=NAME"}} {
		if is.kind != at.kind && strings.Contains(info, "_mode:"+is.mode) {
			return fmt.Sprintf("it is a %s server: its URL is like %s", is.kind, is.url)
		}
	}
	return ""
}

// info returns what the first server of at says about itself, and whether it answers. It
// sends the password only over the TLS of at.
func (at target) info(ctx context.Context, config *tls.Config) (string, bool) {
	if at.kind == sentinel { // the other user is the master's
		at.Username, at.Password = at.SentinelUsername, at.SentinelPassword
	}
	if config != at.TLSConfig {
		at.TLSConfig, at.Username, at.Password = config, "", ""
	}
	at.IsClusterMode, at.Addrs, at.MasterName, at.DB = false, at.Addrs[:1], "", 0
	c := goredisOf(&at)
	defer func() { _ = c.Close() }()
	info, err := c.Info(ctx, "server").Result()
	return info, err == nil || errors.As(err, new(redis.Error))
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
		if at.TLSConfig != nil {
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
	var names []string
	each := node.Scan(ctx, 0, "*"+part+"*", 100).Iterator()
	for each.Next(ctx) {
		names = append(names, each.Val())
	}
	if err := each.Err(); err != nil {
		return nil, err
	}
	ttls := make([]*redis.DurationCmd, len(names))
	_, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			ttls[i] = p.PTTL(ctx, name)
		}
		return nil
	})
	found := map[string]time.Duration{}
	for i, name := range names {
		if ttl := ttls[i].Val(); ttl != -2 { // -2: the key has expired since
			found[name] = ttl
		}
	}
	return found, err
}
