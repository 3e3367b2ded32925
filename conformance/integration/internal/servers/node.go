package servers

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
	"github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go"
)

// A Node is one process of a server, in a container of its own. Its methods
// fail the test when the engine does not do as told; they are for a server that
// belongs to the test.
type Node struct {
	Addr string

	server *Server
	id     string // of the container
	// sentinel tells that its users are not those of the server.
	sentinel bool
	ping     func(context.Context) error // returns nil if the node answers
}

// Endpoint returns the node alone, for a user who may do everything.
func (n *Node) Endpoint() Endpoint {
	if n.sentinel {
		return Endpoint{Kind: Single, Addrs: []string{n.Addr}}
	}
	e := n.server.Admin()
	e.Kind, e.Addrs, e.Master = Single, []string{n.Addr}, ""
	return e
}

// Client returns a client of the node alone, for a user who may do everything, that
// ends with t. The node knows it as the test's own, by its [Name].
func (n *Node) Client(t testing.TB) *redis.Client {
	c := dial(n.Endpoint(), 0, Name).(*redis.Client)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Pause stops the node: it accepts connections, and answers none. Most nodes are one process,
// which gets a signal. PostgreSQL has a process for each connection, so the engine freezes its
// container. On a busy machine that can fail, and the container can stay frozen.
func (n *Node) Pause(t testing.TB) {
	t.Helper()
	if n.server.Kind != Postgres {
		n.signal(t, "SIGSTOP")
		return
	}
	n.tell(t, "pause", func(ctx context.Context, docker *client.Client) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		return poll(ctx, func() error {
			_, err := docker.ContainerPause(ctx, n.id, client.ContainerPauseOptions{})
			// On a busy machine runc gives up before the kernel has frozen every process.
			if err != nil && !strings.Contains(err.Error(), "unable to freeze") {
				cancel()
			}
			return err
		})
	})
}

// Unpause ends what Pause began. The node then serves what it was sent meanwhile.
func (n *Node) Unpause(t testing.TB) {
	t.Helper()
	if n.server.Kind != Postgres {
		n.signal(t, "SIGCONT")
		return
	}
	n.tell(t, "unpause", func(ctx context.Context, docker *client.Client) error {
		_, err := docker.ContainerUnpause(ctx, n.id, client.ContainerUnpauseOptions{})
		return err
	})
}

// Kill ends the node at once, by SIGKILL. Its connections break. A new one is
// refused, or the engine's proxy accepts and closes it.
func (n *Node) Kill(t testing.TB) {
	t.Helper()
	n.signal(t, "SIGKILL")
}

// signal sends a signal to the first process of the node.
func (n *Node) signal(t testing.TB, name string) {
	t.Helper()
	n.tell(t, name, func(ctx context.Context, docker *client.Client) error {
		_, err := docker.ContainerKill(ctx, n.id, client.ContainerKillOptions{Signal: name})
		return err
	})
}

// Restart starts a killed node again, at its address, and returns when it
// answers. It remembers its cluster or its sentinels' master, and no key.
func (n *Node) Restart(t testing.TB) {
	t.Helper()
	n.tell(t, "restart", func(ctx context.Context, docker *client.Client) error {
		if _, err := docker.ContainerStart(ctx, n.id, client.ContainerStartOptions{}); err != nil {
			return err
		}
		return n.await(ctx)
	})
}

func (n *Node) tell(t testing.TB, what string, f func(context.Context, *client.Client) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := withDocker(ctx, func(docker *client.Client) error { return f(ctx, docker) }); err != nil {
		t.Fatalf("%s: %s %s: %v", n.server.Name, what, n.Addr, err)
	}
}

// dial returns a client of the node alone, which gives up early.
func (n *Node) dial() *redis.Client {
	return dial(n.Endpoint(), time.Second, Name).(*redis.Client)
}

// until calls f with a client of the node until it succeeds, or until ctx ends.
func (n *Node) until(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	rdb := n.dial()
	defer rdb.Close()
	if err := poll(ctx, func() error { return f(ctx, rdb) }); err != nil {
		return fmt.Errorf("%s: %w", n.Addr, err)
	}
	return nil
}

// await returns when the node answers, or has ended.
func (n *Node) await(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := poll(ctx, func() error {
		err := n.ping(ctx)
		if err != nil && n.lastWords(ctx) != "" {
			cancel() // as it would after a wrong argument
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("ping %s: %w", n.Addr, err)
	}
	return nil
}

// lastWords returns what the node wrote last, "" if it has not ended.
func (n *Node) lastWords(ctx context.Context) string {
	var text strings.Builder
	_ = withDocker(ctx, func(docker *client.Client) error {
		state, err := docker.ContainerInspect(ctx, n.id, client.ContainerInspectOptions{})
		if err != nil || state.Container.State.Running {
			return err
		}
		logs, err := docker.ContainerLogs(ctx, n.id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
		if err != nil {
			return err
		}
		defer logs.Close()
		_, err = stdcopy.StdCopy(&text, &text, logs)
		return err
	})
	return text.String()[max(0, text.Len()-1000):]
}

// startNode adds a node that keeps nothing on disk and that clients outside its
// container may use.
func (s *Server) startNode(ctx context.Context, port string, args []string, options ...testcontainers.ContainerCustomizer) error {
	var always []string
	switch s.version {
	case "dragonfly":
		always = []string{"dragonfly", "--port=" + port, "--bind=" + s.bind, "--dbfilename="}
	case "kvrocks":
		always = []string{"--port", port, "--bind", s.bind} // the image has the program as its entry point
	default:
		always = []string{s.binary(), "--port", port, "--bind", s.bind, "--save", "", "--appendonly", "no", "--protected-mode", "no"}
	}
	node, err := s.startProcess(ctx, port, slices.Concat(always, args, s.args), options...)
	if err != nil {
		return err
	}
	s.Nodes = append(s.Nodes, node)
	return nil
}

// binary returns the name of the server's program.
func (s *Server) binary() string {
	kind, _, _ := strings.Cut(s.version, "-")
	return kind + "-server"
}

// startProcess starts a command that listens on one of the server's ports.
func (s *Server) startProcess(ctx context.Context, port string, command []string,
	options ...testcontainers.ContainerCustomizer,
) (*Node, error) {
	c, err := s.run(ctx, command, append(options, s.onNetwork())...)
	if err != nil {
		return nil, err
	}
	n := &Node{Addr: net.JoinHostPort(loopback.String(), port), server: s, id: c.GetContainerID()}
	n.ping = func(ctx context.Context) error {
		rdb := n.dial()
		defer rdb.Close()
		return rdb.Ping(ctx).Err()
	}
	return n, nil
}
