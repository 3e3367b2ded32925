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

// connect returns a client of the server that WEIR_REDIS_ADDR names, or of one
// that is started for this run. It skips tb when there is neither.
func connect(tb testing.TB) *redis.Client {
	tb.Helper()
	addr := os.Getenv("WEIR_REDIS_ADDR")
	if addr == "" {
		var err error
		if addr, err = own.addr(); err != nil {
			tb.Skipf("WEIR_REDIS_ADDR is not set, and no server can be started: %v", err)
		}
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

// own is the server that this process starts when it is given none.
var own = server{counted: os.Getenv("WEIR_BENCH_CALLGRIND") == "1"}

type server struct {
	once sync.Once
	cmd  *exec.Cmd
	at   string
	err  error

	counted bool       // run it under callgrind
	counter *callgrind // nil: it does not
}

// addr starts the server on its first call.
func (s *server) addr() (string, error) {
	s.once.Do(func() { s.err = s.start() })
	return s.at, s.err
}

func (s *server) start() error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.at = free.Addr().String()
	host, port, _ := net.SplitHostPort(s.at)
	_ = free.Close()
	args := []string{"--bind", host, "--port", port, "--save", "", "--appendonly", "no"}
	cmd, dir := exec.Command(path, args...), ""
	if s.counted {
		if dir, err = os.MkdirTemp("", "weir-bench"); err != nil {
			return err
		}
		cmd = callgrindCommand(dir, path, append(args, "--hz", "1")...) // its own chores count too
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	if s.counted {
		s.counter = &callgrind{pid: cmd.Process.Pid, dir: dir}
	}

	rdb := newClient(s.at)
	defer func() { _ = rdb.Close() }()
	for end := time.Now().Add(serverStart); ; time.Sleep(10 * time.Millisecond) {
		err := rdb.Ping(context.Background()).Err()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			s.stop()
			return fmt.Errorf("%s did not start: %w", path, err)
		}
	}
}

func (s *server) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // killed is how it ends
		s.cmd = nil
	}
	if s.counter != nil {
		_ = os.RemoveAll(s.counter.dir)
	}
}

// A meter measures the server's time in scripts since it was started, or all of its
// instructions.
type meter struct {
	rdb          *redis.Client
	before       scriptStats
	instructions int64 // until it was last stopped
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

// count has callgrind count from now on, if the server runs under it.
func (m *meter) count(tb testing.TB) {
	tb.Helper()
	if own.counter == nil {
		return
	}
	if err := own.counter.start(); err != nil {
		tb.Fatal(err)
	}
}

// uncount ends that.
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

// leaveOut runs f, and does not count what it has the server do.
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

// report reports the server's time for each of n decisions, and fails b if
// the server has run more, or other, scripts than these.
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

// readStats adds up what INFO commandstats tells, in lines such as
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
		return scriptStats{}, errors.New("INFO commandstats tells of no EVALSHA")
	}
	return s, nil
}
