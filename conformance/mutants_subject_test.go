package conformance

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A subjectMutant is an algorithm that is wrong in one way, or a store that runs
// its Lua otherwise than its Go. It must break its rule, may break those that
// look at the same thing, and must keep all others.
type subjectMutant struct {
	name  string
	rule  string
	also  []string
	maker func(*rand.Rand) algorithm.Algorithm // nil: a tally without flaw
	wrong mutation
}

// flawed makes tallies whose fragment is changed.
func flawed(change func(f *algorithm.Fragment)) func(*rand.Rand) algorithm.Algorithm {
	return anyTally(&flaw{fragment: change})
}

// lying makes tallies whose verdict is changed.
func lying(change func(v algorithm.Verdict, committed bool, r algorithm.Request) algorithm.Verdict) func(*rand.Rand) algorithm.Algorithm {
	return anyTally(&flaw{verdict: change})
}

// rewrite changes what a fragment puts.
func rewrite(put func(i int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration)) func(f *algorithm.Fragment) {
	return func(f *algorithm.Fragment) {
		commit := f.Commit
		f.Commit = func(tx store.Tx, key int, now int64, args []store.Arg, s algorithm.State, slack time.Duration) {
			commit(txFunc{Tx: tx, put: put}, key, now, args, s, slack)
		}
	}
}

var subjectMutants = []subjectMutant{
	{"the zero value panics", "Zero", nil, func(r *rand.Rand) algorithm.Algorithm {
		return unchecked{anyTally(&flaw{})(r).(tally)}
	}, mutation{}},
	{"a fragment is made for each call", "Zero", nil, func(r *rand.Rand) algorithm.Algorithm {
		return restless{anyTally(&flaw{})(r).(tally)}
	}, mutation{}},
	{"Lua counts the third twice", "Same", []string{"PeekMany", "Remaining", "Mix", "Sixteen", "HotKeyFull", "OwnClock", "Dead", "ResetAfter", "UpTo", "Refund", "Huge", "Never"}, nil,
		onlyFor("tally", func(_ *fake, tx store.Tx) store.Tx {
			return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
				if n.Tag == tallyTag && n.N[1] == 3 {
					n.N[1]++
				}
				return n, ttl
			}}
		})},
	{"in Lua keys live longer", "Same", nil, nil, onlyFor("tally", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) { return n, 2 * ttl }}
	})},
	{"a denial is kept in mind", "Ask", []string{"Same"}, nil, mutation{after: func(_ *fake, s *store.Script, tx store.Tx, reply []store.Value) {
		if n, ok, err := tx.Get(0, tallyTag); s.Name() == "tally" && reply[0].Int() == 0 && ok && err == nil {
			tx.Put(0, n, 48*time.Hour)
		}
	}}},
	{"Peek does not tell all", "Peek", nil, lying(func(v algorithm.Verdict, committed bool, r algorithm.Request) algorithm.Verdict {
		if committed && r.Cost == 2 {
			v.Span = time.Second
		}
		return v
	}), mutation{}},
	{"many values are off by one", "PeekMany", nil, nil, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		values, err := f.Store.MGet(ctx, keys, values)
		if err == nil && len(keys) > 1 {
			values = append(values[1:], values[0])
		}
		return values, err
	}}},
	{"a denial miscounts", "Remaining", []string{"Huge"}, lying(func(v algorithm.Verdict, _ bool, _ algorithm.Request) algorithm.Verdict {
		if !v.Allowed && v.RetryAfter != algorithm.Never {
			v.Remaining++
		}
		return v
	}), mutation{}},
	{"only the first key is read", "Mix", []string{"Sixteen", "Ask", "Foreign", "ForeignType", "UpTo"}, flawed(func(f *algorithm.Fragment) {
		check := f.Check
		f.Check = func(tx store.Tx, _ int, now int64, args []store.Arg) (algorithm.State, bool, error) {
			return check(tx, 0, now, args)
		}
	}), mutation{}},
	{"all are charged what the first is", "Sixteen", []string{"Mix"}, flawed(func(f *algorithm.Fragment) {
		commit := f.Commit
		f.Commit = func(tx store.Tx, key int, now int64, args []store.Arg, s algorithm.State, slack time.Duration) {
			if key == 9 {
				s[1]++
			}
			commit(tx, key, now, args, s, slack)
		}
	}), mutation{}},
	{"too many locals", "Sixteen", nil, flawed(func(f *algorithm.Fragment) {
		f.Lua = strings.Replace(f.Lua, "-- check\n", "-- check\nlocal na, nb, nc, nd, ne, nf, ng, nh, ni\n", 1)
	}), mutation{}},
	{"the wait is a microsecond longer", "Exact", []string{"Backwards"}, lying(func(v algorithm.Verdict, _ bool, _ algorithm.Request) algorithm.Verdict {
		if !v.Allowed && v.RetryAfter != algorithm.Never {
			v.RetryAfter += time.Microsecond
		}
		return v
	}), mutation{}},
	{"never is an hour", "Never", []string{"Exact"}, lying(func(v algorithm.Verdict, _ bool, _ algorithm.Request) algorithm.Verdict {
		if v.RetryAfter == algorithm.Never {
			v.RetryAfter = time.Hour
		}
		return v
	}), mutation{}},
	{"reads and writes apart", "HotKey", nil, nil, torn("tally")},
	{"odd counts are rounded up", "HotKeyFull", []string{"Same", "Mix", "Sixteen", "OwnClock", "PeekMany", "Remaining", "Huge", "Never", "ResetAfter", "UpTo", "Refund", "Exact"}, nil,
		onlyFor("tally", func(_ *fake, tx store.Tx) store.Tx {
			return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
				if n.Tag == tallyTag {
					n.N[1] += n.N[1] % 2
				}
				return n, ttl
			}}
		})},
	{"a window ahead is forgotten", "Backwards", nil, flawed(func(f *algorithm.Fragment) {
		check := f.Check
		f.Check = func(tx store.Tx, key int, now int64, args []store.Arg) (algorithm.State, bool, error) {
			s, ok, err := check(tx, key, now, args)
			if s[0]-now > args[2].Int() {
				return algorithm.State{now + args[2].Int()}, args[0].Int() >= 0, err
			}
			return s, ok, err
		}
	}), mutation{}},
	{"the store's clock is fast", "OwnClock", nil, nil, onlyFor("tally", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, now: func() int64 { return tx.Now() + 1_000_000 }}
	})},
	{"a foreign key passes for missing", "Foreign", []string{"ForeignType"}, flawed(func(f *algorithm.Fragment) {
		check := f.Check
		f.Check = func(tx store.Tx, key int, now int64, args []store.Arg) (algorithm.State, bool, error) {
			s, ok, _ := check(tx, key, now, args)
			return s, ok, nil
		}
	}), mutation{}},
	{"a set passes for missing", "ForeignType", nil, nil, mutation{tx: func(f *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if !strings.Contains(s.Name(), "tally") {
			return tx
		}
		return txFunc{Tx: tx, get: func(n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if len(f.sets) > 0 {
				err = nil
			}
			return n, ok, err
		}}
	}}},
	{"a caller's clock lengthens nothing", "TTL", []string{"Same"}, flawed(func(f *algorithm.Fragment) {
		commit := f.Commit
		f.Commit = func(tx store.Tx, key int, now int64, args []store.Arg, s algorithm.State, _ time.Duration) {
			commit(tx, key, now, args, s, 0)
		}
	}), mutation{}},
	{"keys live too short", "Dead", []string{"TTL"}, flawed(rewrite(func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
		return n, ttl / 2
	})), mutation{}},
	{"a reset is told in seconds", "ResetAfter", []string{"TTL"}, lying(func(v algorithm.Verdict, _ bool, _ algorithm.Request) algorithm.Verdict {
		v.ResetAfter = (v.ResetAfter + time.Second - 1).Truncate(time.Second)
		return v
	}), mutation{}},
	{"a reset does nothing", "Reset", nil, nil, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if strings.HasSuffix(s.Name(), ".reset") {
			return txFunc{Tx: tx, del: func(int) {}}
		}
		return tx
	}}},
	{"one less fits", "UpTo", nil, flawed(func(f *algorithm.Fragment) {
		fit := f.Fit
		f.Fit = func(now int64, args []store.Arg, s algorithm.State) int64 { return fit(now, args, s) - 1 }
	}), mutation{}},
	{"the next window is given tokens", "Refund", nil, flawed(func(f *algorithm.Fragment) {
		refund := f.Refund
		f.Refund = func(tx store.Tx, key int, now int64, args []store.Arg, s algorithm.State, was algorithm.Charge, note algorithm.Note) bool {
			was[0] = s[0]
			return refund(tx, key, now, args, s, was, note)
		}
		charge := f.Charge
		f.Charge = func(now int64, args []store.Arg, s algorithm.State, note algorithm.Note) (algorithm.Charge, int64) {
			was, life := charge(now, args, s, note)
			return was, 2 * life
		}
	}), mutation{}},
	{"more is given than was taken", "Refund", nil, flawed(func(f *algorithm.Fragment) {
		charge := f.Charge
		f.Charge = func(now int64, args []store.Arg, s algorithm.State, note algorithm.Note) (algorithm.Charge, int64) {
			was, life := charge(now, args, s, note)
			was[1]++
			return was, life
		}
	}), mutation{}},
	{"a turn is told a microsecond late", "MaxWait", nil, func(r *rand.Rand) algorithm.Algorithm {
		return unpunctual{algorithm.GCRA{Rate: algorithm.PerHour(6), Burst: 1 + r.Int64N(9)}}
	}, mutation{}},
	{"large numbers lose digits", "Huge", nil, anyTally(&flaw{args: roundArgs}), mutation{}},
}

// A restless tally has a new fragment each time.
type restless struct{ tally }

type restlessLimit struct{ algorithm.Limit }

func (a restless) NewLimit() (algorithm.Limit, error) {
	l, err := a.tally.NewLimit()
	if err != nil {
		return nil, err
	}
	return restlessLimit{l}, nil
}

func (l restlessLimit) Fragment() *algorithm.Fragment {
	f := *l.Limit.Fragment()
	return &f
}

// An unpunctual GCRA tells everyone to come a little later.
type unpunctual struct{ algorithm.GCRA }

type unpunctualLimit struct{ algorithm.Limit }

func (a unpunctual) NewLimit() (algorithm.Limit, error) {
	l, err := a.GCRA.NewLimit()
	return unpunctualLimit{l}, err
}

func (l unpunctualLimit) Verdict(now int64, committed bool, s algorithm.State, r algorithm.Request) algorithm.Verdict {
	v := l.Limit.Verdict(now, committed, s, r)
	if v.Delay > 0 {
		v.Delay += time.Microsecond
	}
	return v
}

// subject is what a mutant is proven as.
func (m subjectMutant) subject() *Subject {
	s := &Subject{
		New:  m.maker,
		Unit: func(a algorithm.Algorithm) time.Duration { return 3 * time.Minute },
	}
	if s.New == nil {
		s.New = anyTally(&flaw{})
	}
	f := &flaw{}
	if a, ok := s.New(rand.New(rand.NewPCG(1, 1))).(tally); ok {
		f = a.flaw
	}
	s.Huge = []algorithm.Algorithm{tally{algorithm.MaxTokens, time.Hour, f}}
	return s
}

// TestTally shows that what mutants are made of keeps every rule.
func TestTally(t *testing.T) {
	t.Parallel()
	b := mutation{}.backend()
	b.Seed = 0
	b.Record = func(o Outcome) {
		if !o.Passed && o.Rule != "Algorithm/MaxWait" {
			t.Errorf("%s: not passed: %s", o.Rule, o.Skipped)
		}
	}
	RunAlgorithm(t, b, *subjectMutant{}.subject())
}

// TestUnsupported shows that rules for which an algorithm is never slow enough are
// broken until they are declared.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	declared := map[string]string{
		"Algorithm/HotKey":     "all is back within a second",
		"Algorithm/HotKeyFull": "the same",
		"Algorithm/OwnClock":   "the same",
	}
	b := mutation{}.backend()
	b.brief = true
	b.Record = func(o Outcome) {
		if reason := declared[o.Rule]; o.Passed != (reason == "") && o.Rule != "Algorithm/MaxWait" || !strings.HasSuffix(o.Skipped, reason) {
			t.Errorf("%s: passed %v, skipped %q", o.Rule, o.Passed, o.Skipped)
		}
	}
	RunAlgorithm(t, b, Subject{
		New:         func(r *rand.Rand) algorithm.Algorithm { return tally{1 + r.Int64N(12), time.Second, &flaw{}} },
		Unit:        func(algorithm.Algorithm) time.Duration { return time.Second / 4 },
		Unsupported: declared,
	})
}

// TestSubjectMutants shows that every rule of RunAlgorithm can fail.
func TestSubjectMutants(t *testing.T) {
	t.Parallel()
	covered := map[string]bool{}
	for _, m := range subjectMutants {
		covered["Algorithm/"+m.rule] = true
		t.Run(m.rule+" "+m.name, func(t *testing.T) {
			t.Parallel()
			m.test(t)
		})
	}
	eachCovered(t, AlgorithmRules(), covered)
}

func (m subjectMutant) test(t *testing.T) {
	var wg sync.WaitGroup
	for _, r := range algorithmRules {
		if r.name != m.rule && slices.Contains(m.also, r.name) {
			continue // either way is right
		}
		wg.Go(func() {
			b := m.wrong.backend()
			b.subject = m.subject()
			b.breaks(t, r, r.name, r.name == m.rule)
		})
	}
	wg.Wait()
}
