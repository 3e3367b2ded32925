package goredis_test

import (
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store/goredis"
)

// This client has one server. The timeouts limit the time of a decision. Without retries,
// a decision consumes tokens at most once.
func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{
		Addr:                  "localhost:6379",
		MaxRetries:            -1,
		DialTimeout:           time.Second,
		ReadTimeout:           200 * time.Millisecond,
		ContextTimeoutEnabled: true,
		// DialerRetries: 1, // from go-redis v9.15 on: without it, a dead server looks
		// slow
	})
	defer rdb.Close()

	st := goredis.New(rdb)
	if err := st.Check(); err != nil { // weir.New calls it too
		log.Fatal(err)
	}
}

func ExampleNew_cluster() {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                 []string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"},
		ContextTimeoutEnabled: true,
		// DialerRetries: 1, // from go-redis v9.15 on: without it, a dead server looks
		// slow
	})
	defer rdb.Close()

	_ = goredis.New(rdb)
}

func ExampleNew_sentinel() {
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:            "mymaster",
		SentinelAddrs:         []string{"10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"},
		MaxRetries:            -1,
		ContextTimeoutEnabled: true,
		// DialerRetries: 1, // from go-redis v9.15 on: without it, a dead server looks
		// slow
	})
	defer rdb.Close()

	_ = goredis.New(rdb)
}
