package nats_test

import (
	"context"
	"fmt"
	"log"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	weirnats "github.com/weir-go/weir/store/nats"
)

// This program limits requests to 10 per second. Its bucket has three replicas.
func Example() {
	ctx := context.Background()
	nc, err := nats.Connect("nats://localhost:4222", nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	bucket := weirnats.StreamConfig("limits")
	bucket.Replicas = 3
	if _, err := js.CreateOrUpdateStream(ctx, bucket); err != nil {
		log.Fatal(err)
	}

	lim, err := weir.New("api", weirnats.New(js, "limits"), algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}, nil)
	if err != nil {
		log.Fatal(err)
	}
	res, err := lim.Allow(ctx, "ann")
	fmt.Println(res.Allowed, res.Remaining, err)
}
