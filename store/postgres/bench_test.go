package postgres_test

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/postgres"
)

// limiter returns a limiter of so many rules that allow every request.
func limiter(b *testing.B, rules int, a algorithm.Algorithm) *weir.Limiter {
	b.Helper()
	pool := open(b)
	p := weir.Policy{Name: "bench" + strconv.FormatInt(time.Now().UnixNano(), 36)}
	for i := range rules {
		p.Rules = append(p.Rules, weir.Rule{Name: "r" + strconv.Itoa(i), Algorithm: a})
	}
	lim, err := weir.NewPolicy(postgres.New(pool), p, nil)
	if err != nil {
		b.Fatal(err)
	}
	return lim
}

// plenty allows every request of a benchmark.
var plenty = algorithm.GCRA{Rate: algorithm.PerSecond(1_000_000), Burst: 1_000_000}

// BenchmarkFloor measures two round trips that do nothing, the least that a decision takes.
func BenchmarkFloor(b *testing.B) {
	conn, err := open(b).Acquire(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Release()
	for b.Loop() {
		for range 2 {
			if _, err := conn.Exec(b.Context(), "SELECT 1"); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}

// BenchmarkAllow measures allowed decisions. The goroutines share one key, or have 1,000 keys.
func BenchmarkAllow(b *testing.B) {
	for _, rules := range []int{1, 4} {
		for _, goroutines := range []int{1, 16} {
			for _, keys := range []int{1, 1000} {
				b.Run(fmt.Sprintf("rules=%d/goroutines=%d/keys=%d", rules, goroutines, keys), func(b *testing.B) {
					lim := limiter(b, rules, plenty)
					var n atomic.Int64
					before := wal(b)
					b.SetParallelism(goroutines) // with GOMAXPROCS=1, the number of goroutines
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							if _, err := lim.Allow(b.Context(), strconv.FormatInt(n.Add(1)%int64(keys), 10)); err != nil {
								b.Error(err)
							}
						}
					})
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
					b.ReportMetric(float64(wal(b)-before)/float64(b.N), "WAL-B/op")
				})
			}
		}
	}
}

// BenchmarkDenied measures denied decisions.
func BenchmarkDenied(b *testing.B) {
	lim := limiter(b, 1, algorithm.FixedWindow{Limit: 1, Window: time.Hour})
	if _, err := lim.Allow(b.Context(), "ann"); err != nil {
		b.Fatal(err)
	}
	before := wal(b)
	for b.Loop() {
		if res, err := lim.Allow(b.Context(), "ann"); err != nil || res.Allowed {
			b.Fatal(res, err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
	b.ReportMetric(float64(wal(b)-before)/float64(b.N), "WAL-B/op")
}

// BenchmarkMany measures the decisions of DoMany, 100 at a time.
func BenchmarkMany(b *testing.B) {
	for _, keys := range []int{1, 100} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			lim := limiter(b, 1, plenty)
			requests := make([]weir.Request, 100)
			for i := range requests {
				requests[i].Key = weir.KeyOf(strconv.Itoa(i % keys))
			}
			for b.Loop() {
				for _, answer := range lim.DoMany(b.Context(), requests) {
					if answer.Err != nil {
						b.Fatal(answer.Err)
					}
				}
			}
			b.ReportMetric(float64(b.N*len(requests))/b.Elapsed().Seconds(), "decisions/s")
		})
	}
}

// BenchmarkSlidingLog measures how the cost of a sorted set grows with its members. Each
// decision adds one, so use a small -benchtime, for example 100x.
func BenchmarkSlidingLog(b *testing.B) {
	for _, members := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			lim := limiter(b, 1, algorithm.SlidingLog{Limit: 100_000, Window: time.Hour})
			requests := make([]weir.Request, members)
			for i := range requests {
				requests[i].Key = weir.KeyOf("ann")
			}
			for _, answer := range lim.DoMany(b.Context(), requests) {
				if answer.Err != nil {
					b.Fatal(answer.Err)
				}
			}
			before := wal(b)
			for b.Loop() {
				if _, err := lim.Allow(b.Context(), "ann"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
			b.ReportMetric(float64(wal(b)-before)/float64(b.N), "WAL-B/op")
		})
	}
}

// wal returns the number of bytes that the server has written to its log.
func wal(t testing.TB) (bytes int64) {
	t.Helper()
	pool := open(t)
	if err := pool.QueryRow(t.Context(), "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&bytes); err != nil {
		t.Fatal(err)
	}
	return bytes
}
