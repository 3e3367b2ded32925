package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// loopback is the address of every node, for the others as for the clients.
// That takes one network name space for all of them.
const loopback = "127.0.0.1"

// docker runs a command of the docker program, and returns what it writes.
func docker(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, text)
	}
	return text, nil
}

// engine reports why no Docker engine can be used, or nil.
var engine = sync.OnceValue(func() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := docker(ctx, "version")
	return err
})

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
		s.network, s.bind = "host", loopback
		return ports, nil
	}
	var flags []string
	for _, port := range ports {
		flags = append(flags, "--publish", loopback+":"+port+":"+port)
	}
	holder, err := s.run(ctx, s.version, flags, "sleep", "infinity")
	s.network, s.bind = "container:"+holder, "0.0.0.0"
	return ports, err
}

// sharesHost reports whether a container can use the network of this machine: not where
// the engine runs in a virtual machine, or has no rights to that network.
var sharesHost = sync.OnceValue(func() bool {
	if runtime.GOOS != "linux" {
		return false
	}
	host, err1 := docker(context.Background(), "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
	info, err2 := docker(context.Background(), "info", "--format", "{{.OperatingSystem}} {{.SecurityOptions}}")
	return errors.Join(err1, err2) == nil && strings.HasPrefix(host, "unix:") &&
		!strings.HasPrefix(info, "Docker Desktop") && !strings.Contains(info, "rootless")
})

// run starts a container of a version that the reaper will remove, and returns its ID. The flags
// are of docker run. It pulls no image: where there is no registry, that would take long.
func (s *Server) run(ctx context.Context, version string, flags []string, command ...string) (string, error) {
	if err := startReaper(); err != nil {
		return "", err
	}
	id, err := docker(ctx, slices.Concat(
		[]string{"run", "--detach", "--pull", "never", "--label", runLabel + "=" + runID, "--label", serverLabel + "=" + s.id},
		flags, []string{images[version]}, command)...)
	if err != nil {
		return "", fmt.Errorf("%s: %w (images.sh makes the images)", version, err)
	}
	return id, nil
}

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
		port := strconv.Itoa(first + rand.IntN(last-first))
		if _, used := taken.LoadOrStore(port, true); used {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort(loopback, port))
		if err != nil {
			continue
		}
		_ = listener.Close()
		if runtime.GOOS == "linux" { // which has sockets with names that are no files
			reserved, err := net.Listen("unix", "@weir-port-"+port)
			if err != nil {
				continue
			}
			taken.Store(port, reserved)
		}
		ports = append(ports, port)
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
