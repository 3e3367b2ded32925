package algorithm_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A leases is a Concurrency over one key.
type leases struct {
	t       testing.TB
	state   *state
	limit   algorithm.Limit
	program *algorithm.Program
	refund  *store.Script
}

func newLeases(t testing.TB, limit int64, lease time.Duration) *leases {
	t.Helper()
	l := mustLimit(t, algorithm.Concurrency{Limit: limit, Lease: lease})
	p := mustCompose(t, l.Fragment())
	refund, err := p.Refund()
	if err != nil {
		t.Fatal(err)
	}
	return &leases{t, newState(epoch, 1), l, p, refund}
}

// run runs script for r at now, and returns the number in the reply's head and the
// verdict.
func (l *leases) run(script *store.Script, now int64, r algorithm.Request) (int64, algorithm.Verdict) {
	l.t.Helper()
	l.state.now = now
	before := l.state.writes
	reply, err := script.GoForm()(l.state, l.limit.AppendArgs(l.program.AppendNow(nil, 0), r), nil)
	if err != nil {
		l.t.Fatal(err)
	}
	head, at, err := l.program.Outcome(reply)
	if err != nil {
		l.t.Fatal(err)
	}
	if script != l.program.Decide {
		if script == l.program.Peek && l.state.writes != before {
			l.t.Fatal("a peek wrote")
		}
		return head, l.limit.Verdict(at, false, l.program.State(reply, 0), r)
	}
	v := l.limit.Verdict(at, head == 1, l.program.State(reply, 0), r)
	if v.Allowed != (head == 1) {
		l.t.Fatalf("the script says %d and the verdict %+v", head, v)
	}
	if head == 0 && l.state.writes != before {
		l.t.Fatal("a denial wrote")
	}
	return head, v
}

func (l *leases) take(now int64, name string) algorithm.Verdict {
	l.t.Helper()
	_, v := l.run(l.program.Decide, now, algorithm.Request{Cost: 1, Lease: name})
	return v
}

func (l *leases) release(now int64, name string) bool {
	l.t.Helper()
	head, _ := l.run(l.refund, now, algorithm.Request{Cost: 1, Lease: name})
	return head == 1
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	l := newLeases(t, 2, 10*time.Second)
	const s = int64(1_000_000)
	for i, step := range []struct {
		at   int64
		verb string
		name string
		want algorithm.Verdict // of a release: Allowed says that it was held
	}{
		{0, "release", "a", algorithm.Verdict{}},
		{0, "renew", "a", algorithm.Verdict{Limit: 2, Remaining: 2, RetryAfter: never}},
		{0, "take", "a", algorithm.Verdict{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: 10 * time.Second}},
		{0, "take", "a", algorithm.Verdict{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: 10 * time.Second}},
		{4 * s, "take", "b", algorithm.Verdict{Allowed: true, Limit: 2, ResetAfter: 10 * time.Second}},
		{5 * s, "take", "c", algorithm.Verdict{Limit: 2, RetryAfter: 5 * time.Second, ResetAfter: 9 * time.Second}},
		{5 * s, "peek", "", algorithm.Verdict{Limit: 2, RetryAfter: 5 * time.Second, ResetAfter: 9 * time.Second}},
		{5 * s, "peek", "b", algorithm.Verdict{Allowed: true, Limit: 2, ResetAfter: 9 * time.Second}},
		{5 * s, "renew", "c", algorithm.Verdict{Limit: 2, RetryAfter: never, ResetAfter: 9 * time.Second}},
		{6 * s, "renew", "a", algorithm.Verdict{Allowed: true, Limit: 2, ResetAfter: 10 * time.Second}},
		{6 * s, "take", "c", algorithm.Verdict{Limit: 2, RetryAfter: 8 * time.Second, ResetAfter: 10 * time.Second}},
		{3 * s, "renew", "a", algorithm.Verdict{Allowed: true, Limit: 2, ResetAfter: 13 * time.Second}}, // no shorter
		{14*s - 1, "take", "c", algorithm.Verdict{Limit: 2, RetryAfter: us, ResetAfter: 2*time.Second + us}},
		{14 * s, "take", "c", algorithm.Verdict{Allowed: true, Limit: 2, ResetAfter: 10 * time.Second}},
		{14 * s, "release", "b", algorithm.Verdict{}}, // late: c has its place
		{14 * s, "take", "d", algorithm.Verdict{Limit: 2, RetryAfter: 2 * time.Second, ResetAfter: 10 * time.Second}},
		{15 * s, "release", "a", algorithm.Verdict{Allowed: true}},
		{15 * s, "release", "a", algorithm.Verdict{}},
		{15 * s, "take", "d", algorithm.Verdict{Allowed: true, Limit: 2, ResetAfter: 10 * time.Second}},
		{25 * s, "peek", "", algorithm.Verdict{Allowed: true, Limit: 2, Remaining: 2}},
		{25 * s, "renew", "d", algorithm.Verdict{Limit: 2, Remaining: 2, RetryAfter: never}},
		{25 * s, "take", "e", algorithm.Verdict{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: 10 * time.Second}},
		{26 * s, "release", "e", algorithm.Verdict{Allowed: true}},
		{26 * s, "peek", "", algorithm.Verdict{Allowed: true, Limit: 2, Remaining: 2}},
	} {
		var got algorithm.Verdict
		r := algorithm.Request{Cost: 1, Lease: step.name, RenewOnly: step.verb == "renew"}
		switch step.verb {
		case "release":
			got.Allowed = l.release(epoch+step.at, step.name)
		case "peek":
			_, got = l.run(l.program.Peek, epoch+step.at, r)
		default:
			_, got = l.run(l.program.Decide, epoch+step.at, r)
		}
		if got != step.want {
			t.Errorf("step %d, %s %q at %d s:\ngot  %+v\nwant %+v", i, step.verb, step.name, step.at/s, got, step.want)
		}
	}
	if l.state.keys[0].held {
		t.Errorf("the last lease was released, and the key holds %v", l.state.keys[0].set)
	}
}

// A key that is under a lowered limit lets holders renew, and nobody in before
// enough of them are gone.
func TestConcurrencyLowered(t *testing.T) {
	t.Parallel()
	l := newLeases(t, 5, 10*time.Second)
	for i := range int64(5) {
		l.take(epoch+i, fmt.Sprint(i))
	}
	l.limit = mustLimit(t, algorithm.Concurrency{Limit: 2, Lease: 10 * time.Second})
	ask := func(want time.Duration, r algorithm.Request) {
		t.Helper()
		if _, v := l.run(l.program.Peek, epoch+4, r); v.Allowed != (want == 0) || v.RetryAfter != want || v.Remaining != 0 {
			t.Errorf("%+v: got %+v, want a wait of %v", r, v, want)
		}
	}
	ask(10*time.Second-us, algorithm.Request{Cost: 1, Lease: "x"})
	ask(10*time.Second-2*us, algorithm.Request{})
	ask(0, algorithm.Request{Cost: 1, Lease: "0"})
	ask(0, algorithm.Request{Cost: 1, Lease: "4", RenewOnly: true})
	ask(never, algorithm.Request{Cost: 3})
}

// What the key holds, dead leases among them, is never more than the limit, and
// after it was lowered does not grow. So a clock that steps back, by however much,
// revives no more than fit.
func TestConcurrencyHolds(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, limit := range []int64{1, 2, 5, 40} {
		l := newLeases(t, limit, time.Second)
		l.state.keep = true
		now := int64(epoch)
		for i := range 3000 {
			now += r.Int64N(2_000_000/limit) - r.Int64N(500_000/limit)
			if i%40 == 0 {
				now -= 3_000_000
			}
			l.take(now, fmt.Sprint(r.Int64N(3*limit)))
			n := int64(len(l.state.keys[0].set))
			if n > limit {
				t.Fatalf("step %d: %d leases, dead ones among them, want at most %d", i, n, limit)
			}
			if last := l.state.keys[0].set[n-1].Score; l.state.keys[0].expires < last {
				t.Fatalf("step %d: the key expires at %d, before its last lease at %d", i, l.state.keys[0].expires, last)
			}
		}
	}
}

func TestConcurrencyRequests(t *testing.T) {
	t.Parallel()
	check := mustLimit(t, algorithm.Concurrency{Limit: 5, Lease: time.Second}).(algorithm.RequestChecker)
	for _, tt := range []struct {
		name string
		r    algorithm.Request
		want error
		says string
	}{
		{"one byte", algorithm.Request{Cost: 1, Lease: "\x00"}, nil, ""},
		{"longest", algorithm.Request{Cost: 1, Lease: strings.Repeat("\xff", 128)}, nil, ""},
		{"too long", algorithm.Request{Cost: 1, Lease: strings.Repeat("x", 129)}, algorithm.ErrInvalidLease, "129 bytes: it must have at most 128"},
		{"too long to ask", algorithm.Request{Lease: strings.Repeat("x", 129)}, algorithm.ErrInvalidLease, "at most 128"},
		{"peeks", algorithm.Request{Cost: 1}, nil, ""},
		{"asks", algorithm.Request{}, nil, ""},
		{"two", algorithm.Request{Cost: 2, Lease: "x"}, algorithm.ErrInvalidCost, "give its rule the Cost 1"},
		{"negative", algorithm.Request{Cost: -1, Lease: "x"}, algorithm.ErrInvalidCost, "cost 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := check.CheckRequest(tt.r); !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("CheckRequest of %+v = %v, want %v that says %q", tt.r, err, tt.want, tt.says)
			}
		})
	}
}

// At the bounds of time no number passes what can be counted.
func TestConcurrencyAtTheBounds(t *testing.T) {
	t.Parallel()
	for _, now := range []int64{1, epoch, 1<<52 - 1} {
		l := newLeases(t, 1, maxSpan)
		if v := l.take(now, "a"); !v.Allowed || v.ResetAfter != maxSpan {
			t.Errorf("at %d: got %+v, want it allowed, and over after %v", now, v, maxSpan)
		}
		if v := l.take(now, "b"); v.Allowed || v.RetryAfter != maxSpan {
			t.Errorf("at %d: got %+v, want a wait of %v", now, v, maxSpan)
		}
		if got := l.state.keys[0].set[0].Score; got >= 1<<53 {
			t.Errorf("at %d: the lease is over at %d, beyond 2^53", now, got)
		}
	}
}

// A member that is no lease is someone else's.
func TestConcurrencyForeign(t *testing.T) {
	t.Parallel()
	for _, v := range []value{
		{nums: store.Nums{Tag: store.Tag{'c', '1'}, Len: 1}},
		{set: []store.Member{{Score: epoch + 1, Text: "c2 a"}}},
		{set: []store.Member{{Score: epoch + 1, Text: "c1"}}},
		{set: []store.Member{{Score: epoch + 1, Text: ""}}},
		{set: []store.Member{{Score: epoch + 1, Text: "l1 1767225600000000 00000001"}}},
	} {
		l := newLeases(t, 1, time.Second)
		v.held, v.expires = true, 1<<60
		l.state.keys[0] = v
		args := l.limit.AppendArgs(l.program.AppendNow(nil, 0), algorithm.Request{Cost: 1, Lease: "a"})
		for _, script := range []*store.Script{l.program.Decide, l.program.Peek, l.program.Reset, l.refund} {
			if _, err := script.GoForm()(l.state, args, nil); !errors.Is(err, store.ErrForeign) {
				t.Errorf("%s of %+v: got error %v, want ErrForeign", script.Name(), v, err)
			}
		}
		if l.state.writes != 0 {
			t.Errorf("%+v was written to", v)
		}
	}
}
