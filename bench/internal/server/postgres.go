package server

import (
	"context"
	"net"

	"github.com/jackc/pgx/v5"
)

// StartPostgres starts a PostgreSQL server in a container, and returns when it answers.
func StartPostgres() (*Server, error) { return start(Options{}, postgres) }

// URL returns the URL of a PostgreSQL server, for a user who may do everything.
func (s *Server) URL() string { return "postgres://postgres@" + s.Addr + "/postgres" }

// postgresScript starts a server over the database that is in the image, or that initdb makes.
const postgresScript = `d=/var/lib/postgresql/weir
test -s $d/PG_VERSION || initdb --no-sync --auth trust --pgdata $d >/dev/null || exit
echo 'host all all all trust' >>$d/pg_hba.conf
postgres -D $d -c listen_addresses="$bind" -c unix_socket_directories= -c fsync=off -c jit=off "$@" >/dev/null 2>&1 &`

func postgres(s *Server, _ Options) error {
	s.ping = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		conn, err := pgx.Connect(ctx, s.URL())
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	}
	_, port, _ := net.SplitHostPort(s.Addr)
	return s.contain(image("WEIR_IMAGE_POSTGRES_18", "postgres:18"), "postgres", postgresScript, "-p", port)
}
