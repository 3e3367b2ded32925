package algorithm_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// pair is a window of 5 in 10 s beside a rate of 1 per second, burst 3.
func pair(t testing.TB) ([]algorithm.Limit, *algorithm.Program) {
	t.Helper()
	limits := []algorithm.Limit{
		mustLimit(t, algorithm.FixedWindow{Limit: 5, Window: 10 * time.Second}),
		mustLimit(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 3}),
	}
	return limits, mustCompose(t, limits[0].Fragment(), limits[1].Fragment())
}

// All rules are charged, or none; each of them answers in any case.
func TestProgramAllOrNone(t *testing.T) {
	t.Parallel()
	limits, p := pair(t)
	s := newState(epoch, 2)
	for i, tt := range []struct {
		at       int64 // seconds
		window   int64 // cost under each
		gcra     int64
		ok       bool
		allowed  [2]bool
		remains  [2]int64
		windowIs string
		gcraIs   string
	}{
		{0, 1, 1, true, [2]bool{true, true}, [2]int64{4, 2}, "f1 1767225610000000 1", "g1 1767225601000000"},
		{0, 1, 3, false, [2]bool{true, false}, [2]int64{4, 2}, "f1 1767225610000000 1", "g1 1767225601000000"},
		{0, 5, 1, false, [2]bool{false, true}, [2]int64{4, 2}, "f1 1767225610000000 1", "g1 1767225601000000"},
		{0, 6, 4, false, [2]bool{false, false}, [2]int64{4, 2}, "f1 1767225610000000 1", "g1 1767225601000000"},
		{0, 4, 2, true, [2]bool{true, true}, [2]int64{0, 0}, "f1 1767225610000000 5", "g1 1767225603000000"},
		{3, 1, 3, false, [2]bool{false, true}, [2]int64{0, 3}, "f1 1767225610000000 5", "g1 1767225603000000"},
		{10, 1, 1, true, [2]bool{true, true}, [2]int64{4, 2}, "f1 1767225620000000 1", "g1 1767225611000000"},
	} {
		s.now = epoch + tt.at*1e6
		ok, v := run(t, p, p.Decide, s, 0, limits, []int64{tt.window, tt.gcra})
		if ok != tt.ok {
			t.Errorf("step %d: decided %v, want %v", i, ok, tt.ok)
		}
		for r := range v {
			if v[r].Allowed != tt.allowed[r] || v[r].Remaining != tt.remains[r] {
				t.Errorf("step %d, rule %d: got %+v, want allowed %v, remaining %d", i, r, v[r], tt.allowed[r], tt.remains[r])
			}
		}
		for r, want := range []string{tt.windowIs, tt.gcraIs} {
			if got := s.keys[r].nums.String(); got != want {
				t.Errorf("step %d: key %d holds %q, want %q", i, r, got, want)
			}
		}
	}
}

// Every script of a program takes the same arguments and replies alike.
func TestProgramReplies(t *testing.T) {
	t.Parallel()
	limits, p := pair(t)
	s := newState(epoch, 2)
	run(t, p, p.Decide, s, 0, limits, []int64{2, 1})
	s.now += 500_000
	args := p.AppendNow(nil, 0)
	for _, l := range limits {
		args = l.AppendArgs(args, algorithm.Request{Cost: 1})
	}
	want := []int64{1, epoch + 500_000, epoch + 10_000_000, 2, epoch + 1_000_000}
	for _, script := range []*store.Script{p.Peek, p.Decide, p.Peek, p.Reset, p.Peek} {
		reply, err := script.GoForm()(s, args, []store.Value{store.BulkValue("before")})
		if err != nil {
			t.Fatal(err)
		}
		if reply[0] != store.BulkValue("before") || len(reply) != 1+len(want) {
			t.Fatalf("%s replied %v, want %d integers behind what was there", script.Name(), reply, len(want))
		}
		for i, v := range reply[1:] {
			if v != store.IntegerValue(want[i]) {
				t.Errorf("%s: reply %d is %v, want %d", script.Name(), i, v, want[i])
			}
		}
		switch script {
		case p.Decide:
			want = []int64{1, epoch + 500_000, epoch + 10_000_000, 3, epoch + 2_000_000}
		case p.Reset:
			if s.keys[0].held || s.keys[1].held {
				t.Error("a key is there after the reset")
			}
			want = []int64{1, epoch + 500_000, epoch + 10_500_000, 0, 0}
		}
	}
}

func TestProgramScripts(t *testing.T) {
	t.Parallel()
	_, p := pair(t)
	for _, tt := range []struct {
		script   *store.Script
		name     string
		readOnly bool
		commands []string
		not      []string
	}{
		{p.Decide, "fixedwindow+gcra", false, []string{"'GET', KEYS[1]", "'GET', KEYS[2]", "'SET', KEYS[1]", "'SET', KEYS[2]", "'TIME'"}, []string{"'UNLINK'"}},
		{p.Peek, "fixedwindow+gcra.peek", true, []string{"'GET', KEYS[1]", "'GET', KEYS[2]", "'TIME'"}, []string{"'SET'", "'UNLINK'", "slack"}},
		{p.Reset, "fixedwindow+gcra.reset", false, []string{"'GET', KEYS[1]", "'UNLINK', KEYS[1]", "'UNLINK', KEYS[2]"}, []string{"'SET'", "slack"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.script.Name(); got != tt.name {
				t.Errorf("Name() = %q, want %q", got, tt.name)
			}
			if got := tt.script.ReadOnly(); got != tt.readOnly {
				t.Errorf("ReadOnly() = %v, want %v", got, tt.readOnly)
			}
			for _, c := range tt.commands {
				if !strings.Contains(tt.script.Lua(), c) {
					t.Errorf("no %s in\n%s", c, tt.script.Lua())
				}
			}
			for _, c := range append(tt.not, "KEYS[3]", "ARGV[11]", "replicate_commands", "..", "tostring") {
				if strings.Contains(tt.script.Lua(), c) {
					t.Errorf("there is %s in\n%s", c, tt.script.Lua())
				}
			}
		})
	}
}

// Nothing that a program does not reply is taken for an answer.
func TestProgramOutcome(t *testing.T) {
	t.Parallel()
	limits, p := pair(t)
	ints := func(n ...int64) (reply []store.Value) {
		for _, n := range n {
			reply = append(reply, store.IntegerValue(n))
		}
		return reply
	}
	with := func(i int, v store.Value) []store.Value {
		reply := ints(1, epoch, epoch, 2, epoch)
		reply[i] = v
		return reply
	}
	for _, tt := range []struct {
		name  string
		reply []store.Value
		n     int64
		good  bool
	}{
		{"yes", ints(1, epoch, epoch, 2, epoch), 1, true},
		{"no", ints(0, epoch, epoch, 2, epoch), 0, true},
		{"largest", ints(1, 1<<52-1, 1<<53-1, 1<<53-1, 1<<53), 1, true},
		{"seven tokens", ints(7, epoch, epoch, 2, epoch), 7, true},
		{"none", nil, 0, false},
		{"short", ints(1, epoch, epoch, 2), 0, false},
		{"long", ints(1, epoch, epoch, 2, epoch, 0), 0, false},
		{"a nil", with(4, store.Value{}), 0, false},
		{"a string", with(0, store.BulkValue("1")), 0, false},
		{"a string for a number", with(4, store.BulkValue("1767225600000000")), 0, false},
		{"negative", with(0, store.IntegerValue(-1)), 0, false},
		{"a time before 1970", with(1, store.IntegerValue(-epoch)), 0, false},
		{"a time too late", with(1, store.IntegerValue(1<<62)), 0, false},
		{"negative state", with(3, store.IntegerValue(-1)), 0, false},
		{"state too large", with(4, store.IntegerValue(1<<62)), 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n, now, err := p.Outcome(tt.reply)
			if (err == nil) != tt.good || !tt.good && !errors.Is(err, store.ErrScript) {
				t.Fatalf("Outcome = %d, %d, %v, want an answer: %v", n, now, err, tt.good)
			}
			if n != tt.n {
				t.Errorf("n = %d, want %d", n, tt.n)
			}
			if err == nil {
				for i, l := range limits {
					l.Verdict(now, n == 1, p.State(tt.reply, i), algorithm.Request{Cost: 1})
				}
			}
		})
	}
}
