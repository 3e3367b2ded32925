package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
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
		n.tell(t, "kill", "--signal", "SIGSTOP")
		return
	}
	n.attempt(t, func(ctx context.Context) error {
		var err error
		return errors.Join(poll(ctx, func() error {
			// On a busy machine runc gives up before the kernel has frozen every process.
			if _, err = docker(ctx, "pause", n.id); err != nil && strings.Contains(err.Error(), "unable to freeze") {
				return err
			}
			return nil
		}), err)
	})
}

// Unpause ends what Pause began. The node then serves what it was sent meanwhile.
func (n *Node) Unpause(t testing.TB) {
	t.Helper()
	if n.server.Kind != Postgres {
		n.tell(t, "kill", "--signal", "SIGCONT")
		return
	}
	n.tell(t, "unpause")
}

// Kill ends the node at once, by SIGKILL. Its connections break. A new one is
// refused, or the engine's proxy accepts and closes it.
func (n *Node) Kill(t testing.TB) {
	t.Helper()
	n.tell(t, "kill")
}

// Restart starts a killed node again, at its address, and returns when it
// answers. It remembers its cluster or its sentinels' master, and no key.
func (n *Node) Restart(t testing.TB) {
	t.Helper()
	n.tell(t, "start")
	n.attempt(t, n.await)
}

// tell runs a command of the docker program on the node's container.
func (n *Node) tell(t testing.TB, command ...string) {
	t.Helper()
	n.attempt(t, func(ctx context.Context) error {
		_, err := docker(ctx, append(command, n.id)...)
		return err
	})
}

func (n *Node) attempt(t testing.TB, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := f(ctx); err != nil {
		t.Fatalf("%s: %s: %v", n.server.Name, n.Addr, err)
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
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		if _, err := docker(ctx, "wait", n.id); err == nil {
			cancel() // it has ended, as it would after a wrong argument
		}
	})
	if err := poll(ctx, func() error { return n.ping(ctx) }); err != nil {
		return fmt.Errorf("ping %s: %w", n.Addr, err)
	}
	return nil
}

// lastWords returns what the node wrote last, "" if it has not ended.
func (n *Node) lastWords(ctx context.Context) string {
	if running, err := docker(ctx, "inspect", "--format", "{{.State.Running}}", n.id); err != nil || running == "true" {
		return ""
	}
	text, _ := docker(ctx, "logs", "--tail", "20", n.id)
	return text
}

// startNode adds a node that keeps nothing on disk and that clients outside its
// container may use.
func (s *Server) startNode(ctx context.Context, port string, args ...string) error {
	node, err := s.startProcess(ctx, s.version, port, nil, s.command(port, args)...)
	s.Nodes = append(s.Nodes, node)
	return err
}

// command returns the command line of a node with these arguments.
func (s *Server) command(port string, args []string) []string {
	var always []string
	switch s.version {
	case "dragonfly":
		always = []string{"dragonfly", "--port=" + port, "--bind=" + s.bind, "--dbfilename="}
	case "kvrocks":
		always = []string{"--port", port, "--bind", s.bind} // the image has the program as its entry point
	default:
		always = []string{s.binary(), "--port", port, "--bind", s.bind, "--save", "", "--appendonly", "no", "--protected-mode", "no"}
	}
	return slices.Concat(always, args, s.args)
}

// binary returns the name of the server's program.
func (s *Server) binary() string {
	kind, _, _ := strings.Cut(s.version, "-")
	return kind + "-server"
}

// startProcess starts a command, in the image of a version, that listens on one of the server's
// ports. The flags are of docker run.
func (s *Server) startProcess(ctx context.Context, version, port string, flags []string, command ...string) (*Node, error) {
	n := &Node{Addr: net.JoinHostPort(loopback, port), server: s}
	n.ping = func(ctx context.Context) error {
		rdb := n.dial()
		defer rdb.Close()
		return rdb.Ping(ctx).Err()
	}
	var err error
	n.id, err = s.run(ctx, version, append(flags, "--network", s.network), command...)
	return n, err
}

// withFile returns the flags and the command of a container that first writes a file. After a
// restart, it finds the file as it left it.
func withFile(path, text string, command ...string) (flags, all []string) {
	const script = `{ test -s "$0" || printf %s "$WEIR_FILE" >"$0"; } && exec "$@"`
	return []string{"--env", "WEIR_FILE=" + text, "--entrypoint", "sh"}, append([]string{"-c", script, path}, command...)
}
