package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/errreply"
)

var (
	errNil = errors.New("postgres: the pool is nil: it must be a *pgxpool.Pool")

	// If target_session_attrs is read-write, the pool does not connect to a standby.
	errReadOnly = errreply.Mistake("the server accepts no writes: it is a standby, or default_transaction_read_only is on")
)

// mistakes say what to do about an error of the server, by its code. Such an error comes
// again until somebody acts.
var mistakes = map[string]string{
	"26000": "behind a pooler, set default_query_exec_mode=exec",
	"28000": "correct the user in the URL, or allow it in pg_hba.conf",
	"28P01": "correct the user and the password in the URL",
	"3D000": "correct the name of the database in the URL",
	"3F000": "no schema of the search path exists, or the role lacks USAGE on it",
	"42501": "GRANT SELECT, INSERT, UPDATE, DELETE ON weir",
	"42704": "correct the parameters in the URL",
	"42P01": "call Migrate, or check the search path and USAGE on its schema",
	"42P05": "behind a pooler, set default_query_exec_mode=exec",
	"53100": "free the disk of the server",
	"55000": otherTable,
}

// otherTable is the advice for 55000, and for other codes of the classes 23 and 42, which
// say that a statement does not suit the table.
const otherTable = "another table has the name weir"

// meaning returns the meaning of err, an error of a call.
func meaning(call string, err error) error {
	var reply *pgconn.PgError
	if !errors.As(err, &reply) {
		return errreply.Connection(err)
	}
	advice := mistakes[reply.Code]
	switch {
	case reply.Code == "53200": // this can end before the setting is corrected
		return fmt.Errorf("%w (if it is shared memory, set max_locks_per_transaction to 256)", store.ErrUnavailable)
	case call == "migrate" && reply.Code == "42501":
		advice = "GRANT CREATE ON the schema, or let a role that has it create the table"
	case strings.Contains(reply.Message, "statement pooling mode"):
		advice = "set pool_mode=transaction in PgBouncer"
	case advice == "" && call != "migrate" && (strings.HasPrefix(reply.Code, "23") || strings.HasPrefix(reply.Code, "42")):
		advice = otherTable
	case advice == "":
		return store.ErrUnavailable
	}
	return errreply.Mistake(advice)
}

// failed returns the error of a call for err, which comes from pgx. It is the error of
// ctx if ctx is done, and otherwise ErrUnavailable.
func failed(ctx context.Context, call string, err error) error {
	return errreply.Failed(ctx, "postgres: "+call, err, func(err error) error { return meaning(call, err) })
}

// awaitDeadline waits for the deadline of ctx, if the server has ended the wait for a
// lock shortly before: see lockTimeout. The connection is free meanwhile.
func awaitDeadline(ctx context.Context, err error) {
	var reply *pgconn.PgError
	if _, ok := ctx.Deadline(); ok && errors.As(err, &reply) && reply.Code == "55P03" { // lock_not_available
		<-ctx.Done()
	}
}
