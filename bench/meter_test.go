package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A meter measures what decisions cost servers.
type meter struct {
	nodes        []*redis.Client
	before, idle reading // idle is what taking a reading adds to the next one
	instructions int64   // until uncount
}

// A reading is the sum of the counters of all nodes.
type reading struct {
	shaCalls, otherCalls int64 // of EVALSHA; of EVAL and FCALL
	scriptMicros         int64 // in EVALSHA
	cpuMicros            float64
	in, out              int64 // bytes
}

func (r reading) plus(o reading, times int64) reading {
	return reading{
		r.shaCalls + times*o.shaCalls, r.otherCalls + times*o.otherCalls, r.scriptMicros + times*o.scriptMicros,
		r.cpuMicros + float64(times)*o.cpuMicros, r.in + times*o.in, r.out + times*o.out,
	}
}

func startMeter(tb testing.TB, nodes ...*redis.Client) *meter {
	tb.Helper()
	m := &meter{nodes: nodes}
	first := m.read(tb)
	m.before = m.read(tb)
	m.idle = m.before.plus(first, -1)
	m.count(tb)
	return m
}

// count starts the count of instructions, if the server runs under callgrind.
func (m *meter) count(tb testing.TB) {
	tb.Helper()
	if !counted {
		return
	}
	if err := own.Counter.Start(); err != nil {
		tb.Fatal(err)
	}
}

// uncount ends what count started.
func (m *meter) uncount(tb testing.TB) {
	tb.Helper()
	if !counted {
		return
	}
	n, err := own.Counter.Stop()
	if err != nil {
		tb.Fatal(err)
	}
	m.instructions += n
}

// report reports what each of n decisions cost: the server's time in the script, all of
// its CPU time, and the bytes on the wire. It fails b if the server has run more scripts,
// or others.
func (m *meter) report(b *testing.B, n int) {
	b.Helper()
	m.uncount(b)
	d := m.read(b).plus(m.before, -1).plus(m.idle, -1)
	if d.shaCalls != int64(n) || d.otherCalls != 0 {
		b.Fatalf("%d decisions took %d EVALSHA and %d other script calls: the server has to be idle, and to know the scripts", n, d.shaCalls, d.otherCalls)
	}
	if counted {
		b.ReportMetric(float64(m.instructions)/float64(n), "server-instructions/op")
		return
	}
	b.ReportMetric(float64(d.scriptMicros)/float64(n), "server-µs/op")
	d.report(b, n)
}

// reportAny is report for decisions that are not one EVALSHA.
func (m *meter) reportAny(b *testing.B, n int) {
	b.Helper()
	if !counted {
		m.read(b).plus(m.before, -1).plus(m.idle, -1).report(b, n)
	}
}

func (r reading) report(b *testing.B, n int) {
	b.ReportMetric(r.cpuMicros/float64(n), "server-cpu-µs/op")
	b.ReportMetric(float64(r.in)/float64(n), "sent-B/op")
	b.ReportMetric(float64(r.out)/float64(n), "received-B/op")
}

func (m *meter) read(tb testing.TB) reading {
	tb.Helper()
	var sum reading
	for _, node := range m.nodes {
		r, err := readNode(node)
		if err != nil {
			tb.Fatal(err)
		}
		sum = sum.plus(r, 1)
	}
	return sum
}

// readNode reads three sections of INFO.
func readNode(rdb *redis.Client) (reading, error) {
	info, err := rdb.InfoMap(context.Background(), "commandstats").Result()
	if err != nil {
		return reading{}, err
	}
	var r reading
	for name, text := range info["Commandstats"] { // such as "calls=2,usec=31,usec_per_call=15.50"
		var calls, micros int64
		if _, err := fmt.Sscanf(text, "calls=%d,usec=%d", &calls, &micros); err != nil {
			return reading{}, fmt.Errorf("INFO commandstats: %s: %q: %w", name, text, err)
		}
		switch name {
		case "cmdstat_evalsha":
			r.shaCalls, r.scriptMicros = calls, micros
		case "cmdstat_eval", "cmdstat_fcall":
			r.otherCalls += calls
		}
	}
	numbers, err := readInfo(rdb, "stats", "cpu")
	if err != nil {
		return reading{}, err
	}
	r.in, r.out = int64(numbers["total_net_input_bytes"]), int64(numbers["total_net_output_bytes"])
	// The other threads free memory. Redis 6.0 reports only all threads together.
	thread := "_main_thread"
	if _, ok := numbers["used_cpu_user"+thread]; !ok {
		thread = ""
	}
	r.cpuMicros = 1e6 * (numbers["used_cpu_user"+thread] + numbers["used_cpu_sys"+thread])
	if r.in == 0 || r.out == 0 || r.cpuMicros == 0 {
		return r, errors.New("INFO lacks the CPU time or the bytes on the wire")
	}
	return r, nil
}

// readInfo returns the numbers in sections of INFO.
func readInfo(rdb *redis.Client, sections ...string) (map[string]float64, error) {
	numbers := map[string]float64{}
	for _, section := range sections {
		info, err := rdb.InfoMap(context.Background(), section).Result()
		if err != nil {
			return nil, err
		}
		for _, lines := range info {
			for name, text := range lines {
				if n, err := strconv.ParseFloat(text, 64); err == nil {
					numbers[name] = n
				}
			}
		}
	}
	return numbers, nil
}
