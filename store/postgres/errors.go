package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/errreply"
)

var (
	errNil      = errors.New("postgres: the pool is nil: it must be a *pgxpool.Pool")
	errReadOnly = errors.New("the server accepts no writes: it is a standby, or default_transaction_read_only is on")
)

// lackOfLocks is the code of an error that can end before its setting is corrected.
const lackOfLocks = "53200"

// hints say what to do about an error of the server, by its code. Such an error comes
// again until somebody acts, unless it is lackOfLocks.
var hints = map[string]string{
	"26000":     " (behind a pooler, set default_query_exec_mode=exec)",
	"28000":     " (correct the user in the URL, or allow it in pg_hba.conf)",
	"28P01":     " (correct the user and the password in the URL)",
	"3D000":     " (correct the name of the database in the URL)",
	"3F000":     " (no schema of the search path exists, or the role lacks USAGE on it)",
	"42501":     " (GRANT SELECT, INSERT, UPDATE, DELETE ON weir)",
	"42704":     " (correct the parameters in the URL)",
	"42P01":     " (call Migrate, or check the search path and USAGE on its schema)",
	"42P05":     " (behind a pooler, set default_query_exec_mode=exec)",
	"53100":     " (free the disk of the server)",
	"55000":     otherTable,
	lackOfLocks: " (if it is shared memory, set max_locks_per_transaction to 256)",
}

// otherTable is the hint for 55000, and for other codes of the classes 23 and 42, which
// say that a statement does not suit the table.
const otherTable = " (another table has the name weir)"

// hint returns what to do about err, an error of a call, if that is known. It lasts if it
// comes again until somebody acts.
func hint(call string, err error) (advice string, lasts bool) {
	var reply *pgconn.PgError
	switch errors.As(err, &reply); {
	case errors.Is(err, errReadOnly):
		return "", true
	case reply == nil && strings.Contains(err.Error(), "server refused TLS"):
		return " (set sslmode=disable in the URL, or ssl=on on the server)", true
	case reply == nil:
		return "", false
	case call == "migrate" && reply.Code == "42501":
		return " (GRANT CREATE ON the schema, or let a role that has it create the table)", true
	case strings.Contains(reply.Message, "statement pooling mode"):
		return " (set pool_mode=transaction in PgBouncer)", true
	case call != "migrate" && hints[reply.Code] == "" && (strings.HasPrefix(reply.Code, "23") || strings.HasPrefix(reply.Code, "42")):
		return otherTable, true
	}
	return hints[reply.Code], hints[reply.Code] != "" && reply.Code != lackOfLocks
}

// failed returns the error of a call for err, which comes from pgx. It is the error of
// ctx if ctx is done, and otherwise ErrUnavailable.
func failed(ctx context.Context, call string, err error) error {
	done := ctx.Err()
	if deadline, ok := ctx.Deadline(); done == nil && ok && !time.Now().Before(deadline) {
		done = context.DeadlineExceeded // the timer of pgx was earlier than the timer of ctx
	}
	down := errreply.Connection(err)
	advice, lasts := hint(call, err)
	if lasts {
		down = errMisconfigured
	}
	switch {
	case done != nil && errors.Is(err, done):
		return fmt.Errorf("postgres: %s: %w", call, err)
	case done != nil:
		return fmt.Errorf("postgres: %s: %w: %w", call, done, err)
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		// A timeout of the pool has passed, for example of a dial, not the caller's
		// deadline.
		return fmt.Errorf("postgres: %s: %w: %v", call, store.ErrUnavailable, err)
	}
	return fmt.Errorf("postgres: %s: %w: %w%s", call, down, err, advice)
}

// errMisconfigured means that an ErrUnavailable comes again until somebody acts. A standby is one too: if target_session_attrs is read-write, the pool does not
// connect to it.
var errMisconfigured error = misconfigured{}

type misconfigured struct{}

func (misconfigured) Error() string { return store.ErrMisconfigured.Error() }

func (misconfigured) Unwrap() []error {
	return []error{store.ErrUnavailable, store.ErrMisconfigured}
}

// awaitDeadline waits for the deadline of ctx, if the server has ended the wait for a
// lock shortly before: see lockTimeout. The connection is free meanwhile.
func awaitDeadline(ctx context.Context, err error) {
	var reply *pgconn.PgError
	if _, ok := ctx.Deadline(); ok && errors.As(err, &reply) && reply.Code == "55P03" { // lock_not_available
		<-ctx.Done()
	}
}
