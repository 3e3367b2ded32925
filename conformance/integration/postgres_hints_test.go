package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/postgres"
)

// This file checks the errors of PostgreSQL that docs/reference/errors.md explains.

// wantCode checks that err is an outage with a code of the server, and says what to do.
func wantCode(t *testing.T, what string, err error, code, says string) {
	t.Helper()
	var reply *pgconn.PgError
	if !errors.Is(err, store.ErrUnavailable) || !errors.As(err, &reply) || reply.Code != code || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: got %v, want %v with %s and %q", what, err, store.ErrUnavailable, code, says)
	}
}

// TestPostgresLocks checks how many locks a server needs: a batch of calls takes up to
// 256, and 256 for each connection suffice.
func TestPostgresLocks(t *testing.T) {
	t.Parallel()
	const batches, keys = 20, 256
	for _, tt := range []struct {
		locks int
		full  bool
	}{{10, true}, {keys, false}} {
		server := servers.NewPostgres(t, "max_connections=30", fmt.Sprint("max_locks_per_transaction=", tt.locks))
		st := postgres.New(limiterPool(t, server, func(c *pgxpool.Config) { c.MaxConns = batches }))
		err := lockAll(t.Context(), st, batches, keys)
		if tt.full {
			wantCode(t, "too many locks", err, "53200", "max_locks_per_transaction to 256")
		} else if err != nil {
			t.Errorf("with %d locks for each connection: %v", tt.locks, err)
		}
	}
}

// lockAll runs batches at once, each with as many locks as it has calls. Each holds its
// locks until all have theirs, or one has failed. It returns the first error.
func lockAll(ctx context.Context, st *postgres.Store, batches, calls int) error {
	var held, done sync.WaitGroup
	var first error
	var once sync.Once
	all, failed := make(chan struct{}), make(chan struct{})
	held.Add(batches)
	go func() { held.Wait(); close(all) }()
	for b := range batches {
		done.Go(func() {
			arrive := sync.OnceFunc(held.Done)
			defer arrive()
			script := countingScript(func() {
				arrive()
				select {
				case <-all:
				case <-failed:
				}
			})
			batch := make([]store.Eval, calls)
			for i := range batch {
				batch[i] = store.Eval{Script: script, Keys: []string{fmt.Sprintf("locks-%d-%d", b, i)}}
			}
			st.EvalBatch(ctx, batch)
			if err := batch[0].Err; err != nil {
				once.Do(func() { first = err; close(failed) })
			}
		})
	}
	done.Wait()
	return first
}
