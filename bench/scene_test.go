package bench

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A scene is what a benchmark asks a remote.
type scene struct {
	*remote

	allowed bool                 // what every answer has to be
	prepare func(testing.TB)     // not measured
	key     func(i int) []string // of decision i
}

// run returns a benchmark that asks in pipelines of depth calls, so that the
// server is busy with scripts, and reports its time for each as server-µs/op. Do not
// compare the time of the client.
func (s scene) run(rdb *redis.Client) func(*testing.B) {
	return func(b *testing.B) {
		s.prepare(b)
		m := startMeter(b, rdb)
		asked := 0
		for b.Loop() {
			s.ask(b, asked, s.allowed, s.key(asked))
			asked++
		}
		s.send(b, asked%depth, s.allowed)
		m.report(b, asked)
	}
}

// ask queues request i, and sends the pipeline if that fills it.
func (r *remote) ask(tb testing.TB, i int, allowed bool, key []string) {
	tb.Helper()
	if err := r.queue(context.Background(), key...); err != nil {
		tb.Fatal(err)
	}
	if (i+1)%depth == 0 {
		r.send(tb, depth, allowed)
	}
}

// send sends the n queued requests. All of them have to be allowed, or none.
func (r *remote) send(tb testing.TB, n int, allowed bool) {
	tb.Helper()
	if n == 0 {
		return
	}
	want := 0
	if allowed {
		want = n
	}
	if got, err := r.flush(context.Background()); err != nil || got != want {
		tb.Fatalf("%s: %d of %d requests were allowed, error %v: want %d", r.name, got, n, err, want)
	}
}

// askAll sends n requests.
func (r *remote) askAll(tb testing.TB, n int, allowed bool, key func(i int) []string) {
	tb.Helper()
	for i := range n {
		r.ask(tb, i, allowed, key(i))
	}
	r.send(tb, n%depth, allowed)
}
