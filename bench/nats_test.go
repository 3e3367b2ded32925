package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
	weirnats "github.com/weir-go/weir/store/nats"
)

// bucket starts a NATS server in this process, with a bucket in a file or in memory.
func bucket(tb testing.TB, storage jetstream.StorageType) jetstream.JetStream {
	tb.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: tb.TempDir(), NoLog: true, NoSigs: true})
	if err != nil {
		tb.Fatal(err)
	}
	s.Start()
	tb.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		tb.Fatal("the NATS server does not listen")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	config := weirnats.StreamConfig("limits")
	config.Storage = storage
	if _, err := js.CreateStream(tb.Context(), config); err != nil {
		tb.Fatal(err)
	}
	return js
}

// BenchmarkNATS makes decisions on NATS, beside Redis in the same run. The callers of impl=…-apart
// have a store each, as if each were a process of its own, and compete for a key.
func BenchmarkNATS(b *testing.B) {
	memory := bucket(b, jetstream.MemoryStorage)
	one := func() store.Store { return weirnats.New(memory, "limits") }
	pair := newLimiter(b, one(), weir.Policy{Name: benchName, Segments: []string{"all", "user"}, Rules: []weir.Rule{
		{Name: "all", By: []string{"all"}, Algorithm: gcra}, {Name: "user", Algorithm: gcra},
	}}, nil)
	var turn atomic.Int64
	var apart [16]func(context.Context, string) error
	for i := range apart {
		apart[i] = decides(b, one(), true, gcra, "one")
	}
	benchRows(b, []row{
		{name: "redis", ask: decides(b, goredis.New(connect(b)), true, gcra, "one")},
		{name: "nats-memory", ask: decides(b, one(), true, gcra, "one")},
		{name: "nats-file", ask: decides(b, weirnats.New(bucket(b, jetstream.FileStorage), "limits"), true, gcra, "one")},
		{name: "nats-coalesce", ask: decides(b, store.Coalesce(one()), true, gcra, "one")},
		{name: "nats-apart", ask: func(ctx context.Context, key string) error {
			return apart[turn.Add(1)%int64(len(apart))](ctx, key)
		}},
		{name: "nats-two-rules", ask: func(ctx context.Context, key string) error {
			res, err := pair.Allow(ctx, "all", key)
			if err == nil && !res.Allowed {
				err = fmt.Errorf("a request was denied: %+v", res)
			}
			return err
		}},
	}, []load{{1, 1}, {16, 1}, {1, remoteKeys}, {16, remoteKeys}}, plainly)
}
