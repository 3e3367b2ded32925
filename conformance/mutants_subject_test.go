package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
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
	maker func(*rand.Rand) algorithm.Algorithm // nil: a tally without flaw
	wrong mutation
}

// A flawedOne is an algorithm with a flaw. The zero value is invalid.
type flawedOne struct{ *badAlgorithm }

func (a flawedOne) NewLimit() (*contract.Limit, error) {
	if a.badAlgorithm == nil {
		return nil, contract.Invalid("flawedOne has no algorithm")
	}
	return a.badAlgorithm.NewLimit()
}

func (a flawedOne) String() string { return fmt.Sprintf("%+v with a flaw", a.Algorithm) }

// flawed makes algorithms with a flaw.
func flawed(maker func(*rand.Rand) algorithm.Algorithm, f flaw) func(*rand.Rand) algorithm.Algorithm {
	kinds := &flawedKinds{flaw: f}
	return func(r *rand.Rand) algorithm.Algorithm { return flawedOne{&badAlgorithm{maker(r), kinds}} }
}

// ofTally changes the view of scripts that decide over a tally.
func ofTally(change func(f *fake, s *store.Script, tx store.Tx) store.Tx) mutation {
	return mutation{tx: func(f *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if !strings.Contains(s.Name(), "tally") {
			return tx
		}
		return change(f, s, tx)
	}}
}

// putTally changes the values of a tally that scripts write.
func putTally(change func(i int, n *store.Nums, ttl *time.Duration)) mutation {
	return ofTally(func(_ *fake, _ *store.Script, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(i int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			if n.Tag == tallyTag {
				change(i, &n, &ttl)
			}
			return n, ttl
		}}
	})
}

// getTally changes what scripts that decide over a tally read.
func getTally(get func(f *fake, n store.Nums, ok bool, err error) (store.Nums, bool, error)) mutation {
	return ofTally(func(f *fake, _ *store.Script, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(_ int, n store.Nums, ok bool, err error) (store.Nums, bool, error) { return get(f, n, ok, err) }}
	})
}

// fromStart is a tally whose cell holds when the window starts, so that its end depends on
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

// otherWaiting refunds as if constant number at were larger by what by returns: the
// capacity, or the time in which the bucket fills. So it sees too late, or too early, that
// others wait.
func otherWaiting(at int, by func(args []store.Arg) int64) flaw {
	return flaw{meter: func(m *badMeter, args []store.Arg) {
		var a algorithm.Algorithm = algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerSecond(1)}
		switch len(args) {
		case 2:
			a = algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}
		case 3:
			a = algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 1}
		}
		right, _ := a.NewLimit()
		args = slices.Clone(args)
		i := min(at, len(args)-1)
		args[i] = store.ConstArg(args[i].Int() + by(args))
		m.refund = right.Kind.(*contract.MeterKind).Meter(args).(contract.Refunder).Refund
	}}
}

func constant(n int64) func([]store.Arg) int64 { return func([]store.Arg) int64 { return n } }

func firstArg(args []store.Arg) int64 { return args[0].Int() }

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
		return unchecked{anyTally(flaw{})(r).(tally)}
	}, mutation{}},
	{"a kind is made for each limit", "Zero", nil, func(r *rand.Rand) algorithm.Algorithm {
		return anyTally(flaw{limit: func(l *contract.Limit) {
			k := *l.Kind.(*contract.MeterKind)
			l.Kind = &k
		}})(r)
	}, mutation{}},
	{"Lua counts the third twice", "Same", []string{"Peek", "Remaining", "Mix", "Sixteen", "HotKey", "OwnClock", "ResetAfter", "Refund", "Huge", "Never"}, nil,
		putTally(func(_ int, n *store.Nums, _ *time.Duration) {
			if n.N[1] == 3 {
				n.N[1]++
			}
		})},
	{"in Lua keys live longer", "Same", nil, nil, putTally(func(_ int, _ *store.Nums, ttl *time.Duration) { *ttl *= 2 })},
	{"a denial is kept in mind", "Ask", []string{"Same"}, nil, mutation{after: func(_ *fake, s *store.Script, tx store.Tx, reply []store.Value) {
		if n, ok, err := tx.Get(0); s.Name() == "tally" && reply[0].Int() == 0 && ok && err == nil {
			tx.Put(0, n, 48*time.Hour)
		}
	}}},
	{"Peek answers less than Consume", "Peek", nil, flawed(model.Usual.SlidingLog, badStepAnswer(func(ans *contract.Answer, _ contract.State, n int64) {
		if n == 2 {
			ans.Window = time.Second
		}
	})), mutation{}},
	{"many values are off by one", "Peek", nil, nil, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		values, err := f.Store.MGet(ctx, keys, values)
		if err == nil && len(keys) > 1 && strings.Contains(keys[0], "{other}") {
			values = append(values[1:], values[0])
		}
		return values, err
	}}},
	{"a denial miscounts", "Remaining", []string{"Huge"}, flawed(model.Usual.SlidingLog, flaw{step: func(b *badStep, args []store.Arg) {
		b.answer = func(now int64, s contract.State, n int64, a contract.Ask) contract.Answer {
			ans := b.Step.Answer(now, s, n, a)
			if n == 0 && b.Step.Room(now, s, a) < a.Cost && a.Cost > 1 && a.Cost <= args[0].Int() {
				ans.Remaining++
			}
			return ans
		}
	}}), mutation{}},
	{"of many rules only the first is read", "Mix", []string{"Sixteen"}, nil, ofTally(func(_ *fake, _ *store.Script, tx store.Tx) store.Tx {
		var first *store.Nums
		return txFunc{Tx: tx, get: func(_ int, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if n.Tag != tallyTag {
				return n, ok, err
			}
			if first == nil {
				first = &n
			}
			return *first, ok, err
		}}
	})},
	{"rule 9 is charged twice", "Sixteen", nil, nil, putTally(func(i int, n *store.Nums, _ *time.Duration) {
		if i == 9 {
			n.N[1]++
		}
	})},
	{"too many locals", "Sixteen", nil, anyTally(flaw{kind: func(k *contract.MeterKind) { k.Lua = strings.Replace(k.Lua, "-- advance\n", manyLocals(), 1) }}), mutation{}},
	{"the wait is a microsecond longer", "Exact", []string{"Backwards"}, anyTally(longer(func(wait int64) int64 { return wait + 1 })), mutation{}},
	{"a very large cost is cut", "Never", []string{"Huge"}, nil, cutCosts("tally")},
	{"reads and writes apart", "HotKey", nil, nil, torn("tally")},
	{"odd counts are rounded up", "HotKey", []string{"Same", "Mix", "Sixteen", "OwnClock", "Peek", "Remaining", "Huge", "Never", "ResetAfter", "Refund", "Exact"}, nil,
		putTally(func(_ int, n *store.Nums, _ *time.Duration) { n.N[1] += n.N[1] % 2 })},
	{"a window ahead is forgotten", "Backwards", nil, anyTally(unknownAhead(func(args []store.Arg) int64 { return args[1].Int() })), mutation{}},
	{"the store's clock is fast", "OwnClock", nil, nil, onlyFor("tally", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, now: func() int64 { return tx.Now() + 1_000_000 }}
	})},
	{"a foreign value passes for missing", "Foreign", nil, nil, getTally(func(_ *fake, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
		return n, ok && n.Tag != scripts.PutTag, err
	})},
	{"a set passes for missing", "ForeignType", nil, nil, getTally(func(f *fake, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
		if len(f.sets) > 0 {
			err = nil
		}
		return n, ok, err
	})},
	{"a value of another length passes for missing", "Layout", nil, nil, getTally(func(_ *fake, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
		return n, ok && (n.Tag != tallyTag || n.Len == 2 || n.Len == 3), err
	})},
	{"an integer above 2^53 is accepted", "Layout", nil, nil, getTally(func(f *fake, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
		if err != nil && len(f.sets) == 0 {
			return scripts.Nums(tallyTag, 1<<53-1, 0), true, nil
		}
		return n, ok, err
	})},
	{"a caller's clock lengthens nothing", "TTL", []string{"Same"}, nil, mutation{tx: func(_ *fake, s *store.Script, args []store.Arg, tx store.Tx) store.Tx {
		if !strings.HasPrefix(s.Name(), "tally") || len(args) < 5 || args[4].Int() == 0 {
			return tx
		}
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) { return n, ttl - time.Hour }}
	}}},
	{"a TTL is kept, and the end depends on the limit", "TTL", []string{"Expired"}, anyTally(flaw{meter: fromStart}), mutation{}},
	{"keys live too short", "Expired", []string{"TTL"}, flawed(model.Usual.SlidingLog, flaw{step: func(b *badStep, _ []store.Arg) {
		b.write = func(tx store.Tx, key int, now int64, s contract.State, n int64, a contract.Ask, gen int64, slack time.Duration) error {
			half := txFunc{Tx: tx, add: func(i int, m store.Member, ttl time.Duration) {
				tx.Add(i, m, max((ttl/2).Truncate(time.Millisecond), time.Millisecond))
			}}
			return b.Step.Write(half, key, now, s, n, a, gen, slack)
		}
	}}), mutation{}},
	{"a bucket keeps the TTL that another rate gave it", "Expired", []string{"TTL"}, flawed(model.Usual.TokenBucket, flaw{kind: func(k *contract.MeterKind) { k.Absolute = true }}), mutation{}},
	{"a window ends a second later than it is settled", "ResetAfter", nil, anyTally(flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.ends = func(c contract.Cell) int64 { return c.A + 1_000_000 }
	}}), mutation{}},
	{"a settled cell ends a window late", "ResetAfter", nil, flawed(model.Usual.SlidingCounter, flaw{meter: func(m *badMeter, args []store.Arg) {
		m.ends = func(c contract.Cell) int64 { return c.A + 2*args[1].Int() }
	}}), mutation{}},
	{"a reset does nothing", "Reset", []string{"Refund", "Huge"}, nil, ofTally(func(_ *fake, s *store.Script, tx store.Tx) store.Tx {
		if strings.HasSuffix(s.Name(), ".reset") {
			return txFunc{Tx: tx, del: func(int) {}}
		}
		return tx
	})},
	{"no more than one at a time", "Same", []string{"Mix", "Huge", "Refund", "Sixteen"}, nil, oneAtATime("tally")},
	{"more is refunded than was consumed", "Refund", nil, anyTally(oneMoreBack), mutation{}},
	{"a second refund refunds again", "Refund", nil, nil, keptMarkers("tally.refund")},
	{"refunds know nothing of each other", "Refund", []string{"Huge"}, flawed(model.Usual.GCRA, unaware), mutation{}},
	{"in Lua refunds know nothing of each other", "Refund", []string{"Huge"}, model.Usual.GCRA, bad[algorithm.GCRA](unaware)},
	{"in Lua a full bucket counts as one that others wait for", "Refund", []string{"Huge"}, model.Usual.TokenBucket, bad[algorithm.TokenBucket](otherWaiting(0, constant(-1)))},
	{"in Lua the first who waits for a bucket is not seen", "Refund", []string{"Huge"}, model.Usual.TokenBucket, bad[algorithm.TokenBucket](otherWaiting(0, constant(1)))},
	{"in Lua a used up GCRA counts as one that others wait for", "Refund", []string{"Huge"}, model.Usual.GCRA, bad[algorithm.GCRA](otherWaiting(2, constant(-1)))},
	{"in Lua the first who waits for a GCRA is not seen", "Refund", []string{"Huge"}, model.Usual.GCRA, bad[algorithm.GCRA](otherWaiting(2, firstArg))},
	{"an amount of 0 waits for a token", "Units", nil, flawed(model.Usual.GCRA, flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.ready = func(now int64, c contract.Cell, n, wait int64) int64 { return m.Meter.Ready(now, c, max(n, 1), wait) }
	}}), mutation{}},
	{"a turn is told a microsecond late", "MaxWait", []string{"Peek", "Exact", "Backwards", "Refund", "Same", "Huge"}, flawed(model.Usual.GCRA, lateDelays(1)), mutation{}},
	{"the time at which a caller goes is ignored", "MaxWait", []string{"Exact", "Refund", "Peek", "Remaining"}, flawed(model.Usual.GCRA, flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.room = func(now, _ int64, c contract.Cell) int64 { return m.Meter.Room(now, now, c) }
	}}), mutation{}},
	{"a turn that comes just now is denied", "MaxWait", []string{"Exact", "Refund", "Peek", "Same", "Huge"}, flawed(model.Usual.LeakyBucket, flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.room = func(now, at int64, c contract.Cell) int64 {
			if at > now && c.A == at {
				return 0
			}
			return m.Meter.Room(now, at, c)
		}
	}}), mutation{}},
	{"large numbers lose digits", "Huge", nil, anyTally(rounded), mutation{}},
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
	switch a := a.(type) {
	case flawedOne:
		return unitOfAny(a.Algorithm)
	case badCarrier:
		return model.Unit(a.GCRA)
	case tally, unchecked:
		return 3 * time.Minute
	}
	return model.Unit(a)
}

// subject is the Subject that a mutant is checked as.
func (m subjectMutant) subject() *algorithms.Subject {
	s := &algorithms.Subject{New: m.maker, Unit: unitOfAny}
	if s.New == nil {
		s.New = anyTally(flaw{})
	}
	if a, ok := s.New(rand.New(rand.NewPCG(1, 1))).(tally); ok {
		s.Huge = []algorithm.Algorithm{tally{algorithm.MaxTokens, time.Hour, a.flawedKinds}}
	}
	return s
}

// TestTally shows that the algorithms that mutants are made of pass every check.
func TestTally(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]flaw{
		"edge":  {},
		"start": {meter: fromStart, kind: func(k *contract.MeterKind) { k.Absolute = false }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := mutation{}.backend()
			b.Seed = 0
			b.Record = func(o Outcome) {
				if !o.Passed && o.Check != "Algorithm/MaxWait" {
					t.Errorf("%s: not passed: %s", o.Check, o.Skipped)
				}
			}
			s := subjectMutant{maker: anyTally(f)}.subject()
			RunAlgorithm(t, b, Subject{New: s.New, Unit: s.Unit, Huge: s.Huge})
		})
	}
}

// TestUnsupported shows that checks for which an algorithm is never slow enough fail
// until they are declared.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	declared := map[string]string{
		"Algorithm/HotKey":   "all tokens are back within a second",
		"Algorithm/OwnClock": "the same",
	}
	b := mutation{}.backend()
	b.Brief = true
	b.Record = func(o Outcome) {
		if reason := declared[o.Check]; o.Passed != (reason == "") && o.Check != "Algorithm/MaxWait" || !strings.HasSuffix(o.Skipped, reason) {
			t.Errorf("%s: passed %v, skipped %q", o.Check, o.Passed, o.Skipped)
		}
	}
	RunAlgorithm(t, b, Subject{
		New:         func(r *rand.Rand) algorithm.Algorithm { return tally{1 + r.Int64N(12), time.Second, nil} },
		Unit:        func(algorithm.Algorithm) time.Duration { return time.Second / 4 },
		Unsupported: declared,
	})
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
