package redigo_test

import (
	"context"
	"log"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"

	"github.com/weir-go/weir/store/redigo"
)

// options limit the time of a decision without a deadline.
var options = []redis.DialOption{
	redis.DialConnectTimeout(time.Second),
	redis.DialReadTimeout(200 * time.Millisecond),
	redis.DialWriteTimeout(200 * time.Millisecond),
}

func newPool(addr string, options ...redis.DialOption) (*redis.Pool, error) {
	return &redis.Pool{
		MaxIdle:     32,
		MaxActive:   128,
		Wait:        true,
		IdleTimeout: time.Minute,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", addr, options...)
		},
	}, nil
}

// This pool has one server. If all MaxActive connections are in use, callers wait until
// their contexts end.
func ExampleNew() {
	pool, err := newPool("localhost:6379", options...)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	st := redigo.New(pool)
	if err := st.Check(); err != nil { // weir.New calls it too
		log.Fatal(err)
	}
}

func ExampleNewCluster() {
	cluster := &redisc.Cluster{
		StartupNodes: []string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"},
		DialOptions:  options,
		CreatePool:   newPool,
		PoolWaitTime: 200 * time.Millisecond,
	}
	defer cluster.Close()
	if err := cluster.Refresh(); err != nil {
		log.Print(err) // the store tries again
	}

	_ = redigo.NewCluster(cluster)
}
