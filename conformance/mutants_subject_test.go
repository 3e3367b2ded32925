package conformance

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/conformance/internal/algorithms"
	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/store"
)

// A subjectMutant is an algorithm that is wrong in one way, or a store that runs it
// otherwise than the memory store does, as one does whose Lua differs from the Go. It must
// fail its check, may fail related checks, and must pass all others.
type subjectMutant struct {
	name  string
	check string
	also  []string
	maker func(*rand.Rand) algorithm.Algorithm // nil: windows without flaw
	wrong mutation
}

// A flawedOne is an algorithm with a flaw. The zero value is invalid.
type flawedOne struct{ *badAlgorithm }

func (a flawedOne) NewLimit() (*contract.Limit, error) {
	if a.badAlgorithm == nil {
		return nil, contract.Invalid("flawedOne has no algorithm")
	}
	l, err := a.badAlgorithm.NewLimit()
	if err == nil {
		l.Carry = nil // the flaw can make it wrong
	}
	return l, err
}

func (a flawedOne) String() string { return fmt.Sprintf("%+v with a flaw", a.Algorithm) }

// flawed makes algorithms with a flaw.
func flawed(maker func(*rand.Rand) algorithm.Algorithm, f flaw) func(*rand.Rand) algorithm.Algorithm {
	kinds := &flawedKinds{flaw: f}
	return func(r *rand.Rand) algorithm.Algorithm { return flawedOne{&badAlgorithm{maker(r), kinds}} }
}

// windows makes windows with a flaw, which start with the first request.
func windows(f flaw) func(*rand.Rand) algorithm.Algorithm {
	return flawed(func(r *rand.Rand) algorithm.Algorithm {
		return algorithm.FixedWindow{Limit: 1 + r.Int64N(12), Window: model.Pick(r, time.Minute, 7_000_001*time.Microsecond, time.Hour, 24*time.Hour)}
	}, f)
}

// An unchecked window does not check its fields.
type unchecked struct{ algorithm.FixedWindow }

func (a unchecked) NewLimit() (*contract.Limit, error) {
	if time.Minute%time.Duration(a.Limit) < 0 { // panics for 0
		return nil, algorithm.ErrInvalidLimit
	}
	return a.FixedWindow.NewLimit()
}

// ofWindows are the scripts that decide over windows.
var ofWindows = with("fixedwindow")

// putWindow changes the values of windows that scripts write.
func putWindow(change func(i int, n *store.Nums, ttl *time.Duration)) mutation {
	return puts(ofWindows, func(i int, n *store.Nums, ttl *time.Duration) {
		if n.Tag == windowTag {
			change(i, n, ttl)
		}
	})
}

// fromStart is a window whose cell holds when the window starts, so that its end depends on
// the limit.
func fromStart(m *badMeter, args []store.Arg) {
	window := args[1].Int()
	m.ends = func(c contract.Cell) int64 { return c.A + window }
	m.advance = func(now int64, c contract.Cell) contract.Cell {
		if now >= c.A+window {
			return contract.Cell{A: now}
		}
		return c
	}
	m.ready = func(_ int64, c contract.Cell, _, _ int64) int64 { return c.A + window }
}

// manyLocals is Lua with more locals than sixteen rules can have.
func manyLocals() string {
	names := make([]string, 120)
	for i := range names {
		names[i] = fmt.Sprintf("l%d", i)
	}
	return "-- advance\nlocal " + strings.Join(names, ", ") + "\n"
}

var subjectMutants = []subjectMutant{
	{"the zero value panics", "Zero", nil, func(r *rand.Rand) algorithm.Algorithm {
		return unchecked{algorithm.FixedWindow{Limit: 1 + r.Int64N(12), Window: time.Hour}}
	}, mutation{}},
	{"a kind is made for each limit", "Zero", nil, windows(flaw{limit: func(l *contract.Limit) {
		k := *l.Kind.(*contract.MeterKind)
		l.Kind = &k
	}}), mutation{}},
	{"Lua counts the third twice", "Same", []string{"Peek", "Remaining", "Mix", "HotKey", "OwnClock", "ResetAfter", "Refund", "Huge", "Never"}, nil, putWindow(func(_ int, n *store.Nums, _ *time.Duration) {
		if n.N[1] == 3 {
			n.N[1]++
		}
	})},
	{"in Lua keys live longer", "Same", nil, nil, putWindow(func(_ int, _ *store.Nums, ttl *time.Duration) { *ttl *= 2 })},
	{"no more than one at a time", "Same", []string{"Mix", "Huge", "Refund"}, nil, oneAtATime("fixedwindow")},
	{"a denial is kept in mind", "Ask", []string{"Same"}, nil, mutation{after: func(c call, tx store.Tx, reply []store.Value) {
		if n, ok, err := tx.Get(0); c.s.Name() == "fixedwindow" && reply[0].Int() == 0 && ok && err == nil {
			tx.Put(0, n, 48*time.Hour)
		}
	}}},
	{"Peek answers less than Consume", "Peek", nil, flawed(model.Usual.SlidingLog, badAnswer(func(ans *contract.Answer, _ contract.State, n int64, _ contract.Ask) {
		if n == 2 {
			ans.Window = time.Second
		}
	})), mutation{}},
	{"many values are off by one", "Peek", nil, nil, values(func(_ *fake, keys []string, got []store.Value) {
		if len(keys) > 1 && strings.Contains(keys[0], "{other}") {
			copy(got, append(slices.Clone(got[1:]), got[0]))
		}
	})},
	{"a denial miscounts", "Remaining", []string{"Huge"}, flawed(model.Usual.SlidingLog, flaw{step: func(b *badStep, args []store.Arg) {
		b.answer = func(now int64, s contract.State, n int64, a contract.Ask) contract.Answer {
			ans := b.Step.Answer(now, s, n, a)
			if n == 0 && b.Step.Room(now, s, a) < a.Cost && a.Cost > 1 && a.Cost <= args[0].Int() {
				ans.Remaining++
			}
			return ans
		}
	}}), mutation{}},
	{"of many rules only the first is read", "Mix", []string{"Ask"}, nil, sees(ofWindows, func(call, store.Tx) view {
		var first *store.Nums
		return view{get: func(_ int, n *store.Nums, _ *bool, _ *error) {
			if n.Tag != windowTag {
				return
			}
			if first == nil {
				held := *n
				first = &held
			}
			*n = *first
		}}
	})},
	{"rule 9 is charged twice", "Mix", nil, nil, putWindow(func(i int, n *store.Nums, _ *time.Duration) {
		if i == 9 {
			n.N[1]++
		}
	})},
	{"too many locals", "Mix", nil, windows(flaw{kind: func(k *contract.MeterKind) { k.Lua = strings.Replace(k.Lua, "-- advance\n", manyLocals(), 1) }}), mutation{}},
	{"the wait is a microsecond longer", "Exact", []string{"Backwards"}, windows(longer(func(wait int64) int64 { return wait + 1 })), mutation{}},
	{"a very large cost is cut", "Never", []string{"Huge"}, nil, cutCosts("fixedwindow")},
	{"reads and writes apart", "HotKey", nil, nil, torn("fixedwindow")},
	{"odd counts are rounded up", "HotKey", []string{"Same", "Mix", "OwnClock", "Peek", "Remaining", "Huge", "Never", "ResetAfter", "Refund", "Exact"}, nil,
		putWindow(func(_ int, n *store.Nums, _ *time.Duration) { n.N[1] += n.N[1] % 2 })},
	{"a window ahead is forgotten", "Backwards", nil, windows(unknownAhead(func(args []store.Arg) int64 { return args[1].Int() })), mutation{}},
	{"the store's clock is fast", "OwnClock", nil, nil, clocks(named("fixedwindow"), func(tx store.Tx) int64 { return tx.Now() + second })},
	{"a foreign value passes for missing", "Foreign", nil, nil, gets(ofWindows, func(_ int, n *store.Nums, ok *bool, _ *error) { *ok = *ok && n.Tag != scripts.PutTag })},
	{"a set passes for missing", "Foreign", nil, nil, sees(ofWindows, func(c call, _ store.Tx) view {
		return view{get: func(_ int, _ *store.Nums, _ *bool, err *error) {
			if len(c.f.sets) > 0 {
				*err = nil
			}
		}}
	})},
	{"a value of another length passes for missing", "Layout", nil, nil, gets(ofWindows, func(_ int, n *store.Nums, ok *bool, _ *error) {
		*ok = *ok && (n.Tag != windowTag || n.Len == 2 || n.Len == 3)
	})},
	{"an integer above 2^53 is accepted", "Layout", nil, nil, sees(ofWindows, func(c call, _ store.Tx) view {
		return view{get: func(_ int, n *store.Nums, ok *bool, err *error) {
			if *err != nil && len(c.f.sets) == 0 {
				*n, *ok, *err = scripts.Nums(windowTag, 1<<53-1, 0), true, nil
			}
		}}
	})},
	{"a caller's clock lengthens nothing", "TTL", []string{"Same"}, nil, shortLived},
	{"a TTL is kept, and the end depends on the limit", "TTL", []string{"Expired"}, windows(flaw{meter: fromStart}), mutation{}},
	{"keys live too short", "Expired", []string{"TTL"}, flawed(model.Usual.SlidingLog, flaw{step: func(b *badStep, _ []store.Arg) {
		b.write = func(tx store.Tx, key int, now int64, s contract.State, n int64, a contract.Ask, gen int64, slack time.Duration) error {
			half := view{Tx: tx, add: func(_ int, _ *store.Member, ttl *time.Duration) {
				*ttl = max((*ttl / 2).Truncate(time.Millisecond), time.Millisecond)
			}}
			return b.Step.Write(half, key, now, s, n, a, gen, slack)
		}
	}}), mutation{}},
	{"a bucket keeps the TTL that another rate gave it", "Expired", []string{"TTL"}, flawed(model.Usual.TokenBucket, flaw{kind: func(k *contract.MeterKind) { k.Absolute = true }}), mutation{}},
	{"a window ends a second later than it is settled", "ResetAfter", []string{"Refund"}, windows(flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.ends = func(c contract.Cell) int64 { return c.A + second }
	}}), mutation{}},
	{"a settled cell ends a window late", "ResetAfter", nil, flawed(model.Usual.SlidingCounter, flaw{meter: func(m *badMeter, args []store.Arg) {
		m.ends = func(c contract.Cell) int64 { return c.A + 2*args[1].Int() }
	}}), mutation{}},
	{"a reset does nothing", "Reset", []string{"Refund", "Huge"}, nil, dels(with("fixedwindow", ".reset"), none)},
	{"more is refunded than was consumed", "Refund", nil, windows(oneMoreBack), mutation{}},
	{"a second refund refunds again", "Refund", nil, nil, keptMarkers("fixedwindow.refund")},
	{"refunds know nothing of each other", "Refund", []string{"Huge"}, flawed(model.Usual.GCRA, unaware), mutation{}},
	{"in Lua refunds know nothing of each other", "Refund", []string{"Huge"}, model.Usual.GCRA, bad(algorithm.GCRA{}, unaware)},
	{"an amount of 0 waits for a token", "Units", nil, flawed(model.Usual.GCRA, badReady(func(m contract.Meter, now int64, c contract.Cell, n, wait int64) int64 {
		return m.Ready(now, c, max(n, 1), wait)
	})), mutation{}},
	{"a turn is told a microsecond late", "MaxWait", []string{"Peek", "Exact", "Backwards", "Refund", "Same", "Huge"}, flawed(model.Usual.GCRA, lateDelays(1)), mutation{}},
	{"the time at which a caller goes is ignored", "MaxWait", []string{"Exact", "Refund", "Peek", "Remaining"}, flawed(model.Usual.GCRA,
		badRoom(func(m contract.Meter, now, _ int64, c contract.Cell) int64 { return m.Room(now, now, c) })), mutation{}},
	{"a turn that comes just now is denied", "MaxWait", []string{"Exact", "Refund", "Peek", "Same", "Huge"}, flawed(model.Usual.LeakyBucket, badRoom(func(m contract.Meter, now, at int64, c contract.Cell) int64 {
		if at > now && c.A == at {
			return 0
		}
		return m.Room(now, at, c)
	})), mutation{}},
	{"large numbers lose digits", "Huge", nil, windows(rounded), mutation{}},
	{"a changed rate keeps the tokens", "Carry", nil, carrying(func(c *contract.Carried) { c.Exact = true }), mutation{}},
	{"a caller may wait a microsecond longer", "Carry", nil, carrying(func(c *contract.Carried) { c.Wait -= time.Microsecond }), mutation{}},
}

// A badCarrier is a GCRA that says something wrong about changes of its limit.
type badCarrier struct {
	algorithm.GCRA
	wrong func(*contract.Carried)
}

func (b badCarrier) NewLimit() (*contract.Limit, error) {
	l, err := b.GCRA.NewLimit()
	if err == nil {
		carry := l.Carry
		l.Carry = func(to *contract.Limit) contract.Carried {
			c := carry(to)
			b.wrong(&c)
			return c
		}
	}
	return l, err
}

func carrying(wrong func(*contract.Carried)) func(*rand.Rand) algorithm.Algorithm {
	return func(r *rand.Rand) algorithm.Algorithm { return badCarrier{model.Usual.GCRA(r).(algorithm.GCRA), wrong} }
}

// unitOfAny is a Subject.Unit of everything that mutants are made of.
func unitOfAny(a algorithm.Algorithm) time.Duration {
	if one, ok := a.(flawedOne); ok {
		a = one.Algorithm
	}
	return model.Unit(a)
}

// subject is the Subject that a mutant is checked as.
func (m subjectMutant) subject() *algorithms.Subject {
	s := &algorithms.Subject{New: m.maker, Unit: unitOfAny}
	if s.New == nil {
		s.New = windows(flaw{})
	}
	if a, ok := s.New(rand.New(rand.NewPCG(1, 1))).(flawedOne); ok && reflect.TypeFor[algorithm.FixedWindow]() == reflect.TypeOf(a.Algorithm) {
		s.Huge = []algorithm.Algorithm{flawedOne{&badAlgorithm{algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: time.Hour}, a.flawedKinds}}}
	}
	return s
}

// TestSubjects shows that the algorithms that mutants are made of pass every check, and that
// checks for which an algorithm is never slow enough fail until they are declared.
func TestSubjects(t *testing.T) {
	t.Parallel()
	quick := func(r *rand.Rand) algorithm.Algorithm {
		return algorithm.FixedWindow{Limit: 1 + r.Int64N(12), Window: time.Second}
	}
	for _, tt := range []struct {
		name     string
		maker    func(*rand.Rand) algorithm.Algorithm
		declared map[string]string
	}{
		{"edge", windows(flaw{}), nil},
		{"start", windows(flaw{meter: fromStart, kind: func(k *contract.MeterKind) { k.Absolute = false }}), nil},
		{"quick", quick, map[string]string{"Algorithm/HotKey": "all tokens are back within a second", "Algorithm/OwnClock": "the same"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := mutation{}.backend()
			b.Seed, b.Brief = 0, tt.declared != nil
			b.Record = func(o Outcome) {
				reason := tt.declared[o.Check]
				if o.Passed != (reason == "") && o.Check != "Algorithm/MaxWait" || !strings.HasSuffix(o.Skipped, reason) {
					t.Errorf("%s: passed %v, skipped %q", o.Check, o.Passed, o.Skipped)
				}
			}
			s := subjectMutant{maker: tt.maker}.subject()
			RunAlgorithm(t, b, Subject{New: s.New, Unit: s.Unit, Huge: s.Huge, Unsupported: tt.declared})
		})
	}
}

// TestSubjectMutants shows that every check of RunAlgorithm can fail.
func TestSubjectMutants(t *testing.T) {
	t.Parallel()
	covered := map[string]bool{}
	for i, m := range subjectMutants {
		covered["Algorithm/"+m.check] = true
		if !sampled(i) {
			continue
		}
		t.Run(m.check+" "+m.name, func(t *testing.T) {
			t.Parallel()
			m.test(t)
		})
	}
	for _, name := range AlgorithmChecks() {
		if !covered[name] {
			t.Errorf("no mutant fails %s", name)
		}
	}
}

func (m subjectMutant) test(t *testing.T) {
	var wg sync.WaitGroup
	for _, r := range m.subject().Group().Checks {
		if r.Name != m.check && (r.Name == "Units" || slices.Contains(m.also, r.Name)) {
			continue // either way is right
		}
		wg.Go(func() {
			breaks(t, m.wrong.host(), r, r.Name, r.Name == m.check)
		})
	}
	wg.Wait()
}
