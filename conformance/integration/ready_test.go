package integration

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/postgres"
)

// ready returns what Ready says about a limiter over st. All keys begin with
// weirtest-ready.
func ready(t *testing.T, st store.Store) error {
	t.Helper()
	lim, err := weir.NewPolicy(st, weir.Policy{Name: "ready", Rules: []weir.Rule{
		{Name: "rate", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}},
		{Name: "log", Algorithm: algorithm.SlidingLog{Limit: 3, Window: time.Minute}},
	}}, &weir.Options{Prefix: "weirtest-ready"})
	if err != nil {
		t.Fatal(err)
	}
	return lim.Ready(t.Context())
}

// mistaken checks that err names a mistake, which does not look like a server that is
// away.
func mistaken(t *testing.T, what string, err error, says string) {
	t.Helper()
	if !errors.Is(err, store.ErrMisconfigured) || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: got %v, want %v that says %q, and no %v", what, err, store.ErrMisconfigured, says, store.ErrUnavailable)
	}
}

// TestReady checks each mistake that lasts, on real servers, for each adapter of Redis.
func TestReady(t *testing.T) {
	servers.Need(t)
	locked := servers.NewReplicated(t, "redis-8.0", "--requirepass", "secret", "--masterauth", "secret")
	open := servers.NewSingle(t, "redis-7.0")
	full := servers.NewSingle(t, "redis-7.0", "--maxmemory", "1mb", "--maxmemory-policy", "noeviction")
	alone := servers.NewSingle(t, "redis-7.0", "--min-replicas-to-write", "1")
	secure := servers.NewTLS(t, "redis-8.0")
	cluster := newCluster(t).calm(t)
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			works := false // the client may work in spite of the mistake

			// try expects an error that says that, or none if says is empty.
			try := func(what string, e servers.Endpoint, says string) {
				t.Helper()
				st, closeClient, err := a.open(e)
				if err != nil { // the client connects when it is made, and says so
					t.Logf("%s: the client cannot be made: %v", what, err)
					return
				}
				defer closeClient()
				switch err = ready(t, st); {
				case says == "" && err != nil:
					t.Errorf("%s: %v", what, err)
				case says != "" && (err != nil || !works):
					mistaken(t, what, err, says)
				}
			}
			with := func(e servers.Endpoint, change func(*servers.Endpoint)) servers.Endpoint {
				change(&e)
				return e
			}
			try("a master", locked.Endpoint, "")
			try("no password", with(locked.Endpoint, func(e *servers.Endpoint) { e.Password = "" }), "wants a password")
			try("a wrong password", with(locked.Endpoint, func(e *servers.Endpoint) { e.Password = "guess" }), "rejects the user or the password")
			// HELLO accepts any password of a user without one, and AUTH does not.
			works = a.name != "redigo"
			try("a password too many", with(open.Endpoint, func(e *servers.Endpoint) { e.Password = "secret" }), "has no password")
			works = false
			try("a replica", with(locked.Endpoint, func(e *servers.Endpoint) { e.Addrs = []string{locked.Nodes[1].Addr} }), "the server is a replica")
			try("a full memory", full.Endpoint, "raise maxmemory")
			try("no replicas", alone.Endpoint, "lower min-replicas-to-write")
			try("TLS", secure.Endpoint, "")
			try("an unknown authority", with(secure.Endpoint, func(e *servers.Endpoint) { e.TLS = &tls.Config{} }), "do not agree on TLS")
			own := a.words[servers.Single]
			try("a user", open.Grant(t, "~weirtest-* "+servers.ACL+" "+own), "")
			try("no EVALSHA", open.Grant(t, "~weirtest-* "+servers.ACL+" -evalsha -eval "+own), "grant the commands")
			try("no SET", open.Grant(t, "~weirtest-* "+servers.ACL+" -set "+own), "grant the commands")
			try("another pattern of keys", open.Grant(t, "~other:* "+servers.ACL+" "+own), "grant the commands")
			if a.lacks[servers.Cluster] == "" {
				try("a cluster", cluster.Endpoint, "")
				for range 5 { // its key can have a slot of the node
					e := with(cluster.Endpoint, func(e *servers.Endpoint) { e.Kind, e.Addrs = servers.Single, e.Addrs[:1] })
					st, closeClient, err := a.open(e)
					if err != nil {
						t.Fatal(err)
					}
					err = ready(t, st)
					closeClient()
					if err != nil {
						mistaken(t, "a node of a cluster", err, "use a client of a cluster")
					}
				}
				works = a.name != "goredis" // others use the server alone
				try("no cluster", with(open.Endpoint, func(e *servers.Endpoint) { e.Kind = servers.Cluster }), "not in a cluster")
			}
			e := with(open.Endpoint, func(e *servers.Endpoint) { e.Addrs = []string{"127.0.0.1:1"} })
			if st, closeClient, err := a.open(e); err == nil {
				defer closeClient()
				if err := ready(t, st); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrMisconfigured) {
					t.Errorf("a server that is away: got %v, want %v", err, store.ErrUnavailable)
				}
			}
		})
	}
	// An operator has renamed the command, or the service has no scripts.
	scriptless := servers.NewSingle(t, "redis-7.0", "--rename-command", "EVALSHA", "")
	for _, a := range adapters {
		mistaken(t, a.name+": no scripts", ready(t, a.store(t, scriptless.Endpoint)), "must run Lua scripts")
	}
}

// TestPostgresReady does the same for PostgreSQL.
func TestPostgresReady(t *testing.T) {
	server := newestPostgres()
	admin := adminPool(t, server)
	if err := ready(t, postgres.New(limiterPool(t, server))); err != nil {
		t.Errorf("a limiter's role: %v", err)
	}
	mistaken(t, "a wrong password", ready(t, postgres.New(openPool(t, server.PostgresURL(limiterRole, "guess", "")))), "correct the user and the password")
	mistaken(t, "no TLS", ready(t, postgres.New(openPool(t, server.PostgresURL(limiterRole, limiterPassword, "")+"?sslmode=require"))), "do not agree on TLS")
	mistaken(t, "no table", ready(t, postgres.New(limiterPool(t, server, param("search_path", "pg_catalog")))), "call Migrate")
	mistaken(t, "read-only", ready(t, postgres.New(limiterPool(t, server, param("default_transaction_read_only", "on")))), "accepts no writes")
	sql(t, admin, "SELECT pg_advisory_xact_lock(1); CREATE ROLE without_rights LOGIN PASSWORD 'secret'")
	mistaken(t, "no rights", ready(t, postgres.New(openPool(t, server.PostgresURL("without_rights", limiterPassword, "")))), "GRANT")
	away := ready(t, postgres.New(openPool(t, server.PostgresURL(limiterRole, limiterPassword, "127.0.0.1:1"))))
	if !errors.Is(away, store.ErrUnavailable) || errors.Is(away, store.ErrMisconfigured) {
		t.Errorf("a server that is away: got %v, want %v", away, store.ErrUnavailable)
	}
}
