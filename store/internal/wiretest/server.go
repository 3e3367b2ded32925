package wiretest

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

// A Server is a fake server of Redis: the test decides what it replies. It speaks RESP on
// a loopback port, until its test ends.
type Server struct {
	Addr   string
	answer func(args []string) string
	l      net.Listener

	mu       sync.Mutex
	received sync.Cond
	sent     [][]string // the received commands, without those that set up a connection
	conns    []net.Conn
}

// NewServer starts a server. The function answer gets the name of a command in upper case
// and its arguments. It returns the bytes of the reply, or "" to close the connection.
// The server itself answers HELLO, CLIENT and PING: it does not know HELLO and CLIENT.
func NewServer(t *testing.T, answer func(args []string) string) *Server {
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

// Wait waits until n commands were received since the last call of Commands.
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
		args[0] = strings.ToUpper(args[0])
		reply := "-ERR unknown command '" + args[0] + "'\r\n"
		switch args[0] {
		case "HELLO", "CLIENT":
		case "PING":
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

// Commands returns the commands received since the last call. It leaves out COMMAND and
// the requests for the topology, which a cluster client sexpires. reloads is the number
// of requests for the topology.
func (s *Server) Commands() (commands []string, reloads int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, args := range s.sent {
		switch args[0] {
		case "CLUSTER":
			reloads++
		case "COMMAND":
		default:
			commands = append(commands, strings.Join(args, " "))
		}
	}
	s.sent = nil
	return commands, reloads
}

// Conns returns the number of connections made so far.
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

// Shards returns the reply to CLUSTER SLOTS of a cluster with masters at addrs. The slots
// are divided equally.
func Shards(addrs ...string) string {
	const slots = 16384
	reply := fmt.Sprintf("*%d\r\n", len(addrs))
	for i, addr := range addrs {
		host, port, _ := net.SplitHostPort(addr)
		reply += fmt.Sprintf("*3\r\n:%d\r\n:%d\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n",
			slots*i/len(addrs), slots*(i+1)/len(addrs)-1, len(host), host, port)
	}
	return reply
}
