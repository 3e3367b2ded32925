// Package servers gives tests the Redis and Valkey servers of the matrix. Each
// is started in a container at its first use, once for a run of the test
// binary, and removed when the binary ends, however it ends:
//
//	func TestMain(m *testing.M) { servers.Main(m) }
//
//	func Test(t *testing.T) {
//		for _, server := range servers.All() {
//			t.Run(server.Name, func(t *testing.T) {
//				server.Start(t)
//				rdb := redis.NewUniversalClient(&redis.UniversalOptions{
//					Addrs: server.Addrs, IsClusterMode: server.Cluster,
//				})
//				…
//			})
//		}
//	}
//
// The images have to be in the Docker engine: images.sh puts them there. Where
// no engine answers, Start skips the test, or fails it if WEIR_REQUIRE_DOCKER
// is 1.
//
// A server that runs already joins the matrix by its address: WEIR_REDIS_ADDR
// names a single one, WEIR_CLUSTER_ADDRS nodes of a cluster, separated by commas.
package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go"
)

// startTimeout bounds the start of a server. A cluster takes a few seconds on
// an idle machine.
const startTimeout = time.Minute

// A Server is a single server or a cluster. Its Addrs and Nodes are set once
// Start has returned.
type Server struct {
	Name    string // as in "redis-6.0" and "valkey-cluster-8.1"
	Cluster bool

	// Addrs has the address of every node, each on the loopback interface
	// unless the environment named it.
	Addrs []string

	// Nodes has the container of the node at the same index of Addrs, so that
	// a test can pause or kill it; in a cluster the first three were masters
	// at the start. It is empty for a server that the environment named.
	Nodes []*testcontainers.DockerContainer

	image string // "" for a server that the environment named
	once  sync.Once
	err   error
}

// All returns the servers of the matrix, the same ones at every call.
func All() []*Server { return all() }

var all = sync.OnceValue(func() []*Server {
	image := func(variable, byDefault string) string {
		return cmp.Or(os.Getenv("WEIR_IMAGE_"+variable), byDefault)
	}
	redis80 := image("REDIS_8_0", "redis:8.0")
	valkey81 := image("VALKEY_8_1", "valkey/valkey:8.1")
	all := []*Server{
		{Name: "redis-6.0", image: image("REDIS_6_0", "redis:6.0")},
		{Name: "redis-7.0", image: image("REDIS_7_0", "redis:7.0")},
		{Name: "redis-8.0", image: redis80},
		{Name: "valkey-8.1", image: valkey81},
		{Name: "valkey-9.1", image: image("VALKEY_9_1", "valkey/valkey:9.1")},
		{Name: "redis-cluster-8.0", image: redis80, Cluster: true},
		{Name: "valkey-cluster-8.1", image: valkey81, Cluster: true},
	}
	if addr := os.Getenv("WEIR_REDIS_ADDR"); addr != "" {
		all = append(all, &Server{Name: "external", Addrs: []string{addr}})
	}
	if addrs := os.Getenv("WEIR_CLUSTER_ADDRS"); addrs != "" {
		all = append(all, &Server{Name: "external-cluster", Addrs: strings.Split(addrs, ","), Cluster: true})
	}
	return all
})

// Start starts the server if no test did before, and returns when it is ready.
// It may be called by parallel tests.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if s.image != "" {
		if err := engine(); err != nil {
			if os.Getenv("WEIR_REQUIRE_DOCKER") == "1" {
				t.Fatalf("%s: no Docker engine answers, and WEIR_REQUIRE_DOCKER is 1: %v", s.Name, err)
			}
			t.Skipf("%s: no Docker engine answers: %v", s.Name, err)
		}
	}
	s.once.Do(func() {
		// Not the test's context: the server outlives the test.
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		if s.err = s.start(ctx); s.err == nil {
			s.err = s.await(ctx)
		}
		if s.err != nil {
			s.err = errors.Join(s.err, s.postMortem())
		}
	})
	if s.err != nil {
		t.Fatalf("%s: %v", s.Name, s.err)
	}
}

func (s *Server) start(ctx context.Context) error {
	switch {
	case s.image == "":
		return nil
	case s.Cluster:
		return s.startCluster(ctx)
	}

	const port = "6379/tcp"
	node, err := run(ctx, s.image, s.command("6379"),
		testcontainers.WithExposedPorts(port),
		testcontainers.WithHostConfigModifier(func(c *container.HostConfig) {
			c.PortBindings = network.PortMap{network.MustParsePort(port): {{HostIP: loopback}}}
		}))
	if err != nil {
		return err
	}
	s.Nodes = []*testcontainers.DockerContainer{node}
	mapped, err := node.MappedPort(ctx, port)
	if err != nil {
		return err
	}
	s.Addrs = []string{fmt.Sprintf("%v:%d", loopback, mapped.Num())}
	return nil
}

// await returns when every node answers.
func (s *Server) await(ctx context.Context) error {
	for _, addr := range s.Addrs {
		rdb := dial(addr)
		defer rdb.Close()
		if err := poll(ctx, func() error { return rdb.Ping(ctx).Err() }); err != nil {
			return fmt.Errorf("ping %s: %w", addr, err)
		}
	}
	return nil
}

// command starts a server that keeps nothing on disk and that clients outside
// its container may use.
func (s *Server) command(port string, more ...string) []string {
	kind, _, _ := strings.Cut(s.Name, "-")
	return append([]string{kind + "-server", "--port", port, "--save", "", "--appendonly", "no", "--protected-mode", "no"}, more...)
}

// postMortem returns the last words of the nodes that have ended.
func (s *Server) postMortem() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var errs []error
	for i, node := range s.Nodes {
		state, err := node.State(ctx)
		if err != nil || state.Running {
			continue
		}
		logs, err := node.Logs(ctx)
		if err != nil {
			continue
		}
		defer logs.Close()
		text, _ := io.ReadAll(logs)
		errs = append(errs, fmt.Errorf("node %d has ended: %s", i, text[max(0, len(text)-1000):]))
	}
	return errors.Join(errs...)
}

// run starts a container that the reaper will remove.
func run(ctx context.Context, image string, command []string, options ...testcontainers.ContainerCustomizer) (*testcontainers.DockerContainer, error) {
	if err := startReaper(); err != nil {
		return nil, err
	}
	// Testcontainers would pull an image that the engine lacks, and try again
	// and again where there is no registry.
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return nil, err
	}
	defer provider.Close()
	if _, err := provider.Client().ImageInspect(ctx, image); err != nil {
		return nil, fmt.Errorf("%w (images.sh makes the images)", err)
	}
	return testcontainers.Run(ctx, image, slices.Concat(options, []testcontainers.ContainerCustomizer{
		testcontainers.WithCmd(command...),
		testcontainers.WithLabels(map[string]string{label: runID}),
	})...)
}

// engine reports why no Docker engine can be used, or nil.
var engine = sync.OnceValue(func() error {
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return err
	}
	defer provider.Close()
	// Testcontainers looks for another engine if the one that was asked for
	// does not answer.
	if host := os.Getenv("DOCKER_HOST"); host != "" && host != provider.Client().DaemonHost() {
		return fmt.Errorf("DOCKER_HOST is %s, which does not answer", host)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return provider.Health(ctx)
})

func dial(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, DialTimeout: time.Second, MaxRetries: -1})
}

// poll calls f until it succeeds, and returns its last error if ctx ends first.
func poll(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
