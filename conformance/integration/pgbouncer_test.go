package integration

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/postgres"
)

// pooled has what docs/reference/stores.md says of each mode of pgx behind a PgBouncer with
// pool_mode=transaction: whether it works without and with prepared statements of the pooler,
// as in servers.Prepared. The mode describe_exec is missing, because it is unsafe: it prepares
// a statement in one transaction and runs it in another, which can be on the connection of
// another caller.
var pooled = []struct {
	mode  pgx.QueryExecMode
	works [2]bool
	// suite is the pooler with which the suite runs.
	suite int
}{
	{pgx.QueryExecModeExec, [2]bool{true, true}, 0},
	{pgx.QueryExecModeSimpleProtocol, [2]bool{true, true}, 0},
	{pgx.QueryExecModeCacheDescribe, [2]bool{true, true}, 0},
	{pgx.QueryExecModeCacheStatement, [2]bool{false, true}, 1},
}

// TestPgBouncer checks which modes of pgx work behind PgBouncer with each of its pool modes,
// and runs the suite with each mode that works.
func TestPgBouncer(t *testing.T) {
	notShort(t)
	notLight(t)
	t.Parallel()
	server := servers.NewPostgresPooled(t, limiterRole, limiterPassword)
	adminPool(t, server)
	// behind returns a pool of connections to a database of a pooler.
	behind := func(t *testing.T, pooler int, database string, mode pgx.QueryExecMode) *pgxpool.Pool {
		t.Helper()
		return openPool(t, server.PostgresURL("", "", server.Addrs[1+pooler]), func(c *pgxpool.Config) {
			patiently(t)(c)
			c.ConnConfig.Database, c.ConnConfig.DefaultQueryExecMode = database, mode
		})
	}
	for _, p := range pooled {
		for i, works := range p.works {
			t.Run(fmt.Sprintf("%v/prepared=%d", p.mode, servers.Prepared[i]), func(t *testing.T) {
				err := addAll(t, behind(t, i, "few", p.mode))
				if works {
					if err != nil {
						t.Error(err)
					}
					return
				}
				var reply *pgconn.PgError
				if !errors.As(err, &reply) || reply.Code != "26000" && reply.Code != "42P05" || !strings.Contains(err.Error(), "default_query_exec_mode=exec") {
					t.Errorf("got %v, want 26000 or 42P05 and a hint", err)
				}
			})
		}
		t.Run(fmt.Sprintf("%v/session", p.mode), func(t *testing.T) {
			if err := addAll(t, behind(t, p.suite, "session", p.mode)); err != nil {
				t.Error(err)
			}
		})
		t.Run(fmt.Sprintf("%v/statement", p.mode), func(t *testing.T) {
			_, err := add(t.Context(), postgres.New(behind(t, p.suite, "statement", p.mode)), postgresKey(t))
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "statement pooling mode") {
				t.Errorf("got %v, want %v", err, store.ErrUnavailable)
			}
		})
		t.Run(fmt.Sprintf("%v/suite", p.mode), func(t *testing.T) {
			busyParallel(t)
			progress(t)
			pool := behind(t, p.suite, "postgres", p.mode)
			conformance.Run(t, conformance.Backend{
				New: func(*testing.T) store.Store { return postgres.New(pool) },
				Peer: func(t *testing.T, _ store.Store) store.Store {
					return postgres.New(behind(t, p.suite, "postgres", p.mode))
				},
				Keys: func(t *testing.T, _ store.Store, part string) map[string]time.Duration {
					return postgresKeys(t, pool, part)
				},
				Parallel: 4,
				Brief:    true,
			})
		})
	}
}

// addAll adds 1 to 8 keys, 960 times in all, from 16 goroutines. It returns an error of a
// call, or that a key has a wrong sum.
func addAll(t *testing.T, pool *pgxpool.Pool) error {
	const callers, calls, keys = 16, 60, 8
	st, key := postgres.New(pool), postgresKey(t)
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := 0; i < calls && errs[c] == nil; i++ {
				_, errs[c] = add(t.Context(), st, fmt.Sprint(key, (c+i)%keys))
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for k := range keys {
		if n, err := add(t.Context(), st, fmt.Sprint(key, k)); err != nil || n != callers*calls/keys+1 {
			return fmt.Errorf("key %d: got %d, %w, want %d", k, n, err, callers*calls/keys+1)
		}
	}
	return nil
}
