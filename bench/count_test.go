package bench

import (
	"context"
	"fmt"
	"testing"
)

// TestMeter checks that a meter counts what decisions send, and nothing else.
func TestMeter(t *testing.T) {
	rdb := connect(t)
	r := newFloor(rdb)
	const n, key = 200, "user:100000"
	ask := func() {
		for range n {
			if ok, err := r.allow(context.Background(), key); err != nil || !ok {
				t.Fatal(ok, err)
			}
		}
	}
	ask() // makes the script known
	m := startMeter(t, rdb)
	ask()
	m.uncount(t)
	d := m.read(t).plus(m.before, -1).plus(m.idle, -1)
	request := fmt.Sprintf("*4\r\n$7\r\nevalsha\r\n$40\r\n%s\r\n$1\r\n1\r\n$11\r\n%s\r\n", floorScript.Hash(), key)
	if d.shaCalls != n || d.otherCalls != 0 || d.in != n*int64(len(request)) {
		t.Errorf("%d EVALSHA, %d other script calls and %d bytes: want %d, 0 and %d", d.shaCalls, d.otherCalls, d.in, n, n*len(request))
	}
	// A reply has 4 bytes. Two readings differ by a few, because their numbers grow.
	if d.out < 3*n || d.out > 5*n {
		t.Errorf("the replies have %d bytes, want about %d", d.out, 4*n)
	}
	if d.cpuMicros <= 0 || d.scriptMicros <= 0 {
		t.Errorf("the server took %v µs, and %v µs in scripts", d.cpuMicros, d.scriptMicros)
	}
}
