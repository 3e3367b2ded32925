package bench

import (
	"context"
	"fmt"
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

// BenchmarkNATS makes decisions on NATS, beside Redis in the same run. Each caller asks one
// after the other. The callers of impl=…-apart have a store each, as if each were a process of
// its own, and compete for a key.
func BenchmarkNATS(b *testing.B) {
	rdb := connect(b)
	file, memory := weirnats.New(bucket(b, jetstream.FileStorage), "limits"), bucket(b, jetstream.MemoryStorage)
	limiters := func(stores ...store.Store) []*weir.Limiter {
		var list []*weir.Limiter
		for _, st := range stores {
			list = append(list, newLimiter(b, st, policy(weir.Rule{Algorithm: gcra}), nil))
		}
		return list
	}
	pair := newLimiter(b, weirnats.New(memory, "limits"), weir.Policy{Name: benchName, Segments: []string{"all", "user"}, Rules: []weir.Rule{
		{Name: "all", By: []string{"all"}, Algorithm: gcra}, {Name: "user", Algorithm: gcra},
	}}, nil)
	one := weirnats.New(memory, "limits")
	apart := make([]store.Store, 16)
	for i := range apart {
		apart[i] = weirnats.New(memory, "limits")
	}
	for _, r := range []struct {
		name string
		lims []*weir.Limiter
		more []string // segments of the key before the last
	}{
		{"redis", limiters(goredis.New(rdb)), nil},
		{"nats-memory", limiters(one), nil},
		{"nats-file", limiters(file), nil},
		{"nats-coalesce", limiters(store.Coalesce(one)), nil},
		{"nats-apart", limiters(apart...), nil},
		{"nats-two-rules", []*weir.Limiter{pair}, []string{"all"}},
	} {
		for _, keys := range []int{1, remoteKeys} {
			for _, callers := range []int{1, 16} {
				draws := drawKeys(keys)
				b.Run(fmt.Sprintf("impl=%s/keys=%d/callers=%d", r.name, keys, callers), func(b *testing.B) {
					fromCallers(b, callers, func(i int) error {
						res, err := r.lims[i%len(r.lims)].Allow(context.Background(), append(r.more[:len(r.more):len(r.more)], draws.at(i))...)
						if err == nil && !res.Allowed {
							err = fmt.Errorf("a request was denied: %+v", res)
						}
						return err
					})
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
				})
			}
		}
	}
}
