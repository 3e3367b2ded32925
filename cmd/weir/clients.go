package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	redigoclient "github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"
	goredisclient "github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"
	valkeyclient "github.com/valkey-io/valkey-go"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
	"github.com/weir-go/weir/store/redigo"
	"github.com/weir-go/weir/store/rueidis"
	"github.com/weir-go/weir/store/valkey"
)

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func init() { goredisclient.SetLogger(silent{}) } // it logs each failed dial

// goredisOf returns a client of go-redis.
func goredisOf(at *target) goredisclient.UniversalClient {
	o := at.UniversalOptions
	o.DialTimeout, o.DialerRetries, o.ContextTimeoutEnabled = callTime, 1, true
	return goredisclient.NewUniversalClient(&o)
}

func openGoredis(_ context.Context, at *target) (store.Store, func(), error) {
	c := goredisOf(at)
	return goredis.New(c), sync.OnceFunc(func() { _ = c.Close() }), nil
}

func openRueidis(_ context.Context, at *target) (store.Store, func(), error) {
	dialer := net.Dialer{Timeout: callTime}
	options := rueidisclient.ClientOption{
		InitAddress: at.Addrs, TLSConfig: at.TLSConfig, Username: at.Username, Password: at.Password, SelectDB: at.DB, Dialer: dialer,
		ForceSingleClient: at.kind == single,
		DisableCache:      true,
		DialCtxFn:         rueidis.Dial,
	}
	if at.kind == sentinel {
		options.Sentinel = rueidisclient.SentinelOption{
			MasterSet: at.MasterName, TLSConfig: at.TLSConfig, Username: at.SentinelUsername, Password: at.SentinelPassword, Dialer: dialer,
		}
	}
	c, err := rueidisclient.NewClient(options)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return rueidis.New(c), sync.OnceFunc(c.Close), nil
}

func openValkey(_ context.Context, at *target) (store.Store, func(), error) {
	dialer := net.Dialer{Timeout: callTime}
	options := valkeyclient.ClientOption{
		InitAddress: at.Addrs, TLSConfig: at.TLSConfig, Username: at.Username, Password: at.Password, SelectDB: at.DB, Dialer: dialer,
		ForceSingleClient: at.kind == single,
		DisableCache:      true,
		DialCtxFn:         valkey.Dial,
	}
	if at.kind == sentinel {
		options.Sentinel = valkeyclient.SentinelOption{
			MasterSet: at.MasterName, TLSConfig: at.TLSConfig, Username: at.SentinelUsername, Password: at.SentinelPassword, Dialer: dialer,
		}
	}
	c, err := valkeyclient.NewClient(options)
	if err != nil {
		if c != nil {
			c.Close()
		}
		return nil, nil, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return valkey.New(c), sync.OnceFunc(c.Close), nil
}

func openRedigo(_ context.Context, at *target) (store.Store, func(), error) {
	options := []redigoclient.DialOption{
		redigoclient.DialUseTLS(at.TLSConfig != nil),
		redigoclient.DialTLSConfig(at.TLSConfig),
		redigoclient.DialUsername(at.Username),
		redigoclient.DialPassword(at.Password),
		redigoclient.DialDatabase(at.DB),
		redigoclient.DialConnectTimeout(callTime),
		redigoclient.DialReadTimeout(time.Minute), // a script of the suite can be slow
	}
	pool := func(addr string, options ...redigoclient.DialOption) (*redigoclient.Pool, error) {
		return &redigoclient.Pool{
			MaxIdle: 10,
			DialContext: func(ctx context.Context) (redigoclient.Conn, error) {
				return redigoclient.DialContext(ctx, "tcp", addr, options...)
			},
		}, nil
	}
	if at.kind == cluster {
		c := &redisc.Cluster{StartupNodes: at.Addrs, DialOptions: options, CreatePool: pool}
		return redigo.NewCluster(c), sync.OnceFunc(func() { _ = c.Close() }), nil
	}
	p, _ := pool(at.Addrs[0], options...)
	return redigo.New(p), sync.OnceFunc(func() { _ = p.Close() }), nil
}
