// Package respserver answers a Redis client as a test tells it to, where no real
// server can be made to.
package respserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A Server speaks RESP on a loopback port, until its test ends.
type Server struct {
	Addr   string
	answer func(args []string) string
	l      net.Listener

	mu       sync.Mutex
	received sync.Cond
	sent     [][]string // the commands received, but for those of a connection's set-up
	conns    []net.Conn
}

// New starts a server. Answer returns the reply to a command as it goes over the
// wire, or "" to close the connection. It is not asked about HELLO and CLIENT,
// which are unknown, nor about PING.
func New(t *testing.T, answer func(args []string) string) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: l.Addr().String(), answer: answer, l: l}
	s.received.L = &s.mu
	t.Cleanup(s.Close)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, conn)
			s.mu.Unlock()
			go s.serve(conn)
		}
	}()
	return s
}

// Close stops the server, and closes its connections.
func (s *Server) Close() {
	_ = s.l.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
}

// Wait returns once n commands were received since the last call of Commands.
func (s *Server) Wait(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.sent) < n {
		s.received.Wait()
	}
}

func (s *Server) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for r := bufio.NewReader(conn); ; {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		reply := "-ERR unknown command '" + args[0] + "'\r\n"
		switch strings.ToLower(args[0]) {
		case "hello", "client":
		case "ping":
			reply = "+PONG\r\n"
		default:
			s.mu.Lock()
			s.sent = append(s.sent, args)
			s.mu.Unlock()
			s.received.Broadcast()
			reply = s.answer(args)
		}
		if _, err := io.WriteString(conn, reply); err != nil || reply == "" {
			return
		}
	}
}

// Commands returns what was received since the last call, without what a cluster
// client asks for itself: it counts the requests for the topology.
func (s *Server) Commands() (commands []string, reloads int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, args := range s.sent {
		switch args[0] {
		case "cluster", "CLUSTER":
			reloads++
		case "command", "COMMAND":
		default:
			commands = append(commands, strings.Join(args, " "))
		}
	}
	s.sent = nil
	return commands, reloads
}

// Conns returns how many connections were made so far.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func readCommand(r *bufio.Reader) ([]string, error) {
	n, err := readLen(r, '*')
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		size, err := readLen(r, '$')
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		args[i] = string(b[:size])
	}
	return args, nil
}

func readLen(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("got %q, want a %c", line, kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// Slots is the reply to CLUSTER SLOTS of a cluster that is the one master at
// addr, and its replicas.
func Slots(addr string, replicas ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*1\r\n*%d\r\n:0\r\n:16383\r\n", 3+len(replicas))
	for _, addr := range append([]string{addr}, replicas...) {
		host, port, _ := net.SplitHostPort(addr)
		fmt.Fprintf(&b, "*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
	}
	return b.String()
}

// Shards is the reply to CLUSTER SLOTS of a cluster of the masters at addrs, each of
// which serves as many slots as any other.
func Shards(addrs ...string) string {
	const slots = 16384
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(addrs))
	for i, addr := range addrs {
		host, port, _ := net.SplitHostPort(addr)
		first, last := slots*i/len(addrs), slots*(i+1)/len(addrs)-1
		fmt.Fprintf(&b, "*3\r\n:%d\r\n:%d\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", first, last, len(host), host, port)
	}
	return b.String()
}
