package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// loopback is the address of every node, for the others as for the clients.
// That takes one network name space for all of them.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// listen starts the container that holds the server's network, and only sleeps,
// so that each node can be a container of its own, which a test may kill and
// start again. It returns n ports that clients reach.
func (s *Server) listen(ctx context.Context, n int) ([]string, error) {
	ports, err := freePorts(n)
	if err != nil {
		return nil, err
	}
	var exposed []string
	bindings := make(network.PortMap)
	for _, port := range ports {
		exposed = append(exposed, port+"/tcp")
		bindings[network.MustParsePort(port+"/tcp")] = []network.PortBinding{{HostIP: loopback, HostPort: port}}
	}
	holder, err := s.run(ctx, []string{"sleep", "infinity"},
		testcontainers.WithExposedPorts(exposed...),
		testcontainers.WithHostConfigModifier(func(c *container.HostConfig) { c.PortBindings = bindings }))
	if err != nil {
		return nil, err
	}
	s.network = holder.GetContainerID()
	return ports, nil
}

// run starts a container that the reaper will remove.
func (s *Server) run(ctx context.Context, command []string, options ...testcontainers.ContainerCustomizer) (*testcontainers.DockerContainer, error) {
	if err := startReaper(); err != nil {
		return nil, err
	}
	image := images[s.version]
	// Testcontainers would pull an image that the engine lacks, and try again
	// and again where there is no registry.
	err := withDocker(ctx, func(docker *client.Client) error {
		_, err := docker.ImageInspect(ctx, image)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("image %q of %s: %w (images.sh makes the images)", image, s.version, err)
	}
	return testcontainers.Run(ctx, image, slices.Concat(options, []testcontainers.ContainerCustomizer{
		testcontainers.WithCmd(command...),
		testcontainers.WithLabels(map[string]string{runLabel: runID, serverLabel: s.id}),
	})...)
}

// withDocker calls f with a client of the engine.
func withDocker(ctx context.Context, f func(*client.Client) error) error {
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return err
	}
	defer docker.Close()
	return f(docker.Client)
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

// taken are the ports that freePorts has returned, so that tests in parallel
// don't get the same ones before they listen.
var taken struct {
	sync.Mutex
	ports map[int]bool
}

// freePorts returns n ports of the loopback interface that nobody listens on.
// They are below those that the kernel gives to outgoing connections, of which
// any could take one before its node listens, or while it is restarted.
func freePorts(n int) ([]string, error) {
	const first, last, tries = 10_000, 30_000, 1000
	taken.Lock()
	defer taken.Unlock()
	if taken.ports == nil {
		taken.ports = map[int]bool{}
	}
	var ports []string
	for range tries {
		if len(ports) == n {
			return ports, nil
		}
		port := first + rand.IntN(last-first)
		if taken.ports[port] {
			continue
		}
		taken.ports[port] = true
		listener, err := net.Listen("tcp", net.JoinHostPort(loopback.String(), strconv.Itoa(port)))
		if err != nil {
			continue
		}
		_ = listener.Close()
		ports = append(ports, strconv.Itoa(port))
	}
	return nil, errors.New("no free ports")
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
