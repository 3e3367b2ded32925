package algorithm_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

func newLeases(t testing.TB, limit int64, lease time.Duration) *bench {
	return newBench(t, algorithm.Concurrency{Limit: limit, Lease: lease})
}

// lease runs v for the lease with this name. For a release, Allowed says whether the
// lease was held.
func (b *bench) lease(v script.Verb, now int64, name string) (got verdict) {
	c := compose.Call{Cost: 1, Text: name}
	if v != script.Release {
		_, got = b.do(v, now, c)
		return got
	}
	b.state.now = now
	reply, err := b.program.Script(v).GoForm()(b.state, b.program.AppendArgs(nil, v, &c), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return verdict{Allowed: reply[0].Int() == 1}
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	b := newLeases(t, 2, 10*time.Second)
	const s = int64(1_000_000)
	const acquire, peek, renew, release = script.Consume, script.Peek, script.Renew, script.Release
	for i, step := range []struct {
		at   int64
		verb script.Verb
		name string
		want verdict // for a release, Allowed says whether the lease was held
	}{
		{0, release, "a", verdict{}},
		{0, renew, "a", verdict{Limit: 2, Remaining: 2, RetryAfter: never}},
		{0, acquire, "a", verdict{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: 10 * time.Second}},
		{0, acquire, "a", verdict{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: 10 * time.Second}},
		{4 * s, acquire, "b", verdict{Allowed: true, Limit: 2, ResetAfter: 10 * time.Second}},
		{5 * s, acquire, "c", verdict{Limit: 2, RetryAfter: 5 * time.Second, ResetAfter: 9 * time.Second}},
		{5 * s, peek, "", verdict{Limit: 2, RetryAfter: 5 * time.Second, ResetAfter: 9 * time.Second}},
		{5 * s, peek, "b", verdict{Allowed: true, Limit: 2, ResetAfter: 9 * time.Second}},
		{5 * s, renew, "c", verdict{Limit: 2, RetryAfter: never, ResetAfter: 9 * time.Second}},
		{6 * s, renew, "a", verdict{Allowed: true, Limit: 2, ResetAfter: 10 * time.Second}},
		{6 * s, acquire, "c", verdict{Limit: 2, RetryAfter: 8 * time.Second, ResetAfter: 10 * time.Second}},
		{3 * s, renew, "a", verdict{Allowed: true, Limit: 2, ResetAfter: 13 * time.Second}}, // not shortened
		{14*s - 1, acquire, "c", verdict{Limit: 2, RetryAfter: us, ResetAfter: 2*time.Second + us}},
		{14 * s, acquire, "c", verdict{Allowed: true, Limit: 2, ResetAfter: 10 * time.Second}},
		{14 * s, release, "b", verdict{}}, // it has expired, and c has taken its place
		{14 * s, acquire, "d", verdict{Limit: 2, RetryAfter: 2 * time.Second, ResetAfter: 10 * time.Second}},
		{15 * s, release, "a", verdict{Allowed: true}},
		{15 * s, release, "a", verdict{}},
		{15 * s, acquire, "d", verdict{Allowed: true, Limit: 2, ResetAfter: 10 * time.Second}},
		{25 * s, peek, "", verdict{Allowed: true, Limit: 2, Remaining: 2}},
		{25 * s, renew, "d", verdict{Limit: 2, Remaining: 2, RetryAfter: never}},
		{25 * s, acquire, "e", verdict{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: 10 * time.Second}},
		{26 * s, release, "e", verdict{Allowed: true}},
		{26 * s, peek, "", verdict{Allowed: true, Limit: 2, Remaining: 2}},
	} {
		if got := b.lease(step.verb, epoch+step.at, step.name); got != step.want {
			t.Errorf("step %d, verb %d of %q at %d s:\ngot  %+v\nwant %+v", i, step.verb, step.name, step.at/s, got, step.want)
		}
	}
	if b.state.keys[0].held {
		t.Errorf("the last lease was released, and the key holds %v", b.state.keys[0].set)
	}
}

// If Limit is lowered, holders can renew. A new lease is denied until enough leases have
// expired.
func TestConcurrencyLowered(t *testing.T) {
	t.Parallel()
	b := newLeases(t, 5, 10*time.Second)
	for i := range int64(5) {
		b.lease(script.Consume, epoch+i, fmt.Sprint(i))
	}
	b.change(algorithm.Concurrency{Limit: 2, Lease: 10 * time.Second})
	ask := func(want time.Duration, v script.Verb, c compose.Call) {
		t.Helper()
		if _, got := b.do(v, epoch+4, c); got.Allowed != (want == 0) || got.RetryAfter != want || got.Remaining != 0 {
			t.Errorf("%+v: got %+v, want a wait of %v", c, got, want)
		}
	}
	ask(10*time.Second-us, script.Peek, compose.Call{Cost: 1, Text: "x"})
	ask(0, script.Peek, compose.Call{Cost: 1, Text: "0"})
	ask(10*time.Second, script.Peek, compose.Call{Cost: 2})
	ask(never, script.Peek, compose.Call{Cost: 3})
	ask(0, script.Renew, compose.Call{Cost: 1, Text: "4"})
}

// A lease costs 1. The limiter rejects other costs by MaxCost.
func TestConcurrencyCost(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int64]int64{1: 0, 2: 1, algorithm.MaxLog: 1} {
		l := mustLimit(t, algorithm.Concurrency{Limit: limit, Lease: time.Second})
		if l.Capacity != limit || l.MaxCost != want || l.Lease != time.Second {
			t.Errorf("limit %d: got %+v, want a MaxCost of %d", limit, l, want)
		}
	}
}

// At the bounds of time, no number reaches 2^53.
func TestConcurrencyAtTheBounds(t *testing.T) {
	t.Parallel()
	for _, now := range []int64{1, epoch, 1<<52 - 1} {
		b := newLeases(t, 1, maxSpan)
		if got := b.lease(script.Consume, now, "a"); !got.Allowed || got.ResetAfter != maxSpan {
			t.Errorf("at %d: got %+v, want it allowed, and reset after %v", now, got, maxSpan)
		}
		if got := b.lease(script.Consume, now, "b"); got.Allowed || got.RetryAfter != maxSpan {
			t.Errorf("at %d: got %+v, want a wait of %v", now, got, maxSpan)
		}
		if got := b.state.keys[0].set[0].Score; got >= 1<<53 {
			t.Errorf("at %d: the lease expires at %d, beyond 2^53", now, got)
		}
	}
}

// A member that is not a lease is foreign.
func TestConcurrencyForeign(t *testing.T) {
	t.Parallel()
	for _, v := range []value{
		{nums: store.Nums{Tag: store.Tag{'c', '2'}, Len: 1}},
		{set: []store.Member{{Score: epoch + 1, Text: "c1 a"}}},
		{set: []store.Member{{Score: epoch + 1, Text: "c2"}}},
		{set: []store.Member{{Score: epoch + 1, Text: ""}}},
		{set: []store.Member{{Score: epoch + 1, Text: "l3 1767225600000000 0000001 0 1"}}},
	} {
		for _, verb := range []script.Verb{script.Consume, script.Peek, script.Renew, script.Release, script.Reset} {
			b := newLeases(t, 1, time.Second)
			v.held, v.expires = true, 1<<60
			b.state.keys[0] = v
			args := b.program.AppendArgs(nil, verb, &compose.Call{Cost: 1, Text: "a"})
			if _, err := b.program.Script(verb).GoForm()(b.state, args, nil); !errors.Is(err, store.ErrForeign) || b.state.writes > 0 {
				t.Errorf("%s over %+v: error %v, %d writes, want ErrForeign and none", b.program.Script(verb).Name(), v, err, b.state.writes)
			}
		}
	}
}
