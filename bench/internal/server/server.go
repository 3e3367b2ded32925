// Package server starts servers for benchmarks. A server is a container of an image that
// conformance/integration/images.sh made, or a redis-server of the machine if no Docker
// engine answers. It ends with the process that started it.
package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/bench/internal/callgrind"
)

// startTimeout is how long a server may take to start, also on a busy machine.
const startTimeout = time.Minute

// Options are the settings of a server. The zero value is the default.
type Options struct {
	// If Counted is true, the server is a process under Valgrind's callgrind.
	Counted bool

	// Cluster makes the server a node of a cluster. It has no slots yet.
	Cluster bool

	// If IOThreads is not 0, the server is Redis 8.6 in a container, in which IOThreads
	// threads read requests and write replies. 1 is the main thread alone.
	IOThreads int
}

// A Server is a running server that does not wait for its disk and listens on a loopback
// address.
type Server struct {
	Addr    string
	Kind    string             // how it was started, for example "in a container of redis:7.0"
	Counter *callgrind.Counter // nil unless Options.Counted

	cmd  *exec.Cmd
	ping func() error // returns nil if the server answers
	stop func()
	done chan struct{} // closed after cmd has ended
	dir  string        // removed at the end
	log  bytes.Buffer  // what cmd wrote; valid after done
}

// Start starts a Redis server, and returns when it answers.
func Start(o Options) (*Server, error) {
	if o.Counted {
		return start(o, process)
	}
	s, inContainer := start(o, container)
	if inContainer == nil || o.IOThreads > 0 {
		return s, inContainer
	}
	s, err := start(o, process)
	if err != nil {
		err = errors.Join(inContainer, err)
	}
	return s, err
}

func start(o Options, command func(s *Server, o Options) error) (*Server, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "weir-bench")
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: addr, dir: dir, done: make(chan struct{})}
	s.ping = func() error { return ping(addr) }
	if err = command(s, o); err == nil {
		s.cmd.Stderr = &s.log
		err = s.cmd.Start()
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait() // reports the kill
		close(s.done)
	}()
	if o.Counted {
		s.Counter = callgrind.New(s.cmd, dir)
	}
	if err := s.wait(); err != nil {
		s.Stop()
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(s.log.Bytes()))
	}
	return s, nil
}

// wait returns when the server answers.
func (s *Server) wait() error {
	for end := time.Now().Add(startTimeout); ; {
		err := s.ping()
		if err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-s.done:
			return fmt.Errorf("%s ended", s.cmd.Args[0])
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop ends the server.
func (s *Server) Stop() {
	s.stop()
	<-s.done
	_ = os.RemoveAll(s.dir)
}

// freeAddr returns a loopback address on which nothing listens.
func freeAddr() (string, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return free.Addr().String(), free.Close()
}

// args are the arguments of a server that listens on the port of s.
func (s *Server) args(o Options) []string {
	_, port, _ := net.SplitHostPort(s.Addr)
	args := []string{"--port", port, "--save", "", "--appendonly", "no", "--slowlog-log-slower-than", "-1"} // the slow log takes memory
	if o.Cluster {
		// A node does not have to know the others: the client knows which node has a slot.
		args = append(args, "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
	}
	if o.IOThreads > 0 {
		args = append(args, "--io-threads", strconv.Itoa(o.IOThreads))
	}
	return args
}

func process(s *Server, o Options) error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return err
	}
	args := append(s.args(o), "--bind", "127.0.0.1", "--dir", s.dir)
	s.cmd = exec.Command(path, args...)
	if o.Counted {
		s.cmd = callgrind.Command(s.dir, path, append(args, "--hz", "1")...) // less work between the decisions
	}
	s.Kind = "as a process"
	s.stop = func() { _ = s.cmd.Process.Kill() }
	return nil
}

// container starts a Redis server as a container.
func container(s *Server, o Options) error {
	from := image("WEIR_IMAGE_REDIS_7_0", "redis:7.0")
	if o.IOThreads > 0 {
		from = image("WEIR_IMAGE_REDIS_8_6", "redis:8.6")
	}
	return s.contain(from, "", `redis-server --bind "$bind" --protected-mode no "$@" >/dev/null &`, s.args(o)...)
}

// image returns the name of an image, which a variable of the environment can replace.
func image(variable, name string) string { return cmp.Or(os.Getenv(variable), name) }

// contain makes s a container of an image, which it does not pull. The script starts the
// server in the background, on the address bind, as user or, if user is "", as the user of the
// image. The container ends when the standard input of its first process ends, so it never
// outlives this process.
func (s *Server) contain(image, user, script string, args ...string) error {
	if _, err := exec.LookPath("docker"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "docker", "image", "inspect", "--format", "ok", image).CombinedOutput(); err != nil {
		return fmt.Errorf("docker image inspect %s: %w: %s (conformance/integration/images.sh makes the image)", image, err, bytes.TrimSpace(out))
	}
	_, port, _ := net.SplitHostPort(s.Addr)
	run, bind := []string{"--network", "host"}, "127.0.0.1" // without a proxy, which would take time
	if runtime.GOOS != "linux" {
		run, bind = []string{"--publish", s.Addr + ":" + port}, "0.0.0.0"
	}
	run = append([]string{"run", "--rm", "--interactive", "--pull", "never", "--env", "bind=" + bind, "--user", user}, run...)
	run = append(run, "--entrypoint", "sh", image, "-c", script+" cat >/dev/null", "sh")
	s.cmd = exec.Command("docker", append(run, args...)...)
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return err
	}
	s.Kind = "in a container of " + image
	s.stop = func() { _ = in.Close() }
	return nil
}

// ping pings the server at addr. It dials by itself first, because go-redis writes to
// the log if it cannot.
func ping(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	_ = conn.Close()
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer func() { _ = rdb.Close() }()
	return rdb.Ping(context.Background()).Err()
}

// Version returns the name and the version of a server, for example "Redis 7.0.15".
func Version(ctx context.Context, rdb redis.UniversalClient) (string, error) {
	info, err := rdb.InfoMap(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	for _, name := range []string{"Valkey", "Redis"} { // Valkey has both
		if version := info["Server"][strings.ToLower(name)+"_version"]; version != "" {
			return name + " " + version, nil
		}
	}
	return "", errors.New("INFO server has no version")
}

// StartPostgres starts a PostgreSQL server in a container, and returns when it answers.
func StartPostgres() (*Server, error) { return start(Options{}, postgres) }

// URL returns the URL of a PostgreSQL server, for a user who may do everything.
func (s *Server) URL() string { return "postgres://postgres@" + s.Addr + "/postgres" }

// postgresScript starts a server over the database that is in the image, or that initdb makes.
const postgresScript = `d=/var/lib/postgresql/weir
test -s $d/PG_VERSION || initdb --no-sync --auth trust --pgdata $d >/dev/null || exit
echo 'host all all all trust' >>$d/pg_hba.conf
postgres -D $d -c listen_addresses="$bind" -c unix_socket_directories= -c fsync=off -c jit=off "$@" >/dev/null 2>&1 &`

func postgres(s *Server, _ Options) error {
	s.ping = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		conn, err := pgx.Connect(ctx, s.URL())
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	}
	_, port, _ := net.SplitHostPort(s.Addr)
	return s.contain(image("WEIR_IMAGE_POSTGRES_18", "postgres:18"), "postgres", postgresScript, "-p", port)
}
