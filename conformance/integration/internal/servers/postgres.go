package servers

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Postgres is the kind of PostgreSQL servers, which [All] does not list.
const Postgres Kind = "postgres"

// postgresAdmin may do everything, without a password.
const postgresAdmin = "postgres"

// AllPostgres returns the PostgreSQL servers of the matrix, the same ones at every call. The
// last one is not released.
var AllPostgres = sync.OnceValue(func() []*Server {
	var all []*Server
	for _, version := range []string{"postgres-15", "postgres-17", "postgres-18", "postgres-19"} {
		all = append(all, newServer(version, version, postgres))
	}
	return all
})

// NewPostgres returns a PostgreSQL server of the newest released version that belongs to t and
// is removed with it. The settings are of its command line, as in "wal_level=minimal". It
// keeps what it has in a restart.
func NewPostgres(t testing.TB, settings ...string) *Server {
	t.Helper()
	return fresh(t, "postgres-18", postgres, settings)
}

// NewPostgresReplicated is NewPostgres with a standby, Nodes[1], which gets each change after
// the server has acknowledged it. Addrs has both.
func NewPostgresReplicated(t testing.TB, settings ...string) *Server {
	t.Helper()
	return fresh(t, "postgres-18", postgresReplicated, settings)
}

// pgbouncer is the version of the poolers of [NewPostgresPooled].
const pgbouncer = "pgbouncer-1.26"

// Prepared are the values of max_prepared_statements of the poolers of [NewPostgresPooled].
var Prepared = []int{0, 200}

// NewPostgresPooled is NewPostgres behind PgBouncers, one for each of [Prepared]: their
// addresses follow the server's in Addrs. They log in as the user, which need not exist
// yet. Their database postgres has pool_mode=transaction and 20 connections to the
// server, "few" is the same with 4, and "session" and "statement" have these modes.
func NewPostgresPooled(t testing.TB, user, password string) *Server {
	t.Helper()
	Need(t)
	if reason := missing(pgbouncer); reason != "" {
		t.Skip(reason)
	}
	start := func(s *Server, ctx context.Context, ports []string) error {
		if err := s.startPostgres(ctx, ports[:1]); err != nil {
			return err
		}
		for i, n := range Prepared {
			if err := s.startPgBouncer(ctx, ports[i+1], ports[0], n, user, password); err != nil {
				return err
			}
		}
		return nil
	}
	return fresh(t, "postgres-18", &topology{Postgres, 1 + len(Prepared), start}, nil)
}

// PostgresURL returns the URL of a PostgreSQL server for a user, or, if user is empty, for
// the one who may do everything. addr is a proxy of the server; "" means its own address.
func (s *Server) PostgresURL(user, password, addr string) string {
	u := url.URL{Scheme: "postgres", User: url.User(postgresAdmin), Host: cmp.Or(addr, s.Addrs[0]), Path: "postgres"}
	if user != "" {
		u.User = url.UserPassword(user, password)
	}
	return u.String()
}

// SmallDisk is a directory of every PostgreSQL server, on a disk of 16 MiB. It is empty.
const SmallDisk = "/small"

// postgresScript starts a server over the cluster that is in the image, or that initdb makes
// if the image has none. Its arguments are those of the server.
const postgresScript = `d=/var/lib/postgresql/weir
test -s $d/PG_VERSION || initdb --no-sync --auth trust --locale C --encoding UTF8 --pgdata $d || exit
printf '%s\n' 'host replication ` + postgresAdmin + ` all trust' 'host all ` + postgresAdmin + ` all trust' 'host all all all scram-sha-256' >$d/pg_hba.conf
exec postgres -D $d "$@"`

// standbyScript starts a standby of the server on the port that is its first argument, over a
// copy of its cluster.
const standbyScript = `d=/var/lib/postgresql/standby
test -s $d/PG_VERSION || pg_basebackup --no-sync --checkpoint=fast --write-recovery-conf --host 127.0.0.1 --port $1 --username ` + postgresAdmin + ` --pgdata $d || exit
shift
exec postgres -D $d "$@"`

// startPostgres starts a server that does not wait for its disk, and a standby of it on every
// other port.
func (s *Server) startPostgres(ctx context.Context, ports []string) error {
	script, args := postgresScript, []string(nil)
	for _, port := range ports {
		if err := s.startPostgresNode(ctx, port, script, args...); err != nil {
			return err
		}
		script, args = standbyScript, ports[:1]
	}
	return nil
}

// startPostgresNode starts a node with a script, and returns when it answers. The arguments are
// of the script.
func (s *Server) startPostgresNode(ctx context.Context, port, script string, args ...string) error {
	command := slices.Concat(args, []string{"-p", port})
	for _, setting := range append([]string{
		"listen_addresses=" + s.bind, "unix_socket_directories=", "fsync=off", "jit=off", "shared_buffers=32MB",
	}, s.args...) {
		command = append(command, "-c", setting)
	}
	flags := []string{"--entrypoint", "sh", "--user", "postgres", "--tmpfs", SmallDisk + ":size=16m,mode=1777"}
	node, err := s.startProcess(ctx, s.version, port, flags, append([]string{"-c", script, "sh"}, command...)...)
	s.Nodes, s.Addrs = append(s.Nodes, node), append(s.Addrs, node.Addr)
	if err != nil {
		return err
	}
	node.ping = func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, s.PostgresURL("", "", node.Addr))
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	}
	return node.await(ctx)
}

// startPgBouncer starts a pooler of the server on a port.
func (s *Server) startPgBouncer(ctx context.Context, port, server string, prepared int, user, password string) error {
	config := strings.NewReplacer("SERVER", "host="+loopback+" port="+server+" dbname=postgres user="+user+" password="+password,
		"BIND", s.bind, "PORT", port, "PREPARED", strconv.Itoa(prepared)).Replace(`[databases]
postgres = SERVER
few = SERVER pool_size=4
session = SERVER pool_mode=session
statement = SERVER pool_mode=statement
[pgbouncer]
listen_addr = BIND
listen_port = PORT
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_prepared_statements = PREPARED
`)
	const path = "/tmp/pgbouncer.ini"
	flags, command := withFile(path, config, "pgbouncer", path)
	// It does not run as root.
	node, err := s.startProcess(ctx, pgbouncer, port, append(flags, "--user", "70:70"), command...)
	s.Nodes, s.Addrs = append(s.Nodes, node), append(s.Addrs, node.Addr)
	if err != nil {
		return err
	}
	node.ping = func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", node.Addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	return node.await(ctx)
}
