package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
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

// listen returns n ports that clients reach, and chooses the network of the
// server's nodes. That is the host's network, where containers can use it. Elsewhere
// it is the network of a container that only sleeps, so that a test may kill and
// start each node again. Requests then pass the engine's proxy, which takes as much
// of a processor as the server does.
func (s *Server) listen(ctx context.Context, n int) ([]string, error) {
	ports, err := freePorts(n)
	if err != nil {
		return nil, err
	}
	if sharesHost() {
		s.network, s.bind = "host", loopback.String()
		return ports, nil
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
	s.network, s.bind = container.NetworkMode("container:"+holder.GetContainerID()), netip.IPv4Unspecified().String()
	return ports, nil
}

// onNetwork puts a container on the network that listen chose.
func (s *Server) onNetwork() testcontainers.CustomizeRequestOption {
	return testcontainers.WithHostConfigModifier(func(c *container.HostConfig) { c.NetworkMode = s.network })
}

// sharesHost reports whether a container can use the network of this machine: not where
// the engine runs in a virtual machine, or has no rights to that network.
var sharesHost = sync.OnceValue(func() bool {
	if runtime.GOOS != "linux" {
		return false
	}
	shares := false
	err := withDocker(context.Background(), func(docker *client.Client) error {
		info, err := docker.Info(context.Background(), client.InfoOptions{})
		shares = strings.HasPrefix(docker.DaemonHost(), "unix:") &&
			info.Info.OperatingSystem != "Docker Desktop" &&
			!slices.ContainsFunc(info.Info.SecurityOptions, func(o string) bool { return strings.Contains(o, "rootless") })
		return err
	})
	return err == nil && shares
})

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
	// Testcontainers looks for another engine if DOCKER_HOST does not answer.
	if host := os.Getenv("DOCKER_HOST"); host != "" && host != provider.Client().DaemonHost() {
		return fmt.Errorf("DOCKER_HOST is %s, which does not answer", host)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return provider.Health(ctx)
})

// taken has the ports that freePorts has returned, so that tests in parallel don't get the same
// ones before they listen. Its values are what keeps them from other processes.
var taken sync.Map

// freePorts returns n ports of the loopback interface that nobody listens on. They are
// below the ports of outgoing connections, which could otherwise take one before its node
// listens, or while it restarts.
func freePorts(n int) ([]string, error) {
	const first, last, tries = 10_000, 30_000, 1000
	var ports []string
	for range tries {
		if len(ports) == n {
			return ports, nil
		}
		port := first + rand.IntN(last-first)
		if _, used := taken.LoadOrStore(port, true); used {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort(loopback.String(), strconv.Itoa(port)))
		if err != nil {
			continue
		}
		_ = listener.Close()
		if runtime.GOOS == "linux" { // which has sockets with names that are no files
			reserved, err := net.Listen("unix", "@weir-port-"+strconv.Itoa(port))
			if err != nil {
				continue
			}
			taken.Store(port, reserved)
		}
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
