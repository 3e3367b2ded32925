package weir_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A fake is an algorithm whose NewLimit returns the limit and the error of a test.
type fake struct {
	limit *contract.Limit
	err   error
}

func (f fake) NewLimit() (*contract.Limit, error) { return f.limit, f.err }

// wantError is weirtest.WantError for the errors of this package.
func wantError(t testing.TB, err, want error, says string) {
	t.Helper()
	weirtest.WantError(t, err, want, "weir", says)
}

// NewPolicy rejects invalid policies, stores and limits, and says what would be right.
func TestNewPolicyRejects(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	many := make([]weir.Rule, weir.MaxRules+1)
	for i := range many {
		many[i] = weir.Rule{Name: string(rune('a' + i)), Algorithm: weirtest.PerSecond}
	}
	long := strings.Repeat("x", weir.MaxSegment+1)
	x := func(r weir.Rule) weir.Policy { r.Name = "x"; return weirtest.Rules(r) }
	by := func(sets ...[]string) weir.Policy {
		p := weir.Policy{Segments: []string{"ip", "user", "token"}}
		for i, set := range sets {
			p.Rules = append(p.Rules, weir.Rule{Name: string(rune('a' + i)), By: set, Algorithm: weirtest.PerSecond})
		}
		return p
	}
	kind := &contract.MeterKind{Head: contract.Head{Name: "mine", Tag: store.Tag{'z', '1'}}}
	for _, tt := range []struct {
		name   string
		store  store.Store
		policy weir.Policy
		want   error // nil: any
		says   string
	}{
		{"no store", nil, weirtest.Rules(many[0]), nil, "store is nil"},
		{"a store that cannot work", memory.New(&memory.Options{MaxKeys: -1}), weirtest.Rules(many[0]), nil, "MaxKeys is -1"},
		{"a zero memory store", &memory.Store{}, weirtest.Rules(many[0]), nil, "make one with New"},
		{"a nil memory store", (*memory.Store)(nil), weirtest.Rules(many[0]), nil, "make one with New"},
		{"a long name", st, weir.Policy{Name: long, Rules: many[:1]}, weir.ErrInvalidRule, "129 bytes"},
		{"no segments", st, weir.Policy{Segments: []string{}, Rules: many[:1]}, weir.ErrInvalidRule, "from 1 to 8"},
		{"nine segments", st, weir.Policy{Segments: strings.Split("abcdefghi", ""), Rules: many[:1]}, weir.ErrInvalidRule, "9 names"},
		{"an empty segment", st, weir.Policy{Segments: []string{"ip", ""}, Rules: many[:1]}, weir.ErrInvalidRule, "Policy.Segments[1] is empty"},
		{"a segment twice", st, weir.Policy{Segments: []string{"ip", "ip"}, Rules: many[:1]}, weir.ErrInvalidRule, `"ip"`},
		{"an unknown secret", st, weir.Policy{Secret: []string{"token"}, Rules: many[:1]}, weir.ErrInvalidRule, `Policy.Secret names the segment "token", which does not exist: the segments are "key"`},
		{"no rules", st, weirtest.Rules(), weir.ErrInvalidRule, "from 1 to 16"},
		{"17 rules", st, weirtest.Rules(many...), weir.ErrInvalidRule, "17 rules"},
		{"no algorithm", st, x(weir.Rule{}), weir.ErrInvalidRule, `rule "x": its Algorithm is nil`},
		{"an invalid limit", st, weirtest.Rules(many[0], weir.Rule{Name: "x", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1)}}), weir.ErrInvalidLimit, `weir: rule "x": GCRA.Burst is 0`},
		{"a bare error of the algorithm", st, weirtest.Rules(weir.Rule{Algorithm: fake{err: algorithm.ErrInvalidLimit}}), weir.ErrInvalidLimit, "weir: rule 0: invalid limit"},
		{"no limit", st, x(weir.Rule{Algorithm: fake{}}), weir.ErrInvalidRule, "returned no limit"},
		{"a limit without kind", st, x(weir.Rule{Algorithm: fake{limit: &contract.Limit{Capacity: 1}}}), weir.ErrInvalidRule, "without a Kind"},
		{"a limit without capacity", st, x(weir.Rule{Algorithm: fake{limit: &contract.Limit{Kind: kind}}}), weir.ErrInvalidRule, "Capacity 0"},
		{"a kind without arithmetic", st, x(weir.Rule{Algorithm: fake{limit: &contract.Limit{Kind: kind, Capacity: 1}}}), weir.ErrInvalidRule, "kind mine"},
		{"no names", st, weirtest.Rules(weir.Rule{Algorithm: weirtest.PerSecond}, weir.Rule{Algorithm: weirtest.PerSecond}), weir.ErrInvalidRule, "rule 0 has no Name"},
		{"one name missing", st, weirtest.Rules(many[0], weir.Rule{Algorithm: weirtest.PerSecond}), weir.ErrInvalidRule, "rule 1 has no Name"},
		{"one name twice", st, weirtest.Rules(many[0], many[1], many[0]), weir.ErrInvalidRule, `"a"`},
		{"a long rule name", st, weirtest.Rules(weir.Rule{Name: long, Algorithm: weirtest.PerSecond}), weir.ErrInvalidRule, "129 bytes"},
		{"negative cost", st, x(weir.Rule{Algorithm: weirtest.PerSecond, Cost: -1}), weir.ErrInvalidRule, "-1"},
		{"a cost above the capacity", st, x(weir.Rule{Algorithm: weirtest.PerSecond, Cost: 6}), weir.ErrInvalidRule, "Cost is 6: it must be at most 5"},
		{"by nothing", st, by([]string{}), weir.ErrInvalidRule, `rule "a": By is empty`},
		{"by an unknown segment", st, by([]string{"address"}), weir.ErrInvalidRule, `rule "a": By names the segment "address", which does not exist: the segments are "ip", "user", "token"`},
		{"by one segment twice", st, by([]string{"ip", "user", "ip"}), weir.ErrInvalidRule, `"ip" twice`},
		{"nothing in common", st, by([]string{"ip"}, []string{"user"}), weir.ErrInvalidRule, "in common"},
		{"nothing in common among three", st, by([]string{"ip", "user"}, []string{"user", "token"}, []string{"ip", "token"}), weir.ErrInvalidRule, "in common"},
		{"leases and metadata", st, weirtest.Rules(
			weir.Rule{Name: "a", Algorithm: algorithm.Concurrency{Limit: 1, Lease: time.Second}},
			weir.Rule{Name: "b", Algorithm: algorithm.MetadataWindow{Limit: 1, Window: time.Second}},
		), weir.ErrInvalidRule, "cannot share a limiter"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.policy.Name == "" {
				tt.policy.Name = "t"
			}
			l, err := weir.NewPolicy(tt.store, tt.policy, nil)
			if l != nil {
				t.Errorf("got a limiter with %v", err)
			}
			wantError(t, err, tt.want, tt.says)
		})
	}
}

// Misuse is rejected before the store is called.
func TestMisuse(t *testing.T) {
	t.Parallel()
	st := &recorder{Store: memory.New(nil)}
	one := weirtest.New(t, st, weirtest.PerSecond)
	three := weirtest.NewPolicy(t, st, weir.Policy{Segments: []string{"ip", "account", "host"}, Rules: []weir.Rule{
		{Name: "a", By: []string{"ip"}, Algorithm: weirtest.PerSecond}, {Name: "b", By: []string{"ip", "host"}, Algorithm: weirtest.Window(5, time.Minute)},
	}})
	costs := weirtest.NewPolicy(t, st, weirtest.Rules(weir.Rule{Name: "a", Algorithm: weirtest.PerSecond, Cost: 1}))
	kept := weirtest.New(t, st, algorithm.MetadataWindow{Limit: 5, Window: time.Minute})
	leases := weirtest.NewPolicy(t, st, weirtest.Rules(weir.Rule{Name: "jobs", Algorithm: algorithm.Concurrency{Limit: 5, Lease: time.Minute}}, weir.Rule{Name: "rate", Algorithm: weirtest.PerSecond}))
	u, abc := weir.KeyOf("u"), weir.KeyOf("a", "b", "c")
	ctx := t.Context()
	decide := func(l *weir.Limiter, r weir.Request) func() error {
		if r.Key == (weir.Key{}) {
			r.Key = u
		}
		return func() error { _, err := l.Decide(ctx, r, nil); return err }
	}
	for _, tt := range []struct {
		name string
		call func() error
		want error // nil: any
		says string
	}{
		{"negative cost", decide(one, weir.Request{Cost: -1}), weir.ErrInvalidCost, "-1"},
		{"negative cost, to peek", decide(one, weir.Request{Cost: -1, Op: weir.Peek}), weir.ErrInvalidCost, "-1"},
		{"negative cost, to refund", decide(one, weir.Request{Cost: -1, Op: weir.Refund, ID: "x"}), weir.ErrInvalidCost, "-1"},
		{"no key", func() error { _, err := one.Allow(ctx); return err }, weir.ErrInvalidKey, `0 segments: it must have 1: "key"`},
		{"a zero key", func() error { _, err := one.Decide(ctx, weir.Request{}, nil); return err }, weir.ErrInvalidKey, "0 segments"},
		{"an empty segment", func() error { _, err := one.Allow(ctx, ""); return err }, weir.ErrInvalidKey, `"key" is empty`},
		{"a key too short", func() error { _, err := three.Allow(ctx, "a", "b"); return err }, weir.ErrInvalidKey, `2 segments: it must have 3: "ip", "account", "host"`},
		{"a key too long", func() error { _, err := three.Allow(ctx, "a", "b", "c", "d"); return err }, weir.ErrInvalidKey, "4 segments"},
		{"nine segments", func() error {
			_, err := three.Allow(ctx, "a", "b", "c", "d", "e", "f", "g", "h", "i")
			return err
		}, weir.ErrInvalidKey, "9 segments"},
		{"an empty segment that no rule is by", func() error { return three.Reset(ctx, "a", "", "c") }, weir.ErrInvalidKey, `"account" is empty`},
		{"each too short", func() error {
			_, err := three.Decide(ctx, weir.Request{Key: abc}, make([]weir.Result, 1))
			return err
		}, nil, "each has 1 elements: it must have one for each of the 2 rules"},
		{"no such op", decide(one, weir.Request{Op: 99}), weir.ErrUnsupported, "Op(99)"},
		{"up to 0", func() error { _, err := one.TakeUpTo(ctx, 0, "u"); return err }, weir.ErrInvalidCost, "0"},
		{"up to a negative number", func() error { _, err := one.TakeUpTo(ctx, -1, "u"); return err }, weir.ErrInvalidCost, "-1"},
		{"up to, ahead of time", decide(one, weir.Request{Op: weir.TakeUpTo, MaxWait: time.Second}), weir.ErrUnsupported, "MaxWait"},
		{"up to, with costs of the rules", decide(costs, weir.Request{Op: weir.TakeUpTo}), weir.ErrUnsupported, "every rule has a Cost"},
		{"up to, leases", decide(leases, weir.Request{Op: weir.TakeUpTo, ID: "x"}), weir.ErrUnsupported, `"jobs" is a concurrency`},
		{"a negative wait", decide(one, weir.Request{MaxWait: -1}), nil, "0 or more"},
		{"a wait for a window", decide(three, weir.Request{Key: abc, MaxWait: 1}), weir.ErrUnsupported, `"b" is a fixedwindow`},
		{"a refund without ID", func() error { _, err := one.Refund(ctx, weir.Request{Key: u}); return err }, weir.ErrInvalidKey, "ID"},
		{"a refund without key", func() error { _, err := one.Refund(ctx, weir.Request{ID: "x"}); return err }, weir.ErrInvalidKey, "segments"},
		{"a refund of metadata", func() error { _, err := kept.Refund(ctx, weir.Request{Key: u, ID: "x"}); return err }, weir.ErrUnsupported, "metadatawindow"},
		{"an ID for metadata", decide(kept, weir.Request{ID: "x"}), weir.ErrUnsupported, "Request.ID"},
		{"a refund of leases", func() error { _, err := leases.Refund(ctx, weir.Request{Key: u, ID: "x"}); return err }, weir.ErrUnsupported, "Options.Settles"},
		{"metadata that no rule keeps", decide(one, weir.Request{Metadata: "x"}), weir.ErrUnsupported, "algorithm.MetadataWindow"},
		{"long metadata", decide(kept, weir.Request{Metadata: strings.Repeat("x", algorithm.MaxMetadata+1)}), weir.ErrInvalidMetadata, fmt.Sprint(algorithm.MaxMetadata)},
		{"entries that no rule keeps", func() error { _, err := one.Entries(ctx, "u"); return err }, weir.ErrUnsupported, "algorithm.MetadataWindow"},
		{"entries without key", func() error { _, err := kept.Entries(ctx); return err }, weir.ErrInvalidKey, "0 segments"},
		{"a lease without ID", decide(leases, weir.Request{}), weir.ErrInvalidLease, "TryAcquire"},
		{"a long lease", decide(leases, weir.Request{ID: strings.Repeat("x", algorithm.MaxLease+1)}), weir.ErrInvalidLease, "129 bytes"},
		{"two leases at once", decide(leases, weir.Request{ID: "x", Cost: 2}), weir.ErrInvalidCost, "at most 1"},
		{"to renew what is no lease", decide(one, weir.Request{Op: weir.Renew, ID: "x"}), weir.ErrUnsupported, "Renew: no rule holds leases"},
		{"to release what is no lease", decide(one, weir.Request{Op: weir.Release, ID: "x"}), weir.ErrUnsupported, "Release: no rule holds leases"},
		{"to renew no lease", decide(leases, weir.Request{Op: weir.Renew}), weir.ErrInvalidLease, "empty"},
		{"to release a long lease", decide(leases, weir.Request{Op: weir.Release, ID: strings.Repeat("x", 129)}), weir.ErrInvalidLease, "129 bytes"},
		{"to acquire what is no lease", func() error { _, err := one.TryAcquire(ctx, weir.Request{Key: weir.KeyOf("u")}); return err }, weir.ErrUnsupported, "algorithm.Concurrency"},
		{"to wait for what is no lease", func() error { _, err := one.Acquire(ctx, weir.Request{Key: weir.KeyOf("u")}); return err }, weir.ErrUnsupported, "algorithm.Concurrency"},
		{"to acquire without key", func() error { _, err := leases.TryAcquire(ctx, weir.Request{}); return err }, weir.ErrInvalidKey, "0 segments"},
		{"to reserve a peek", func() error {
			_, err := one.Reserve(ctx, weir.Request{Key: u, Op: weir.Peek, MaxWait: time.Second})
			return err
		}, weir.ErrUnsupported, "Peek"},
		{"to reserve an empty segment", func() error {
			_, err := one.Reserve(ctx, weir.Request{Key: weir.KeyOf(""), MaxWait: time.Second})
			return err
		}, weir.ErrInvalidKey, "empty"},
		{"to wait for 0", func() error { _, err := one.WaitN(ctx, 0, "u"); return err }, weir.ErrInvalidCost, "0"},
		{"to wait for less", func() error { _, err := one.WaitN(ctx, -1, "u"); return err }, weir.ErrInvalidCost, "-1"},
	} {
		t.Run(tt.name, func(t *testing.T) { wantError(t, tt.call(), tt.want, tt.says) })
	}
	if n := st.calls(); n > 0 {
		t.Errorf("the store was called %d times", n)
	}
}

// MaxCost is the most that an algorithm can consume at once. A cost above MaxCost is an
// error, a cost above the limit is denied, and TakeUpTo consumes at most MaxCost.
func TestMaxCost(t *testing.T) {
	t.Parallel()
	const most = 1000
	log := weirtest.Capped(algorithm.SlidingLog{Limit: 2 * most, Window: time.Hour}, most)
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Rules(
		weir.Rule{Name: "log", Algorithm: log},
		weir.Rule{Name: "window", Algorithm: weirtest.Window(1<<50, time.Hour)},
	))
	for _, op := range []weir.Op{weir.Consume, weir.Peek} {
		_, err := l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Op: op, Cost: most + 1}, nil)
		wantError(t, err, weir.ErrInvalidCost, `rule "log" is a slidinglog, which can consume at most`)
		if res, err := l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Op: op, Cost: 2*most + 1}, nil); err != nil || res.Allowed || res.RetryAfter != weir.Never {
			t.Errorf("%v of more than the limit: got %+v, %v, want it denied for ever", op, res, err)
		}
	}
	for i, want := range []int64{most, most, 0} {
		if res, err := l.TakeUpTo(t.Context(), 1<<60, "u"); err != nil || res.Granted != want {
			t.Errorf("TakeUpTo %d: got %+v, %v, want %d", i, res, err, want)
		}
	}
	_, err := l.With(weir.Rule{Name: "log", Algorithm: log, Cost: most + 1})
	wantError(t, err, weir.ErrInvalidRule, "at most")
}

// Decisions use Options.Clock. A time out of range is an error.
func TestOptionsClock(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		at   time.Time
		good bool
	}{
		{"first", time.UnixMicro(1), true},
		{"last", time.UnixMicro(1<<52 - 1), true},
		{"zero", time.Time{}, false},
		{"1970", time.UnixMicro(0), false},
		{"too late", time.UnixMicro(1 << 52), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			st := &recorder{Store: memory.New(nil)}
			l, err := weir.New("t", st, weirtest.PerSecond, &weir.Options{Clock: func() time.Time { return tt.at }})
			if err != nil {
				t.Fatal(err)
			}
			res, err := l.AllowN(t.Context(), 5, "u")
			if (err == nil) != tt.good || res.Allowed != tt.good {
				t.Errorf("AllowN: got %+v, %v, want it to work: %v", res, err, tt.good)
			}
			if tt.good && res.ResetAfter != 5*time.Second {
				t.Errorf("ResetAfter: got %v, want 5s", res.ResetAfter)
			}
			many := l.DoMany(t.Context(), []weir.Request{{Key: weir.KeyOf("u"), Op: weir.Peek}})
			if err2 := l.Reset(t.Context(), "u"); (many[0].Err == nil) != tt.good || (err2 == nil) != tt.good {
				t.Errorf("DoMany and Reset: %v, %v, want them to work: %v", many[0].Err, err2, tt.good)
			}
			if st.times > 0 || !tt.good && st.calls() > 0 {
				t.Error("the store was called")
			}
		})
	}
}

// Every decision makes exactly one call of the store.
func TestOneCall(t *testing.T) {
	t.Parallel()
	st := &recorder{Store: weirtest.NewStore(weirtest.NewClock())}
	l := weirtest.NewPolicy(t, st, weirtest.Rules(
		weir.Rule{Name: "a", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 50}},
		weir.Rule{Name: "b", Algorithm: weirtest.Window(50, time.Minute)},
		weir.Rule{Name: "c", Algorithm: algorithm.SlidingLog{Limit: 50, Window: time.Minute}},
		weir.Rule{Name: "d", Algorithm: algorithm.SlidingCounter{Limit: 50, Window: time.Minute}},
	))
	for _, r := range []weir.Request{
		{}, {Op: weir.Peek}, {Cost: 5, Op: weir.TakeUpTo}, {ID: "x"}, {Cost: 5, Op: weir.TakeUpTo, ID: "y"}, {Op: weir.Refund, ID: "x"}, {Op: weir.Reset},
	} {
		st.evals = 0
		r.Key = weir.KeyOf("u")
		weirtest.Allow(t, l, r)
		if st.evals != 1 || st.mgets+st.times != 0 {
			t.Errorf("%+v: %d calls of the store, want one", r, st.calls())
		}
	}
}
