package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/bench/internal/server"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/postgres"
)

// ownPostgres is the server that this process starts if WEIR_POSTGRES_URL is not set.
var ownPostgres *server.Server

var startPostgres = sync.OnceValue(func() (err error) {
	if ownPostgres, err = server.StartPostgres(); err == nil {
		kept = append(kept, ownPostgres)
	}
	return err
})

// pool returns a pool of 16 connections to the PostgreSQL server that WEIR_POSTGRES_URL names,
// or to a server that is started for this run, with an empty table. Like connect, it skips or
// fails tb if neither is there.
func pool(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	url, kind := os.Getenv("WEIR_POSTGRES_URL"), "that was running"
	if url == "" {
		check(tb, startPostgres())
		url, kind = ownPostgres.URL(), ownPostgres.Kind
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	config.MaxConns, config.AfterConnect = 16, postgres.Prepare
	ctx := context.Background()
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	if err := postgres.Migrate(ctx, pool); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if _, err := pool.Exec(ctx, `DELETE FROM weir WHERE key LIKE 'weir:`+benchName+`:%'`); err != nil {
			tb.Errorf("deleting the keys: %v", err)
		}
	})
	var version string
	if err := pool.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		tb.Fatal(err)
	}
	sayPostgres.Do(func() { note("postgres: PostgreSQL %s %s", version, kind) })
	return pool
}

var sayPostgres sync.Once

func rows(tb testing.TB, pool *pgxpool.Pool) []row {
	tb.Helper()
	plain := postgres.New(pool)
	together := store.Coalesce(plain)
	once := algorithm.FixedWindow{Limit: 1, Window: 24 * time.Hour}
	use, denied := decides(tb, plain, true, once, "denied"), decides(tb, plain, false, once, "denied")
	if err := use(context.Background(), "0"); err != nil {
		tb.Fatal(err)
	}
	return []row{
		{name: "floor", ask: func(ctx context.Context, _ string) error { return emptyTrips(ctx, pool) }},
		{name: "weir-gcra", ask: decides(tb, plain, true, gcra, "one")},
		{name: "weir-coalesce", ask: decides(tb, together, true, gcra, "one")},
		{name: "weir-four", ask: decides(tb, plain, true, gcra, "a", "b", "c", "d")},
		{name: "weir-denied", ask: func(ctx context.Context, _ string) error { return denied(ctx, "0") }},
	}
}

// emptyTrips makes two round trips that do nothing, as many as a decision takes.
func emptyTrips(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	for range 2 {
		var b pgx.Batch
		b.Queue("SELECT 1")
		if err := conn.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkPostgres makes decisions on a PostgreSQL server. Each caller asks one after the
// other. The floor is two round trips that do nothing.
func BenchmarkPostgres(b *testing.B) {
	pool := pool(b)
	all := rows(b, pool)
	for _, r := range all { // makes the keys known
		each(b, someKeys(remoteKeys), func(key string) error { return r.ask(b.Context(), key) })
	}
	benchRows(b, all, []load{{1, remoteKeys}, {16, remoteKeys}, {1, 1}, {16, 1}}, func(b *testing.B, ask func()) {
		before := wal(b, pool)
		ask()
		b.ReportMetric(float64(wal(b, pool)-before)/float64(b.N), "wal-B/op")
	})
}

// BenchmarkPostgresMany makes 100 decisions together, and reports the time of each.
func BenchmarkPostgresMany(b *testing.B) {
	pool := pool(b)
	for _, keys := range []int{1, 100} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			lim := newLimiter(b, postgres.New(pool), policy(weir.Rule{Algorithm: gcra}), nil)
			requests := make([]weir.Request, 100)
			for i := range requests {
				requests[i].Key = weir.KeyOf(strconv.Itoa(i % keys))
			}
			calls := 0
			for b.Loop() {
				askMany(b, lim, requests)
				calls++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(calls*len(requests)), "ns/decision")
		})
	}
}

// BenchmarkPostgresLog shows how the cost of a sorted set grows with its members. Each decision
// adds one, and every hundredth call starts afresh.
func BenchmarkPostgresLog(b *testing.B) {
	pool := pool(b)
	for _, entries := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			lim := newLimiter(b, postgres.New(pool), policy(weir.Rule{Algorithm: algorithm.SlidingLog{Limit: 1 << 40, Window: time.Hour}}), nil)
			requests := make([]weir.Request, entries)
			for i := range requests {
				requests[i].Key = weir.KeyOf("log")
			}
			for i := 0; b.Loop(); i++ {
				if i%100 == 0 {
					b.StopTimer()
					if err := lim.Reset(b.Context(), "log"); err != nil {
						b.Fatal(err)
					}
					askMany(b, lim, requests)
					b.StartTimer()
				}
				if res, err := lim.Allow(b.Context(), "log"); err != nil || !res.Allowed {
					b.Fatal(res.Allowed, err)
				}
			}
		})
	}
}

// askMany fails tb unless all requests are allowed.
func askMany(tb testing.TB, lim *weir.Limiter, requests []weir.Request) {
	tb.Helper()
	for _, answer := range lim.DoMany(tb.Context(), requests) {
		if answer.Err != nil || !answer.Result.Allowed {
			tb.Fatalf("allowed %v, error %v", answer.Result.Allowed, answer.Err)
		}
	}
}

// wal returns how many bytes the server has written to its log.
func wal(tb testing.TB, pool *pgxpool.Pool) (bytes int64) {
	tb.Helper()
	if err := pool.QueryRow(context.Background(), "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&bytes); err != nil {
		tb.Fatal(err)
	}
	return bytes
}
