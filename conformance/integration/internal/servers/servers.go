// Package servers gives tests the Redis and Valkey servers of the matrix, and PostgreSQL
// servers: see [AllPostgres]. Each starts in containers at its first use, once for a run
// of the test binary, and is removed when the binary ends, however it ends:
//
//	func TestMain(m *testing.M) { servers.Main(m) }
//
//	func Test(t *testing.T) {
//		for _, server := range servers.All() {
//			t.Run(server.Name, func(t *testing.T) {
//				server.Start(t)
//				rdb := servers.Client(t, server.Endpoint)
//				…
//			})
//		}
//	}
//
// A test that kills, pauses or promotes takes a server of its own, from
// [NewSingle], [NewReplicated], [NewSentinel], [NewCluster] or [NewTLS], which is
// removed when that test ends.
//
// The images have to be in the Docker engine: images.sh puts them there. Where
// no engine answers, Start skips the test, or fails it if WEIR_REQUIRE_DOCKER
// is 1. A few images are optional: where the engine lacks one, Start skips the
// test, and [Server.Missing] says why.
//
// A server that runs already joins the matrix by its address: WEIR_REDIS_ADDR
// names a single one, WEIR_CLUSTER_ADDRS nodes of a cluster, separated by commas.
package servers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// startTimeout bounds the start of a server. A cluster takes a few seconds on
// an idle machine.
const startTimeout = 3 * time.Minute

// A Server is one that the tests use: a single one, with or without a replica, a cluster,
// or a master with sentinels. The exported fields except Name and Kind are set when Start
// has returned.
type Server struct {
	Name string // as in "redis-6.0", "valkey-cluster-8.1" and "kvrocks"

	// Endpoint is what an application would be told of the server.
	Endpoint

	// Nodes are the servers that hold data. In a cluster the first three are
	// masters at the start, and the fourth is the replica of the first;
	// elsewhere the first is the master. It is empty for a server that the
	// environment named.
	Nodes []*Node

	// Sentinels are those that watch the first of Nodes, if any do.
	Sentinels []*Node

	version string   // a key of images, "" for a server that the environment named
	args    []string // of each of Nodes, after all others
	mortal  bool     // belongs to a test, which may kill nodes
	admin   string   // the password of a user so named, if Endpoint's may not do everything

	topology *topology

	id      string // on every container
	network string // of every node
	bind    string // the address that nodes listen on
	once    sync.Once
	err     error
}

// A topology is how the nodes of a server are put together.
type topology struct {
	kind  Kind
	ports int // that clients reach
	// start starts the nodes, and sets Addrs unless that is the first of them.
	start func(s *Server, ctx context.Context, ports []string) error
}

var (
	single     = &topology{Single, 1, (*Server).startSingle}
	replicated = &topology{Single, 2, (*Server).replicate}
	cluster    = &topology{Cluster, nodes, (*Server).startCluster}
	watched    = &topology{Sentinel, 2 + sentinels, (*Server).startSentinel}
	encrypted  = &topology{Single, 1, (*Server).startTLS}

	postgres           = &topology{Postgres, 1, (*Server).startPostgres}
	postgresReplicated = &topology{Postgres, 2, (*Server).startPostgres}
)

// images are the images by the version of their server.
var images = func() map[string]string {
	images := map[string]string{}
	for version, image := range map[string]string{
		"redis-6.0":   "redis:6.0",
		"redis-7.0":   "redis:7.0",
		"redis-8.0":   "redis:8.0",
		"redis-8.6":   "redis:8.6",
		"redis-8.10":  "redis:8.10",
		"redict-7.3":  "redict:7.3",
		"valkey-8.1":  "valkey/valkey:8.1",
		"valkey-9.1":  "valkey/valkey:9.1",
		"valkey-9.2":  "valkey/valkey:9.2",
		"dragonfly":   "dragonfly",
		"kvrocks":     "kvrocks",
		"postgres-15": "postgres:15",
		"postgres-17": "postgres:17",
		"postgres-18": "postgres:18",
		"postgres-19": "postgres:19",
		pgbouncer:     "pgbouncer:1.26",
	} {
		images[version] = cmp.Or(os.Getenv(variable(version)), image)
	}
	return images
}()

// optional are the versions whose images an engine may lack: Debian has them in suites that
// are not released, or not at all. images.sh lists those that it makes or pulls.
var optional = []string{
	"redis-8.6", "redis-8.10", "redict-7.3", "valkey-9.1", "valkey-9.2", "dragonfly", "kvrocks", "postgres-19", pgbouncer,
}

// variable returns the name of the variable that names another image of a version.
func variable(version string) string {
	return "WEIR_IMAGE_" + strings.NewReplacer("-", "_", ".", "_").Replace(strings.ToUpper(version))
}

// Optional reports whether an engine may lack the image of the server.
func (s *Server) Optional() bool { return slices.Contains(optional, s.version) }

// Missing returns why the server cannot be started, or "" if it can be or must be: the engine
// lacks its image, which is optional.
func (s *Server) Missing() string { return missing(s.version) }

func missing(version string) string {
	if !slices.Contains(optional, version) || os.Getenv(variable(version)) != "" || engine() != nil {
		return ""
	}
	id, err := docker(context.Background(), "images", "--quiet", images[version])
	if err != nil || id != "" {
		return "" // if the engine fails, so does the start
	}
	return fmt.Sprintf("the engine has no image %q, and %s names no other", images[version], variable(version))
}

// All returns the servers of the matrix, the same ones at every call.
var All = sync.OnceValue(func() []*Server {
	var all []*Server
	for _, version := range []string{"redis-6.0", "redis-7.0", "redis-8.0", "valkey-8.1", "valkey-9.1"} {
		all = append(all, newServer(version, version, single))
	}
	all = append(all,
		newServer("redis-cluster-8.0", "redis-8.0", cluster),
		newServer("valkey-cluster-8.1", "valkey-8.1", cluster),
		newServer("sentinel-8.0", "redis-8.0", watched),
		newServer("tls-8.0", "redis-8.0", encrypted))
	for _, version := range []string{"redis-8.6", "redict-7.3"} {
		all = append(all, newServer(version, version, single))
	}
	// The second cluster serves its slots even if others are lost.
	partial := newServer("valkey-cluster-9.1", "valkey-9.1", cluster)
	partial.args = []string{"--cluster-require-full-coverage", "no"}
	all = append(all, newServer("redis-cluster-8.6", "redis-8.6", cluster), partial)
	for _, version := range []string{"redis-8.10", "valkey-9.2", "dragonfly", "kvrocks"} {
		all = append(all, newServer(version, version, single))
	}
	if addr := os.Getenv("WEIR_REDIS_ADDR"); addr != "" {
		all = append(all, &Server{Name: "external", Endpoint: Endpoint{Kind: Single, Addrs: []string{addr}}})
	}
	if addrs := os.Getenv("WEIR_CLUSTER_ADDRS"); addrs != "" {
		all = append(all, &Server{Name: "external-cluster", Endpoint: Endpoint{Kind: Cluster, Addrs: strings.Split(addrs, ",")}})
	}
	return all
})

func newServer(name, version string, top *topology) *Server {
	return &Server{Name: name, Endpoint: Endpoint{Kind: top.kind}, version: version, topology: top, id: rand.Text()}
}

// Available reports whether a Docker engine answers.
func Available() bool { return engine() == nil }

// Need skips the test where no Docker engine answers, or fails it if
// WEIR_REQUIRE_DOCKER is 1.
func Need(t testing.TB) {
	t.Helper()
	if err := engine(); err != nil {
		if os.Getenv("WEIR_REQUIRE_DOCKER") == "1" {
			t.Fatalf("no Docker engine answers, and WEIR_REQUIRE_DOCKER is 1: %v", err)
		}
		t.Skipf("no Docker engine answers: %v", err)
	}
}

// Start starts the server if no test did before, and returns when it is ready.
// It may be called by parallel tests.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if s.version == "" {
		return
	}
	Need(t)
	if reason := s.Missing(); reason != "" {
		t.Skip(reason)
	}
	s.startOnce()
	if s.err != nil {
		t.Fatalf("%s: %v", s.Name, s.err)
	}
}

func (s *Server) startOnce() {
	s.once.Do(func() {
		// Not the test's context: the server outlives the test.
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		ports, err := s.listen(ctx, s.topology.ports)
		if err == nil {
			err = s.topology.start(s, ctx, ports)
		}
		if err == nil {
			err = s.await(ctx)
		}
		if err != nil {
			s.err = errors.Join(err, s.postMortem())
			return
		}
		if s.Addrs == nil {
			s.Addrs = []string{s.Nodes[0].Addr}
		}
	})
}

// StartAll starts all servers at once, if a Docker engine answers. For a test that uses
// all of them, that is quicker than to start each when it is needed. If one does not
// start, its Start says so.
func StartAll() {
	if engine() != nil {
		return
	}
	var wg sync.WaitGroup
	for _, s := range All() {
		if s.version != "" && s.Missing() == "" {
			wg.Go(s.startOnce)
		}
	}
	wg.Wait()
}

// Admin returns the server as a user sees it who may do everything.
func (s *Server) Admin() Endpoint {
	e := s.Endpoint
	if s.admin != "" {
		e.User, e.Password = admin, s.admin
	}
	return e
}

func (s *Server) startSingle(ctx context.Context, ports []string) error {
	return s.startNode(ctx, ports[0])
}

// await returns when every node answers.
func (s *Server) await(ctx context.Context) error {
	for _, node := range s.Nodes {
		if err := node.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// postMortem returns the last words of the nodes that have ended.
func (s *Server) postMortem() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var errs []error
	for _, node := range slices.Concat(s.Nodes, s.Sentinels) {
		if words := node.lastWords(ctx); words != "" {
			errs = append(errs, fmt.Errorf("%s has ended: %s", node.Addr, words))
		}
	}
	return errors.Join(errs...)
}
