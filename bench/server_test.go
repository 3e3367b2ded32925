package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const serverStart = 10 * time.Second // how long a server may take to start

func TestMain(m *testing.M) {
	code := m.Run()
	own.stop()
	os.Exit(code)
}

// connect returns a client of the server that WEIR_REDIS_ADDR names, or of a server
// that is started for this run. It skips tb if neither is there, or fails tb if
// WEIR_REQUIRE_DOCKER is 1.
func connect(tb testing.TB) *redis.Client {
	tb.Helper()
	addr := os.Getenv("WEIR_REDIS_ADDR")
	if addr == "" {
		addr = own.mustStart(tb)
	}
	rdb := newClient(addr)
	tb.Cleanup(func() { _ = rdb.Close() })
	if err := rdb.Ping(context.Background()).Err(); err != nil {
		tb.Fatalf("the server at %s: %v", addr, err)
	}
	return rdb
}

func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: 32, MaxRetries: -1})
}

// own is the server that this process starts if WEIR_REDIS_ADDR is not set.
var own = server{counted: os.Getenv("WEIR_BENCH_CALLGRIND") == "1"}

// A server is a redis-server on a free port of the loopback interface: a process, or a
// container if no redis-server is installed.
type server struct {
	once sync.Once
	at   string
	err  error
	end  func() // ends the process or the container; nil if there is none

	counted bool       // run it under callgrind
	counter *callgrind // nil unless counted
}

// mustStart starts the server on its first call, and returns its address. It skips tb
// if it cannot, or fails tb if WEIR_REQUIRE_DOCKER is 1.
func (s *server) mustStart(tb testing.TB) string {
	tb.Helper()
	s.once.Do(func() { s.err = s.start() })
	switch {
	case s.err == nil:
	case os.Getenv("WEIR_REQUIRE_DOCKER") == "1":
		tb.Fatalf("WEIR_REDIS_ADDR is not set, no server can be started, and WEIR_REQUIRE_DOCKER is 1: %v", s.err)
	default:
		tb.Skipf("WEIR_REDIS_ADDR is not set, and no server can be started: %v", s.err)
	}
	return s.at
}

// serverArgs are the arguments of every server.
var serverArgs = []string{"--save", "", "--appendonly", "no"}

func (s *server) start() error {
	path, err := exec.LookPath("redis-server")
	switch {
	case err == nil:
		err = s.startProcess(path)
	case s.counted:
	default:
		if other := s.startContainer(); other != nil {
			err = fmt.Errorf("%w; %w", err, other)
		} else {
			err = nil
		}
	}
	if err != nil {
		return err
	}

	for end := time.Now().Add(serverStart); ; time.Sleep(10 * time.Millisecond) {
		err := ping(s.at)
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			s.stop()
			return fmt.Errorf("the server at %s did not start: %w", s.at, err)
		}
	}
}

// ping pings the server at addr. It dials by itself first, because go-redis writes to
// the log if it cannot.
func ping(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	_ = conn.Close()
	rdb := newClient(addr)
	defer func() { _ = rdb.Close() }()
	return rdb.Ping(context.Background()).Err()
}

// startProcess starts the redis-server at path.
func (s *server) startProcess(path string) error {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.at = free.Addr().String()
	host, port, _ := net.SplitHostPort(s.at)
	_ = free.Close()
	args := append([]string{"--bind", host, "--port", port}, serverArgs...)
	cmd, dir := exec.Command(path, args...), ""
	if s.counted {
		if dir, err = os.MkdirTemp("", "weir-bench"); err != nil {
			return err
		}
		cmd = callgrindCommand(dir, path, append(args, "--hz", "1")...) // less work between the decisions
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.end = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // reports the kill
	}
	if s.counted {
		s.counter = &callgrind{pid: cmd.Process.Pid, dir: dir}
	}
	return nil
}

// startContainer starts a server in a container. It pulls no image:
// conformance/integration/images.sh makes it.
func (s *server) startContainer() error {
	image := os.Getenv("WEIR_IMAGE_REDIS_7_0")
	if image == "" {
		image = "redis:7.0"
	}
	run := []string{"run", "--detach", "--rm", "--pull", "never", "--publish", "127.0.0.1::6379", image, "redis-server", "--protected-mode", "no"}
	id, err := docker(append(run, serverArgs...)...)
	if err != nil {
		return fmt.Errorf("%w (conformance/integration/images.sh makes the image)", err)
	}
	s.end = func() { _, _ = docker("rm", "--force", "--volumes", id) }
	if s.at, err = docker("port", id, "6379/tcp"); err != nil {
		s.stop()
	}
	return err
}

// docker runs a command of the Docker client, and returns its output.
func docker(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var problem strings.Builder
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(problem.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

func (s *server) stop() {
	if s.end != nil {
		s.end()
		s.end = nil
	}
	if s.counter != nil {
		_ = os.RemoveAll(s.counter.dir)
	}
}

// A meter measures the server's time in scripts, or all of its instructions.
type meter struct {
	rdb          *redis.Client
	before       scriptStats
	instructions int64 // until uncount
}

type scriptStats struct {
	shaCalls, otherCalls int64 // of EVALSHA; of EVAL and FCALL
	micros               int64 // in EVALSHA
}

func startMeter(tb testing.TB, rdb *redis.Client) *meter {
	tb.Helper()
	before, err := readStats(rdb)
	if err != nil {
		tb.Fatal(err)
	}
	m := &meter{rdb: rdb, before: before}
	m.count(tb)
	return m
}

// count starts the count of instructions, if the server runs under callgrind.
func (m *meter) count(tb testing.TB) {
	tb.Helper()
	if own.counter == nil {
		return
	}
	if err := own.counter.start(); err != nil {
		tb.Fatal(err)
	}
}

// uncount ends what count started.
func (m *meter) uncount(tb testing.TB) {
	tb.Helper()
	if own.counter == nil {
		return
	}
	n, err := own.counter.stop()
	if err != nil {
		tb.Fatal(err)
	}
	m.instructions += n
}

// leaveOut runs f, and does not count what the server does for f.
func (m *meter) leaveOut(tb testing.TB, f func()) {
	tb.Helper()
	m.uncount(tb)
	defer m.count(tb)
	from, err := readStats(m.rdb)
	if err != nil {
		tb.Fatal(err)
	}
	f()
	to, err := readStats(m.rdb)
	if err != nil {
		tb.Fatal(err)
	}
	m.before.shaCalls += to.shaCalls - from.shaCalls
	m.before.otherCalls += to.otherCalls - from.otherCalls
	m.before.micros += to.micros - from.micros
}

// report reports the server's time for each of n decisions. It fails b if the server
// has run more scripts, or others.
func (m *meter) report(b *testing.B, n int) {
	b.Helper()
	m.uncount(b)
	after, err := readStats(m.rdb)
	if err != nil {
		b.Fatal(err)
	}
	calls, others := after.shaCalls-m.before.shaCalls, after.otherCalls-m.before.otherCalls
	if calls != int64(n) || others != 0 {
		b.Fatalf("%d decisions took %d EVALSHA and %d other script calls: the server has to be idle, and to know the scripts", n, calls, others)
	}
	if own.counter != nil {
		b.ReportMetric(float64(m.instructions)/float64(calls), "server-instructions/op")
		return
	}
	b.ReportMetric(float64(after.micros-m.before.micros)/float64(calls), "server-µs/op")
}

// readStats adds up INFO commandstats, which has lines such as
// "cmdstat_evalsha:calls=2,usec=31,usec_per_call=15.50".
func readStats(rdb *redis.Client) (scriptStats, error) {
	info, err := rdb.Info(context.Background(), "commandstats").Result()
	if err != nil {
		return scriptStats{}, err
	}
	var s scriptStats
	for line := range strings.Lines(info) {
		name, fields, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		var calls, micros int64
		for field := range strings.SplitSeq(strings.TrimSpace(fields), ",") {
			switch key, value, _ := strings.Cut(field, "="); key {
			case "calls":
				calls, err = strconv.ParseInt(value, 10, 64)
			case "usec":
				micros, err = strconv.ParseInt(value, 10, 64)
			}
			if err != nil {
				return scriptStats{}, err
			}
		}
		switch name {
		case "cmdstat_evalsha":
			s.shaCalls, s.micros = calls, micros
		case "cmdstat_eval", "cmdstat_fcall":
			s.otherCalls += calls
		}
	}
	if s.shaCalls == 0 {
		return scriptStats{}, errors.New("INFO commandstats has no line of EVALSHA")
	}
	return s, nil
}
