package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/store"
	pgstore "github.com/weir-go/weir/store/postgres"
)

// poolOf returns a pool of connections. It connects when it is used.
func poolOf(at *target) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(at.url)
	if err != nil {
		return nil, usagef("pgx cannot read a parameter of its URL")
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = callTime
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}

func openPostgres(_ context.Context, at *target) (store.Store, func(), error) {
	pool, err := poolOf(at)
	if err != nil {
		return nil, nil, err
	}
	return pgstore.New(pool), sync.OnceFunc(pool.Close), nil
}

// administerPostgres sets the functions of s for a PostgreSQL server.
func (s *server) administerPostgres(at *target) {
	pool, _ := poolOf(at) // the store has one too, so there is no error
	closeStore := s.close
	s.close = func() { pool.Close(); closeStore() }
	s.product = func(ctx context.Context) string {
		var product string
		if err := pool.QueryRow(ctx, "SELECT 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1)").Scan(&product); err != nil {
			return "PostgreSQL of unknown version"
		}
		return product
	}
	s.count = func(ctx context.Context) (n int64, err error) {
		err = pool.QueryRow(ctx, "SELECT count(*) FROM (SELECT FROM weir LIMIT $1) AS listed", mostKeys+1).Scan(&n)
		var p *pgconn.PgError
		if errors.As(err, &p) && p.Code == "42P01" {
			err = usagef("the table weir does not exist: -migrate creates it, and store/postgres/schema.sql has its SQL")
		}
		return n, err
	}
	s.migrate = func(ctx context.Context) error {
		if err := pgstore.Migrate(ctx, pool); err != nil {
			return fmt.Errorf("the table weir cannot be created: %w", err)
		}
		return nil
	}
	s.plant = func(ctx context.Context, key string, raw []byte) error {
		_, err := pool.Exec(ctx, `INSERT INTO weir (key, nums, expires)
VALUES ($1, $2, (extract(epoch FROM clock_timestamp() + interval '1 hour') * 1000000)::bigint)`, []byte(key), raw)
		return err
	}
	s.keys = func(ctx context.Context, part string) (map[string]time.Duration, error) {
		rows, err := pool.Query(ctx, `SELECT key, expires - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM weir WHERE position($1::bytea IN key) > 0`, []byte(part))
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		found := map[string]time.Duration{}
		for rows.Next() {
			var key []byte
			var left int64
			if err := rows.Scan(&key, &left); err != nil {
				return nil, err
			}
			if left > 0 {
				found[string(key)] = time.Duration(left) * time.Microsecond
			}
		}
		return found, rows.Err()
	}
}
