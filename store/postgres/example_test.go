package postgres_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/postgres"
)

// This program limits requests to 10 per second, and deletes expired rows every ten
// minutes.
func Example() {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	config.AfterConnect = postgres.Prepare
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := postgres.Migrate(ctx, pool); err != nil {
		log.Fatal(err)
	}
	st := postgres.New(pool)
	go func() {
		for range time.Tick(10 * time.Minute) {
			if _, err := st.Sweep(ctx); err != nil {
				log.Print(err)
			}
		}
	}()

	lim, err := weir.New("api", st, algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}, nil)
	if err != nil {
		log.Fatal(err)
	}
	res, err := lim.Allow(ctx, "ann")
	fmt.Println(res.Allowed, res.Remaining, err)
}
