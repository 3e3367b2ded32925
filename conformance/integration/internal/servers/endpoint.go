package servers

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Kind is the way in which a client finds who serves a key.
type Kind string

// The kinds of servers.
const (
	Single   Kind = "single"   // one server, Addrs[0]
	Cluster  Kind = "cluster"  // Addrs are nodes of a cluster
	Sentinel Kind = "sentinel" // Addrs are sentinels, which know a master as Master
)

// An Endpoint is all that a client has to know of a server.
type Endpoint struct {
	Kind   Kind
	Addrs  []string // each on the loopback interface, unless the environment named it
	Master string   // set for the kind Sentinel alone

	// TLS is what to dial Addrs with, nil for plain TCP. It is not to be changed.
	TLS *tls.Config

	// User and Password are what to log in with. With a Password alone the user
	// is the default one; without either there is no logging in.
	User, Password string
}

// Name is what clients of [Node.Client] call themselves.
const Name = "the-tests-own"

// Client returns a client of the endpoint that ends with t.
func Client(t testing.TB, e Endpoint) redis.UniversalClient {
	c := Dial(e)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Dial returns a client of the endpoint.
func Dial(e Endpoint) redis.UniversalClient { return dial(e, 0, "") }

// dial returns a client, whose dials are bounded, unless by 0.
func dial(e Endpoint, timeout time.Duration, name string) redis.UniversalClient {
	o := &redis.UniversalOptions{
		Addrs: e.Addrs, MasterName: e.Master, TLSConfig: e.TLS, Username: e.User, Password: e.Password, DialTimeout: timeout, ClientName: name,
	}
	if timeout == 0 {
		// The client sends a call again after a timeout, and a script would run twice.
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = time.Minute, time.Minute, time.Minute
	}
	if e.Kind == Cluster { // it can have one address
		return redis.NewClusterClient(o.Cluster())
	}
	return redis.NewUniversalClient(o)
}

// admin is the user of such a server who may do everything.
const admin = "admin"

// startTLS starts a server that has no other port than for TLS, and no default
// user.
func (s *Server) startTLS(ctx context.Context, ports []string) error {
	// The certificate of httptest is for the loopback interface, and signs itself.
	example := httptest.NewTLSServer(nil)
	defer example.Close()
	cert := example.Certificate()
	key, err := x509.MarshalPKCS8PrivateKey(example.TLS.Certificates[0].PrivateKey)
	if err != nil {
		return err
	}
	s.User, s.Password = "weir", rand.Text()
	s.TLS = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	s.TLS.RootCAs.AddCert(cert)
	s.admin = rand.Text()

	const path = "/weir.pem"
	args := []string{
		"--port", "0", "--tls-port", ports[0],
		"--tls-cert-file", path, "--tls-key-file", path, "--tls-ca-cert-file", path,
		"--tls-auth-clients", "no",
	}
	for _, user := range []string{
		"default off",
		admin + " on >" + s.admin + " ~* +@all",
		s.User + " on >" + s.Password + " ~weir* " + ACL,
	} {
		args = append(append(args, "--user"), strings.Fields(user)...)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	flags, command := withFile(path, string(text), s.command(ports[0], args)...)
	node, err := s.startProcess(ctx, s.version, ports[0], flags, command...)
	s.Nodes = append(s.Nodes, node)
	return err
}

// ACL has the rules of ACL SETUSER that a user needs for all that limiters send, besides
// a pattern of keys. What a client sends on its own comes on top.
// docs/reference/stores.md has the same line.
const ACL = "+eval +evalsha +mget +time " +
	"+get +set +exists +unlink +pexpire " +
	"+zadd +zcard +zcount +zrange +zrem +zremrangebyrank +zscore " +
	"+rpush +lindex +lrange"

// ListACL is what a user needs in addition to [ACL] for store.Lister.
const ListACL = "+scan +role"

// Grant makes a user by the rules, as ACL SETUSER takes them, on each of Nodes,
// and returns the server as that user sees it. The user is gone when t ends.
func (s *Server) Grant(t testing.TB, rules string) Endpoint {
	t.Helper()
	e := s.Endpoint
	e.User, e.Password = "user-"+rand.Text(), rand.Text()
	command := []any{"ACL", "SETUSER", e.User, "on", ">" + e.Password}
	for _, rule := range strings.Fields(rules) {
		command = append(command, rule)
	}
	all := func(ctx context.Context, command ...any) {
		t.Helper()
		for _, node := range s.Nodes {
			rdb := node.dial()
			defer rdb.Close()
			if err := rdb.Do(ctx, command...).Err(); err != nil {
				t.Errorf("%s: %v %v on %s: %v", s.Name, command[0], command[1], node.Addr, err)
			}
		}
	}
	all(t.Context(), command...)
	t.Cleanup(func() { all(context.Background(), "ACL", "DELUSER", e.User) })
	return e
}
