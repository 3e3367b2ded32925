// Command quickstart creates the table of the limiters in a PostgreSQL database, sends
// requests of two users to a limiter, and prints the answer to each request:
//
//	cd store/postgres
//	go run ./examples/quickstart -postgres postgres://postgres@localhost/postgres
//
// Package github.com/weir-go/weir/examples/quickstart is one without PostgreSQL. This one is in
// the module of the store, so only programs that use the store download pgx.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/postgres"
)

func main() {
	log.SetFlags(0)
	url := flag.String("postgres", os.Getenv("DATABASE_URL"), "`URL` of a PostgreSQL database, whose user can create a table")
	flag.Parse()
	if *url == "" {
		log.Fatal("-postgres is missing: it must be the URL of a PostgreSQL database")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := run(ctx, os.Stdout, *url); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, w io.Writer, url string) error {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.AfterConnect = postgres.Prepare
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := postgres.Migrate(ctx, pool); err != nil {
		return err
	}

	// All consumers share the limit of a resource. Each consumer also has a smaller
	// limit. A request consumes a token from both rules, or from neither. Every run uses
	// its own prefix, so it finds no state of an earlier run.
	lim, err := weir.NewPolicy(postgres.New(pool), weir.Policy{
		Name:     "calc",
		Segments: []string{"resource", "consumer"},
		Rules: []weir.Rule{
			{Name: "resource", By: []string{"resource"}, Algorithm: algorithm.FixedWindow{Limit: 5, Window: time.Minute}},
			{Name: "consumer", Algorithm: algorithm.FixedWindow{Limit: 3, Window: time.Minute}},
		},
	}, &weir.Options{Prefix: fmt.Sprintf("quickstart-%d", time.Now().UnixNano())})
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "Two rules: resource 5 per minute, consumer 3 per minute")
	for _, user := range []string{"ann", "ann", "ann", "ann", "bob", "bob", "bob"} {
		res, err := lim.Allow(ctx, "calc", user)
		if err != nil {
			return err
		}
		answer := "allowed"
		if !res.Allowed {
			answer = "denied "
		}
		fmt.Fprintf(w, "%s  %s  %s: %d of %d remain\n", user, answer, res.Rule, res.Remaining, res.Limit)
	}
	return nil
}
