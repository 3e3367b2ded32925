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

	mu   sync.Mutex
	sent [][]string // the commands received, but for those of a connection's set-up
}

// New starts a server. Answer returns the reply to a command as it goes over the
// wire, or "" to close the connection. It is not asked about HELLO and CLIENT,
// which are unknown.
func New(t *testing.T, answer func(args []string) string) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	s := &Server{Addr: l.Addr().String(), answer: answer}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

func (s *Server) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for r := bufio.NewReader(conn); ; {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		reply := "-ERR unknown command\r\n"
		switch strings.ToLower(args[0]) {
		case "hello", "client":
		default:
			s.mu.Lock()
			s.sent = append(s.sent, args)
			s.mu.Unlock()
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

// Slots is the reply to CLUSTER SLOTS of a cluster that is the one node at addr.
func Slots(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
}
