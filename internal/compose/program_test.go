package compose_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// epoch is the start of virtual time: 2026-01-01, in microseconds since the Unix epoch.
const epoch = 1767225600000000

func mustLimit(t testing.TB, a algorithm.Algorithm) *contract.Limit {
	t.Helper()
	l, err := a.NewLimit()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustProgram(t testing.TB, rules ...compose.Rule) *compose.Program {
	t.Helper()
	p, err := compose.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A bench runs programs on the keys of a memory store, whose clock shows now.
type bench struct {
	t   testing.TB
	st  *memory.Store
	now int64
}

func newBench(t testing.TB) *bench {
	b := &bench{t: t, now: epoch}
	b.st = memory.New(&memory.Options{Now: func() time.Time { return time.UnixMicro(b.now) }})
	return b
}

// keysOf returns the keys of p for the verb v. id names the decision.
func keysOf(p *compose.Program, rules int, v script.Verb, id string) []string {
	var keys []string
	for i := range rules {
		for k := range p.Keys(i) {
			keys = append(keys, fmt.Sprintf("{x}:%d:%d", i, k))
		}
	}
	if v.Markers() {
		for i := range rules {
			if p.Marked(i) {
				keys = append(keys, fmt.Sprintf("{x}:%d:%%id=%s", i, id))
			}
		}
	}
	return keys
}

func (b *bench) eval(p *compose.Program, rules int, v script.Verb, id string, c compose.Call) ([]store.Value, error) {
	return b.st.Eval(context.Background(), p.Script(v), keysOf(p, rules, v, id), p.AppendArgs(nil, v, &c), nil)
}

// run runs v for the decision id, and returns the reply.
func (b *bench) run(p *compose.Program, rules int, v script.Verb, id string, c compose.Call) compose.Reply {
	b.t.Helper()
	reply, err := b.eval(p, rules, v, id, c)
	if err != nil {
		b.t.Fatal(err)
	}
	o, err := p.Parse(v, reply, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return o
}

// do runs v, and returns Outcome.Head and the answer of each rule. It checks that a server's
// reply, with the values before the call, gives the same answers as the reply of the Go form.
func (b *bench) do(p *compose.Program, rules int, v script.Verb, id string, c compose.Call) (int64, []compose.Result) {
	b.t.Helper()
	var keys, marks []string
	cells := v.Decides()
	for i := range rules {
		_, step := p.Limit(i).Kind.(*contract.StepKind)
		cells = cells && !step
		keys, marks = append(keys, fmt.Sprintf("{x}:%d:0", i)), append(marks, fmt.Sprintf("{x}:%d:%%id=%s", i, id))
	}
	before, markers := b.values(keys...), b.values(marks...)
	o := b.run(p, rules, v, id, c)
	if v > script.Renew {
		return o.Head(), nil
	}
	answers := make([]compose.Result, rules)
	for i := range answers {
		answers[i] = p.Result(i, v, &o, &c)
	}
	if !cells {
		return o.Head(), answers
	}
	text := fmt.Sprintf("%d;%d %06d;%s", o.Head(), o.Now/1_000_000, o.Now%1_000_000, strings.Join(before, ";"))
	switch {
	case o.Replayed:
		text += ";1;" + strings.Join(markers, ";")
	case o.OtherCost:
		text += ";2;" + strings.Join(markers, ";")
	}
	parsed, err := p.Parse(v, []store.Value{store.BulkValue(text)}, nil)
	if err != nil {
		b.t.Fatalf("%s: %v", text, err)
	}
	for i, want := range answers {
		if got := p.Result(i, v, &parsed, &c); got != want {
			b.t.Fatalf("rule %d of %s: %q answers %+v, the Go form %+v", i, p.Name(), text, got, want)
		}
	}
	return o.Head(), answers
}

// values returns the values of the keys, as text.
func (b *bench) values(keys ...string) []string {
	values, err := b.st.MGet(context.Background(), keys, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = v.Str()
	}
	return texts
}

// pair returns a program with a FixedWindow of 5 in 10 s, and a GCRA of 1 per second with
// Burst 3. The two arguments are the Costs of the rules.
func pair(t testing.TB, window, gcra int64) *compose.Program {
	t.Helper()
	return mustProgram(t,
		compose.Rule{Limit: mustLimit(t, algorithm.FixedWindow{Limit: 5, Window: 10 * time.Second}), Cost: window},
		compose.Rule{Limit: mustLimit(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 3}), Cost: gcra},
	)
}

// All rules consume, or none does. Each rule has an answer in both cases.
func TestAllOrNone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i, tt := range []struct {
		at           int64 // seconds
		window, gcra int64 // costs
		ok           bool
		allowed      [2]bool
		remaining    [2]int64
		values       []string
	}{
		{0, 1, 1, true, [2]bool{true, true}, [2]int64{4, 2}, []string{"f2 1767225610000000 1", "g2 1767225601000000"}},
		{0, 1, 3, false, [2]bool{true, false}, [2]int64{4, 2}, []string{"f2 1767225610000000 1", "g2 1767225601000000"}},
		{0, 5, 1, false, [2]bool{false, true}, [2]int64{4, 2}, []string{"f2 1767225610000000 1", "g2 1767225601000000"}},
		{0, 6, 4, false, [2]bool{false, false}, [2]int64{4, 2}, []string{"f2 1767225610000000 1", "g2 1767225601000000"}},
		{0, 4, 2, true, [2]bool{true, true}, [2]int64{0, 0}, []string{"f2 1767225610000000 5", "g2 1767225603000000"}},
		{3, 1, 1, false, [2]bool{false, true}, [2]int64{0, 3}, []string{"f2 1767225610000000 5", "g2 1767225603000000"}},
		{10, 5, 3, true, [2]bool{true, true}, [2]int64{0, 0}, []string{"f2 1767225620000000 5", "g2 1767225613000000"}},
	} {
		b.now = epoch + tt.at*1e6
		n, answers := b.do(pair(t, tt.window, tt.gcra), 2, script.Consume, "", compose.Call{Cost: 1})
		if (n == 1) != tt.ok {
			t.Errorf("%d: passed: %d, want %v", i, n, tt.ok)
		}
		for j, a := range answers {
			if a.Allowed != tt.allowed[j] || a.Remaining != tt.remaining[j] || (a.Granted > 0) != tt.ok || (a.RetryAfter > 0) == a.Allowed || (a.ResetAfter > 0) != (a.Remaining < a.Limit) {
				t.Errorf("%d: rule %d answers %+v", i, j, a)
			}
		}
		if got := b.values("{x}:0:0", "{x}:1:0"); !slices.Equal(got, tt.values) {
			t.Errorf("%d: the keys hold %q, want %q", i, got, tt.values)
		}
	}
}

// UpTo consumes the least room of all rules. A rule with a Cost consumes its Cost. If it
// has no room for that, the request is denied.
func TestUpTo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		window, gcra int64 // costs of their own
		most         int64
		want         [3]int64 // of three requests in a row
		granted      [2]int64 // of the first
	}{
		{"the least room", 0, 0, 9, [3]int64{3, 0, 0}, [2]int64{3, 3}},
		{"what is asked for", 0, 0, 2, [3]int64{2, 1, 0}, [2]int64{2, 2}},
		{"the window costs 2", 2, 0, 2, [3]int64{2, 1, 0}, [2]int64{2, 2}},
		{"the rate costs 2", 0, 2, 9, [3]int64{5, 0, 0}, [2]int64{5, 2}},
		{"the window costs more than it has", 6, 0, 2, [3]int64{}, [2]int64{}},
		{"both cost 1", 1, 1, 7, [3]int64{7, 7, 7}, [2]int64{1, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, p := newBench(t), pair(t, tt.window, tt.gcra)
			for i, want := range tt.want {
				n, answers := b.do(p, 2, script.UpTo, "", compose.Call{Cost: tt.most})
				if n != want {
					t.Errorf("request %d consumed %d, want %d", i, n, want)
				}
				if i == 0 && (answers[0].Granted != tt.granted[0] || answers[1].Granted != tt.granted[1]) {
					t.Errorf("the rules granted %d and %d, want %v", answers[0].Granted, answers[1].Granted, tt.granted)
				}
			}
		})
	}
}

// A wait is cut to what every rule can reserve. If one rule cannot reserve, no rule does.
func TestWaits(t *testing.T) {
	t.Parallel()
	gcra := compose.Rule{Limit: mustLimit(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1})}
	bucket := compose.Rule{Limit: mustLimit(t, algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerSecond(2)})}
	window := compose.Rule{Limit: mustLimit(t, algorithm.FixedWindow{Limit: 9, Window: time.Second})}
	for _, tt := range []struct {
		name  string
		rules []compose.Rule
		wait  time.Duration
		delay []time.Duration // of each rule, of the second request; nil if it is denied
	}{
		{"long enough", []compose.Rule{gcra, bucket}, time.Second, []time.Duration{time.Second, time.Second / 2}},
		{"too short", []compose.Rule{gcra, bucket}, time.Second - time.Microsecond, nil},
		{"a rule that cannot wait", []compose.Rule{gcra, window}, time.Hour, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, p := newBench(t), mustProgram(t, tt.rules...)
			b.do(p, 2, script.Consume, "", compose.Call{Cost: 1})
			n, answers := b.do(p, 2, script.Consume, "", compose.Call{Cost: 1, Wait: tt.wait.Microseconds()})
			if (n == 1) != (tt.delay != nil) {
				t.Fatalf("passed: %d, %+v", n, answers)
			}
			for i, want := range tt.delay {
				if answers[i].Delay != want {
					t.Errorf("rule %d: Delay is %v, want %v", i, answers[i].Delay, want)
				}
			}
		})
	}
	b, p := newBench(t), mustProgram(t, gcra)
	b.do(p, 1, script.Consume, "", compose.Call{Cost: 1})
	b.now += 1e6 - 1 // the token is there in a microsecond, and does not remain until then
	if _, answers := b.do(p, 1, script.Peek, "", compose.Call{Cost: 1, Wait: 1}); !answers[0].Allowed || answers[0].Delay != time.Microsecond || answers[0].Remaining != 0 {
		t.Errorf("a microsecond early: got %+v", answers[0])
	}
}

// While a key is in use, it keeps its first generation, even if later decisions have
// other generations. The markers of all these decisions have the first generation.
func TestGenerations(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := mustProgram(t, compose.Rule{Limit: mustLimit(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 9})})
	b.do(p, 1, script.Consume, "", compose.Call{Cost: 1})
	b.do(p, 1, script.ConsumeMark, "a", compose.Call{Cost: 1, Gen: 7})
	b.do(p, 1, script.ConsumeMark, "b", compose.Call{Cost: 1, Gen: 8})
	b.do(p, 1, script.Consume, "", compose.Call{Cost: 1})
	if got, want := b.values("{x}:0:0", "{x}:0:%id=a", "{x}:0:%id=b"), []string{"g2 1767225604000000 0 0 7 0 0", "i2 7 1 1 1 5896259424012304 1767225602000000 0 0 0 0", "i2 7 1 1 1 5896259424012304 1767225603000000 0 0 0 0"}; !slices.Equal(got, want) {
		t.Errorf("in use, the keys hold %q, want %q", got, want)
	}
	b.now += 4e6 // the state ends
	b.do(p, 1, script.ConsumeMark, "c", compose.Call{Cost: 1, Gen: 9})
	if got, want := b.values("{x}:0:0", "{x}:0:%id=c"), []string{"g2 1767225605000000 0 0 9 0 0", "i2 9 1 1 1 5896259424012304 1767225605000000 0 0 0 0"}; !slices.Equal(got, want) {
		t.Errorf("used again, the keys hold %q, want %q", got, want)
	}
	for i, want := range []int64{0, 1} {
		if n, _ := b.do(p, 1, script.Refund, []string{"b", "c"}[i], compose.Call{Cost: 1}); n != want {
			t.Errorf("refund %d replied %d, want %d", i, n, want)
		}
	}
}

// A refund uses the markers of its decision, deletes them, and changes no other rule.
func TestRefund(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	meta := mustLimit(t, algorithm.MetadataWindow{Limit: 9, Window: time.Second})
	p := mustProgram(t, append([]compose.Rule{{Limit: meta}},
		compose.Rule{Limit: mustLimit(t, algorithm.FixedWindow{Limit: 5, Window: 10 * time.Second})},
		compose.Rule{Limit: mustLimit(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 3}), Cost: 2})...)
	if p.Marked(0) || !p.Marked(1) || !p.Marked(2) {
		t.Fatal("want a marker for each rule that can refund")
	}
	b.do(p, 3, script.ConsumeMark, "a", compose.Call{Cost: 1, Gen: 77})
	if got, want := b.values("{x}:1:0", "{x}:2:0", "{x}:1:%id=a", "{x}:2:%id=a"), []string{
		"f2 1767225610000000 1 77", "g2 1767225602000000 0 0 77 0 0", "i2 77 1 1 1 0 1767225610000000 1 0", "i2 77 2 1 1 1793165496993809 1767225602000000 0 0 0 0",
	}; !slices.Equal(got, want) {
		t.Errorf("the keys hold %q, want %q", got, want)
	}
	for i, want := range []int64{1, 0} {
		if n, _ := b.do(p, 3, script.Refund, "a", compose.Call{Cost: 1}); n != want {
			t.Errorf("refund %d replied %d, want %d", i, n, want)
		}
	}
	if got, want := b.values("{x}:1:0", "{x}:2:0", "{x}:1:%id=a", "{x}:2:%id=a"), []string{"", "g2 1767225600000000 0 0 77 2000000 1767225600000000", "", ""}; !slices.Equal(got, want) {
		t.Errorf("the keys hold %q, want %q", got, want)
	}
	if n, _ := b.do(p, 3, script.Refund, "b", compose.Call{Cost: 1}); n != 0 {
		t.Error("a refund without a marker gave something")
	}
}

// Renew and Release end and extend leases, Pause and Resume begin and end a pause.
func TestNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	leases := mustProgram(t, compose.Rule{Limit: mustLimit(t, algorithm.Concurrency{Limit: 1, Lease: time.Second})})
	pauses := mustProgram(t, compose.Rule{Limit: mustLimit(t, algorithm.Pause{})})
	beside := mustProgram(t, compose.Rule{Limit: mustLimit(t, algorithm.Pause{})}, compose.Rule{Limit: mustLimit(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 3})})
	for i, tt := range []struct {
		p     *compose.Program
		rules int
		verb  script.Verb
		name  string
		want  int64
	}{
		{leases, 1, script.Renew, "a", 0}, {leases, 1, script.Consume, "a", 1}, {leases, 1, script.Consume, "b", 0}, {leases, 1, script.Renew, "a", 1}, {leases, 1, script.Renew, "b", 0},
		{leases, 1, script.Release, "b", 0}, {leases, 1, script.Release, "a", 1}, {leases, 1, script.Release, "a", 0}, {leases, 1, script.Consume, "b", 1}, {leases, 1, script.Reset, "", 1},
		{beside, 2, script.Consume, "", 1}, {pauses, 1, script.Resume, "a", 0}, {pauses, 1, script.Pause, "a", 1}, {beside, 2, script.Consume, "", 0}, {beside, 2, script.Force, "", 1},
		{pauses, 1, script.Resume, "b", 0}, {pauses, 1, script.Resume, "a", 1}, {beside, 2, script.Consume, "", 1},
	} {
		if n, _ := b.do(tt.p, tt.rules, tt.verb, "", compose.Call{Cost: 1, Text: tt.name, Wait: time.Minute.Microseconds()}); n != tt.want {
			t.Errorf("%d: verb %d of %s replied %d, want %d", i, tt.verb, tt.name, n, tt.want)
		}
	}
}

// A repeated decision consumes nothing, and tells what the decision consumed and when its tokens
// are available. With another cost, it tells what the decision asked for.
func TestRepeats(t *testing.T) {
	t.Parallel()
	of := func(burst int64) *compose.Program {
		return mustProgram(t,
			compose.Rule{Limit: mustLimit(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: burst})},
			compose.Rule{Limit: mustLimit(t, algorithm.TokenBucket{Capacity: 9, Refill: algorithm.PerSecond(1)}), Cost: 1})
	}
	b, p, other := newBench(t), of(3), of(4)
	const s = time.Second
	for i, tt := range []struct {
		p       *compose.Program
		at      time.Duration
		verb    script.Verb
		id      string
		cost    int64
		wait    time.Duration
		n       int64 // the reply
		again   bool  // nothing changes
		granted int64 // by the first rule
		delay   time.Duration
		retry   time.Duration
	}{
		{p, 0, script.ConsumeMark, "a", 3, 0, 1, false, 3, 0, 0},
		{p, 0, script.ConsumeMark, "b", 2, 5 * s, 1, false, 2, 2 * s, 0},
		{p, 0, script.ConsumeMark, "b", 2, 5 * s, 2, true, 2, 2 * s, 0},
		{p, 0, script.ConsumeMark, "b", 2, s, 2, true, 0, contract.Never, s},
		{other, 0, script.ConsumeMark, "b", 2, s, 2, true, 2, s, 0}, // an estimate under another limit
		{p, 2 * s, script.ConsumeMark, "b", 2, 0, 2, true, 2, 0, 0},
		{p, 2 * s, script.ConsumeMark, "b", 1, 0, 2, true, 1, contract.Never, s}, // another cost: the error has the reply
		{p, 2 * s, script.UpToMark, "c", 9, 0, 0, false, 0, contract.Never, s},
		{p, 2 * s, script.ForceMark, "d", 4, 0, 4, false, 4, 0, 0},
		{p, 2 * s, script.ForceMark, "d", 4, 0, 4, true, 4, 0, 0},
		{p, 2 * s, script.ForceMark, "d", 3, 0, 4, true, 0, 0, 0},
		{p, 60 * s, script.UpToMark, "e", 9, 0, 3, false, 3, 0, 0},
		{p, 60 * s, script.UpToMark, "e", 9, 0, 3, true, 3, 0, 0},
		{p, 60 * s, script.UpToMark, "e", 3, 0, 3, true, 3, 0, 0},
		{p, 60 * s, script.UpToMark, "e", 2, 0, 3, true, 1, contract.Never, s},
	} {
		b.now = epoch + tt.at.Microseconds()
		before := b.values("{x}:0:0", "{x}:1:0")
		n, each := b.do(tt.p, 2, tt.verb, tt.id, compose.Call{Cost: tt.cost, Wait: tt.wait.Microseconds(), Gen: int64(i) + 1})
		if a := each[0]; n != tt.n || a.Allowed != (tt.retry == 0) || a.Granted != tt.granted || a.Delay != tt.delay || a.RetryAfter != tt.retry {
			t.Errorf("%d: replied %d, and answered %+v", i, n, a)
		}
		if after := b.values("{x}:0:0", "{x}:1:0"); tt.again && !slices.Equal(before, after) {
			t.Errorf("%d: a repeat changes %q to %q", i, before, after)
		}
	}
}

// The scripts of Peek and Entries are read-only. The name of a script contains its verb.
func TestScripts(t *testing.T) {
	t.Parallel()
	p := pair(t, 0, 2)
	if p.Name() != "fixedwindow+gcra" || p.Sets() || p.Limit(0).Capacity != 5 || p.Keys(1) != 1 {
		t.Errorf("the program is %s, sets: %v", p.Name(), p.Sets())
	}
	names := map[string]bool{}
	for _, v := range p.Verbs() {
		s := p.Script(v)
		if s.ReadOnly() != (v == script.Peek) || p.Script(v) != s || s.GoForm() == nil {
			t.Errorf("%s is read-only: %v", s.Name(), s.ReadOnly())
		}
		names[s.Name()] = true
	}
	want := map[string]bool{"fixedwindow+gcra": true, "fixedwindow+gcra.upto": true, "fixedwindow+gcra.peek": true, "fixedwindow+gcra.reset": true,
		"fixedwindow+gcra.mark": true, "fixedwindow+gcra.upto.mark": true, "fixedwindow+gcra.refund": true, "fixedwindow+gcra.force": true, "fixedwindow+gcra.force.mark": true, "fixedwindow+gcra.settle": true,
		"fixedwindow+gcra.finish": true, "fixedwindow+gcra.finish.refund": true}
	if fmt.Sprint(names) != fmt.Sprint(want) {
		t.Errorf("the scripts are %v, want %v", names, want)
	}
	other := pair(t, 0, 3) // other numbers, the same text
	if other.Script(script.Consume).SHA() != p.Script(script.Consume).SHA() {
		t.Error("two limits of one kind have two scripts")
	}
	if _, err := newBench(t).eval(p, 2, script.Release, "", compose.Call{Cost: 1}); !errors.Is(err, store.ErrScript) || !strings.Contains(err.Error(), "has no leases") {
		t.Errorf("Release of windows: %v, want an error", err)
	}
	if own := pair(t, 0, 0); own.Script(script.Consume).SHA() == p.Script(script.Consume).SHA() {
		t.Error("a rule with a cost of its own has the script of one without")
	}
}

// The arguments begin with the constants. Trailing arguments with their defaults are left
// out.
func TestArgs(t *testing.T) {
	t.Parallel()
	p := pair(t, 0, 2)
	wait := mustProgram(t, compose.Rule{Limit: mustLimit(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 3})})
	conc := mustProgram(t, compose.Rule{Limit: mustLimit(t, algorithm.Concurrency{Limit: 1, Lease: time.Second})})
	for _, tt := range []struct {
		p    *compose.Program
		v    script.Verb
		c    compose.Call
		want string
	}{
		{p, script.Consume, compose.Call{Cost: 1}, "5 10000000 1 1000000 3000000 2"},
		{p, script.Peek, compose.Call{Cost: 3}, "5 10000000 1 1000000 3000000 2 3"},
		{p, script.Consume, compose.Call{Cost: 1, Wait: 9}, "5 10000000 1 1000000 3000000 2"}, // a window cannot wait
		{p, script.Consume, compose.Call{Cost: 1, Now: epoch}, "5 10000000 1 1000000 3000000 2 1 0 1767225600000000"},
		{p, script.ConsumeMark, compose.Call{Cost: 1, Gen: 7}, "5 10000000 1 1000000 3000000 2 1 0 7 0 1793165496993809"},
		{p, script.Refund, compose.Call{Cost: 1}, "5 10000000 1 1000000 3000000 2 1 0 0 0 1793165496993809"},
		{p, script.Force, compose.Call{Cost: 1}, "5 10000000 1 1000000 3000000 2 1 9007199254740986 0 4503599624"},
		{p, script.ForceMark, compose.Call{Cost: 7, Wait: 9, Gen: 7}, "5 10000000 1 1000000 3000000 2 7 9007199254740986 7 4503599624 0 1793165496993809"},
		{wait, script.Consume, compose.Call{Cost: 1, Wait: 9}, "1000000 3000000 1 9"},
		{wait, script.Consume, compose.Call{Cost: 1, Wait: 1 << 60}, "1000000 3000000 1 4503599624370495"},
		{wait, script.Consume, compose.Call{Cost: 1 << 60}, "1000000 3000000 9007199254740992"},
		{conc, script.Consume, compose.Call{Cost: 1, Text: "a b"}, "1 1000000 a b"},
		{conc, script.Peek, compose.Call{Cost: 1}, "1 1000000 "},
	} {
		var got []string
		for _, a := range tt.p.AppendArgs([]store.Arg{store.StringArg("before")}, tt.v, &tt.c) {
			got = append(got, a.String())
		}
		if text := strings.Join(got, " "); text != "before "+tt.want {
			t.Errorf("%+v: the arguments are %q, want %q", tt.c, text, tt.want)
		}
	}
	for _, args := range [][]store.Arg{nil, consts(1, 2, 3, 4), consts(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)} {
		if _, err := newBench(t).st.Eval(context.Background(), p.Script(script.Consume), keysOf(p, 2, script.Consume, ""), args, nil); !errors.Is(err, store.ErrScript) {
			t.Errorf("%d arguments: %v, want ErrScript", len(args), err)
		}
	}
}

// The Go form uses the constants in its arguments, as a server's script does, not the
// constants of its program.
func TestOtherConstants(t *testing.T) {
	t.Parallel()
	b, p, other := newBench(t), pair(t, 0, 1), pair(t, 0, 2)
	keys := keysOf(p, 2, script.Consume, "")
	for i, want := range []string{"g2 1767225602000000", "g2 1767225603000000"} {
		from := []*compose.Program{other, p}[i]
		if _, err := b.st.Eval(context.Background(), p.Script(script.Consume), keys, from.AppendArgs(nil, script.Consume, &compose.Call{Cost: 1}), nil); err != nil {
			t.Fatal(err)
		}
		if got := b.values(keys[1])[0]; got != want {
			t.Errorf("%d: the key holds %s, want %s", i, got, want)
		}
	}
}

// A reply that no script makes is an error, not an answer. A server replies with one
// string, and a Go form with integers.
func TestOutcome(t *testing.T) {
	t.Parallel()
	p := pair(t, 0, 0)
	ints := func(n ...int64) (reply []store.Value) {
		for _, n := range n {
			reply = append(reply, store.IntegerValue(n))
		}
		return reply
	}
	text := func(s string) []store.Value { return []store.Value{store.BulkValue(s)} }
	with := func(i int, v store.Value) []store.Value {
		reply := ints(1, epoch, epoch, 2, epoch, 0, 0)
		reply[i] = v
		return reply
	}
	for _, tt := range []struct {
		name  string
		verb  script.Verb
		reply []store.Value
		n     int64 // -1: an error
	}{
		{"yes", script.Consume, ints(1, epoch, epoch, 2, epoch, 0, 0), 1},
		{"no", script.Consume, ints(0, epoch, epoch, 2, epoch, 0, 0), 0},
		{"seven tokens of one", script.Consume, ints(7, epoch, epoch, 2, epoch, 0, 0), -1},
		{"refunded", script.Refund, ints(1, epoch, 0, 2), 1},
		{"refunded for too little", script.Refund, ints(script.TooLittle, epoch, 0, 0), script.TooLittle},
		{"short", script.Consume, ints(1, epoch, epoch, 2, epoch, 0), -1},
		{"long", script.Consume, ints(1, epoch, epoch, 2, epoch, 0, 0, 0), -1},
		{"a string", script.Consume, with(0, store.BulkValue("1")), -1},
		{"a negative number", script.Consume, with(0, store.IntegerValue(-1)), -1},
		{"no time", script.Consume, with(1, store.IntegerValue(0)), -1},
		{"a time too late", script.Consume, with(1, store.IntegerValue(1<<52)), -1},
		{"a state too large", script.Consume, with(4, store.IntegerValue(1<<53+1)), -1},

		{"text", script.Consume, text("1;1767225600 5;f2 1767225610000000 2;g2 1767225601000000"), 1},
		{"text, at the caller's time", script.Peek, text("0;0 1767225600000005;f2 1767225610000000 2;g2 1767225601000000"), 0},
		{"text, missing keys", script.Consume, text("1;1767225600 5;;"), 1},
		{"text, with generations", script.UpTo, text("3;1767225600 5;f2 1767225610000000 2 77;g2 1767225601000000 0 0 77 0 0"), 3},
		{"text of a refund without a cost", script.Refund, text("1;1767225600 5"), -1},
		{"text of a refund of three rules", script.Settle, text("1;1767225600 5;0 4"), -1},
		{"text of one rule", script.Consume, text("1;1767225600 5;f2 1767225610000000 2"), -1},
		{"text of three rules", script.Consume, text("1;1767225600 5;;;"), -1},
		{"text that is no value", script.Consume, text("1;1767225600 5;f2 x;"), -1},
		{"text with a word for the time", script.Consume, text("1;now 0;;"), -1},
		{"text with a time too late", script.Consume, text("1;9999999999999 0;;"), -1},
		{"text with a word for the number", script.Consume, text("yes;1767225600 5;;"), -1},
		{"a decision with an ID, without a code", script.ConsumeMark, ints(1, epoch, epoch, 2, epoch, 0, 0), -1},
		{"a repeat", script.ConsumeMark, ints(7, epoch, epoch, 2, epoch, 0, 0, 1, 7, 0, epoch, 2, 7, 0, epoch, 0, 0), 7},
		{"a repeat with few integers", script.ConsumeMark, ints(7, epoch, epoch, 2, epoch, 0, 0, 1, 7, epoch, 2), -1},
		{"a repeat with another cost", script.ConsumeMark, ints(7, epoch, epoch, 2, epoch, 0, 0, 2), 7},
		{"an unknown code", script.ConsumeMark, ints(1, epoch, epoch, 2, epoch, 0, 0, 3), -1},
		{"text of a repeat", script.ConsumeMark, text("7;1767225600 5;;;1;i2 9 7 7 7 0 1767225610000000 2 0;"), 7},
		{"text of a repeat with another cost", script.ConsumeMark, text("7;1767225600 5;;;2;i2 9 7 7 7 0 1767225610000000 2 0;"), 7},
		{"text of a repeat with three markers", script.ConsumeMark, text("7;1767225600 5;;;1;;;"), -1},
		{"text of a repeat with another marker", script.ConsumeMark, text("7;1767225600 5;;;1;i1 9 7 7 7 0 1767225610000000 2;"), -1},
		{"text of a repeat with a short marker", script.ConsumeMark, text("7;1767225600 5;;;1;i2 9 7 7 7 0 1767225610000000;"), -1},
		{"text with an unknown code", script.ConsumeMark, text("7;1767225600 5;;;3;;"), -1},
		{"text with a code, without an ID", script.Consume, text("1;1767225600 5;;;1;;"), -1},
		{"two texts", script.Consume, append(text("1;1767225600 5;;"), text("")...), -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o, err := p.Parse(tt.verb, tt.reply, make([]store.Value, 0, 9))
			if (err == nil) != (tt.n >= 0) || err != nil && !errors.Is(err, store.ErrScript) {
				t.Fatalf("Outcome = %+v, %v, want %d", o, err, tt.n)
			}
			if err == nil && o.Head() != tt.n {
				t.Errorf("Head is %d, want %d", o.Head(), tt.n)
			}
			if err == nil && tt.verb != script.Refund {
				for i := range 2 { // and any answer is possible
					if a := p.Result(i, tt.verb, &o, &compose.Call{Cost: 1}); a.Remaining < 0 || a.RetryAfter < 0 || a.ResetAfter < 0 {
						t.Errorf("rule %d answers %+v", i, a)
					}
				}
			}
		})
	}
}

// A reply of Entries consists of strings. Other replies are errors.
func TestEntriesReply(t *testing.T) {
	t.Parallel()
	p := mustProgram(t, compose.Rule{Limit: mustLimit(t, algorithm.MetadataWindow{Limit: 5, Window: time.Second})})
	b := newBench(t)
	b.do(p, 1, script.Consume, "", compose.Call{Cost: 2, Text: "a;b\n"})
	reply, err := b.eval(p, 1, script.Entries, "", compose.Call{Cost: 1})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.Entries(reply); err != nil || !slices.Equal(got, []contract.Entry{{Cost: 2, Metadata: "a;b\n"}}) {
		t.Errorf("Entries = %q, %v", got, err)
	}
	if got, err := p.Entries([]store.Value{store.IntegerValue(1)}); !errors.Is(err, store.ErrScript) {
		t.Errorf("Entries of an integer = %v, %v, want ErrScript", got, err)
	}
	if got, err := p.Entries([]store.Value{store.BulkValue("m2 x")}); !errors.Is(err, store.ErrForeign) {
		t.Errorf("Entries of a foreign entry = %v, %v, want ErrForeign", got, err)
	}
}

// Kinds of other modules can be composed with the built-in kinds, in any order.
func TestThirdParty(t *testing.T) {
	t.Parallel()
	gcra := mustLimit(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 2})
	for _, tt := range []struct {
		name   string
		limits []*contract.Limit
		at     int // of the quota
		left   [4]int64
	}{
		{"alone", []*contract.Limit{quotaLimit(quota)}, 0, [4]int64{2, 0, 0, 0}},
		{"after GCRA", []*contract.Limit{gcra, quotaLimit(quota)}, 1, [4]int64{2, 2, 0, 0}},
		{"before GCRA", []*contract.Limit{quotaLimit(quota), gcra}, 0, [4]int64{2, 2, 0, 0}},
		{"with a window", []*contract.Limit{windowLimit(fixedWindow), quotaLimit(quota)}, 1, [4]int64{2, 0, 0, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var rules []compose.Rule
			for _, l := range tt.limits {
				rules = append(rules, compose.Rule{Limit: l})
			}
			p := mustProgram(t, rules...)
			for i, at := range []int64{0, 0, 2, 4} { // seconds
				b.now = epoch + at*1e6
				if _, answers := b.do(p, len(rules), script.Consume, "", compose.Call{Cost: 2}); answers[tt.at].Remaining != tt.left[i] {
					t.Errorf("request %d: %+v, want %d left", i, answers, tt.left[i])
				}
			}
		})
	}
}

// Many goroutines make a program, and use its scripts for the first time. There are more
// kinds than the cache of sources holds.
func TestMany(t *testing.T) {
	t.Parallel()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range 300 {
				k := *fixedWindow
				k.Name = "window" + strings.Repeat("x", i%7)
				p := mustProgram(t, compose.Rule{Limit: windowLimit(&k)}, compose.Rule{Limit: windowLimit(fixedWindow)})
				if n, _ := newBench(t).do(p, 2, script.Consume, "", compose.Call{Cost: 1}); n != 1 {
					t.Error("denied")
				}
			}
		})
	}
	group.Wait()
}

// A decision of the Go form does not allocate memory.
func TestAllocs(t *testing.T) {
	if testing.CoverMode() != "" || raceEnabled {
		t.Skip("coverage and the race detector allocate")
	}
	b, p := newBench(t), pair(t, 0, 0)
	consume, keys := p.Script(script.Consume), keysOf(p, 2, script.Consume, "")
	var args []store.Arg
	reply := make([]store.Value, 0, 16)
	call := compose.Call{Cost: 1}
	if n := testing.AllocsPerRun(200, func() {
		args = p.AppendArgs(args[:0], script.Consume, &call)
		out, err := b.st.Eval(context.Background(), consume, keys, args, reply[:0])
		if err != nil {
			t.Error(err)
		}
		o, err := p.Parse(script.Consume, out, nil)
		if err != nil {
			t.Error(err)
		}
		p.Result(0, script.Consume, &o, &call)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
