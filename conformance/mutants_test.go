package conformance

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/conformance/internal/algorithms"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
)

// A mutant differs from a correct store, or algorithm, in one behaviour. It must fail its
// check, may fail related checks, and must pass all others.
type mutant struct {
	name  string
	check string   // its check
	also  []string // related checks or, ending in a slash, subjects
	wrong mutation
}

// onlyFor limits a change of the view to scripts whose name begins with name.
func onlyFor(name string, change func(f *fake, tx store.Tx) store.Tx) mutation {
	return mutation{tx: func(f *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if !strings.HasPrefix(s.Name(), name) {
			return tx
		}
		return change(f, tx)
	}}
}

// torn runs the script of that name in two steps: one that reads, and one that writes.
func torn(name string) mutation {
	return mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if s.Name() != name {
			return f.right(ctx, s, keys, args, reply)
		}
		var puts []func(tx store.Tx)
		read := store.NewScript("read", "", func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
			return s.GoForm()(writeLater{tx, &puts}, args, reply)
		})
		reply, err := f.Store.Eval(ctx, read, keys, args, reply)
		if err != nil {
			return reply, err
		}
		time.Sleep(50 * time.Microsecond)
		write := store.NewScript("write", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
			for _, put := range puts {
				put(tx)
			}
			return reply, nil
		})
		_, err = f.Store.Eval(ctx, write, keys, nil, nil)
		return reply, err
	}}
}

type writeLater struct {
	store.Tx
	puts *[]func(store.Tx)
}

func (w writeLater) later(write func(tx store.Tx)) { *w.puts = append(*w.puts, write) }

func (w writeLater) Put(i int, n store.Nums, ttl time.Duration) {
	w.later(func(tx store.Tx) { tx.Put(i, n, ttl) })
}

func (w writeLater) Keep(i int, n store.Nums) { w.later(func(tx store.Tx) { tx.Keep(i, n) }) }

func (w writeLater) Del(i int) { w.later(func(tx store.Tx) { tx.Del(i) }) }

func (w writeLater) Add(i int, m store.Member, ttl time.Duration) {
	w.later(func(tx store.Tx) { tx.Add(i, m, ttl) })
}

func (w writeLater) Remove(i int, text string) { w.later(func(tx store.Tx) { tx.Remove(i, text) }) }

func (w writeLater) Trim(i int, n int64) { w.later(func(tx store.Tx) { tx.Trim(i, n) }) }

// hasty gives scripts whose name begins with name a clock that runs at twice the speed.
func hasty(name string) mutation {
	return onlyFor(name, func(f *fake, tx store.Tx) store.Tx {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.memo == nil {
			f.memo = tx.Now()
		}
		start := f.memo.(int64)
		return txFunc{Tx: tx, now: func() int64 { return start + 2*(tx.Now()-start) }}
	})
}

// changed runs a correct Eval and then changes the reply. A Go form replies with
// integers: tokens, the time, and what each rule's key held.
func changed(change func(s *store.Script, keys []string, reply []store.Value)) mutation {
	return mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		start := len(reply)
		reply, err := f.right(ctx, s, keys, args, reply)
		if err == nil {
			change(s, keys, reply[start:])
		}
		return reply, err
	}}
}

// composed reports whether s decides over several rules.
func composed(s *store.Script) bool { return strings.Contains(s.Name(), "+") }

func asks(s *store.Script) bool { return strings.HasSuffix(s.Name(), ".peek") }

// ofSuite reports whether s is a script of the suite, and not of a limiter.
func ofSuite(s *store.Script) bool {
	return slices.Contains([]string{"counter", "steps", "wide", "echo", "kinds", "put", "keep", "text", "clean", "push", "broken", "read", "setstep", "fill", "count", "look", "moments", "panics"}, s.Name())
}

// ofLimiters limits a change of the view to the scripts of limiters.
func ofLimiters(change func(f *fake, s *store.Script, tx store.Tx) store.Tx) mutation {
	return mutation{tx: func(f *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if ofSuite(s) {
			return tx
		}
		return change(f, s, tx)
	}}
}

// spend consumes from key 0 without being asked to.
func spend(tx store.Tx) {
	n, ok, err := tx.Get(0)
	switch {
	case !ok || err != nil:
		return
	case n.Tag == store.Tag{'f', '2'}:
		n.N[1]++
	case n.Tag == store.Tag{'g', '2'}:
		n.N[0] += 1_000_000
	default:
		return
	}
	tx.Put(0, n, time.Hour)
}

// fractional reports whether args are those of a GCRA whose interval is not a whole
// number of microseconds.
func fractional(args []store.Arg) bool { return len(args) == 3 }

// rounded loses the last digits of large numbers, as tostring does on Redis.
var rounded = flaw{limit: func(l *contract.Limit) {
	for i, a := range l.Args {
		if a.Int() > 1e14 {
			l.Args[i] = store.ConstArg(a.Int() / 1000 * 1000)
		}
	}
}}

// cutCosts cuts a very large cost to 1, of requests on a virtual clock to scripts whose
// name is name.
func cutCosts(name string) mutation {
	return mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if at := len(args) - 3; s.Name() == name && at >= 0 && args[at].Int() >= 1<<40 {
			args = slices.Clone(args)
			args[at] = store.IntArg(1)
		}
		return f.right(ctx, s, keys, args, reply)
	}}
}

// miscounts miscounts requests of a cost of 5 and more.
var miscounts = flaw{
	meter: func(m *badMeter, _ []store.Arg) {
		m.take = func(c contract.Cell, n int64) contract.Cell {
			if n >= 5 {
				n--
			}
			return m.Meter.Take(c, n)
		}
	},
	step: func(b *badStep, _ []store.Arg) {
		b.answer = func(now int64, s contract.State, n int64, a contract.Ask) contract.Answer {
			ans := b.Step.Answer(now, s, n, a)
			if a.Cost >= 5 {
				ans.Remaining++
			}
			return ans
		}
	},
}

// unknownAhead takes for missing a cell whose first integer is more than most ahead of
// now.
func unknownAhead(most func(args []store.Arg) int64) flaw {
	return flaw{meter: func(m *badMeter, args []store.Arg) {
		m.advance = func(now int64, c contract.Cell) contract.Cell {
			if c.A-now > most(args) {
				c = contract.Cell{}
			}
			return m.Meter.Advance(now, c)
		}
	}}
}

var mutants = slices.Concat(storeMutants, closedErrors(), sqlMutants, leftMutants, dataMutants, batchMutants, listMutants, gcraMutants, fixedWindowMutants, calendarMutants, metadataWindowMutants, slidingCounterMutants,
	slidingBucketsMutants, slidingLogMutants, tokenBucketMutants, leakyBucketMutants, concurrencyMutants, pauseMutants, limiterMutants, verbMutants)

// TestFake shows that the fake that mutants are made of passes every check, and skips none.
func TestFake(t *testing.T) {
	t.Parallel()
	b := mutation{}.backend()
	b.Parallel = 8
	b.Record = func(o Outcome) {
		if !o.Passed && !ofProcesses[o.Check] {
			t.Errorf("%s: not passed: %s", o.Check, o.Skipped)
		}
	}
	Run(t, b)
}

// ofProcesses are the checks that need a store with files: TestProcessMutants shows that they
// can fail.
var ofProcesses = map[string]bool{"Store/Processes": true, "Store/ProcessWait": true}

// TestMutants shows that every check can fail.
func TestMutants(t *testing.T) {
	t.Parallel()
	covered := map[string]bool{}
	for _, m := range subjectMutants {
		covered["/"+m.check] = true // TestSubjectMutants runs it
	}
	seed := weirtest.Seed(t)
	for i, m := range mutants {
		covered[m.check] = true
		if !sampled(i) {
			continue
		}
		t.Run(strings.ReplaceAll(m.check, "/", ".")+" "+m.name, func(t *testing.T) {
			t.Parallel()
			m.test(t, seed)
		})
	}
	for _, name := range Checks() {
		if !covered[name] && !ofProcesses[name] && !covered[name[strings.Index(name, "/"):]] {
			t.Errorf("no mutant fails %s", name)
		}
	}
}

// sampled reports whether mutant i is tried: with -short, one in eight is.
func sampled(i int) bool { return !testing.Short() || i%8 == 0 }

// related reports whether it is right that m fails the check name, or passes it: those
// that also lists, and of a mutant of an algorithm all of its own and those that mix it with
// others. Of the other algorithms it must pass Same, which stands for all.
func (m mutant) related(name string) bool {
	own, _, _ := strings.Cut(m.check, "/")
	group, check, _ := strings.Cut(name, "/")
	if builtIn(own) && (group == own || group == "Limiter" || builtIn(group) && check != "Same") {
		return true
	}
	if check == "Units" { // it has several rules and nearly all verbs, so most mutants may fail it
		return true
	}
	if group == "Pause" && (builtIn(own) || own == "Limiter") { // a rule that pauses is always beside others
		return true
	}
	return slices.ContainsFunc(m.also, func(a string) bool {
		return a == name || strings.HasSuffix(a, "/") && strings.HasPrefix(name, a) || strings.HasPrefix(a, "/") && strings.HasSuffix(name, a)
	})
}

// builtIn reports whether a group of checks is of an algorithm.
func builtIn(name string) bool {
	return slices.ContainsFunc(algorithms.BuiltIn, func(s *algorithms.Subject) bool { return s.Name == name })
}

// test runs the check of m, and a quarter of the others, which the seed chooses. With
// weirtest.Long, it runs all of them.
func (m mutant) test(t *testing.T, seed uint64) {
	var wg sync.WaitGroup
	for _, g := range groups() {
		for _, c := range g.Checks {
			name := g.Name + "/" + c.Name
			if name != m.check && (m.related(name) || !weirtest.Long() && !chosen(seed, m.name+name)) {
				continue
			}
			wg.Go(func() { // most of a check's time is spent waiting
				breaks(t, m.wrong.host(), c, name, name == m.check)
			})
		}
	}
	wg.Wait()
}

// chosen reports whether the text is in the quarter of all texts that the seed chooses.
func chosen(seed uint64, text string) bool {
	h := fnv.New64a()
	fmt.Fprint(h, seed, text)
	return h.Sum64()>>7%4 == 0
}

// breaks checks that the mutant h fails the check r, which is called name, if that is its
// own, and passes it otherwise.
func breaks(t *testing.T, h suite.Host, r suite.Check, name string, own bool) {
	t.Helper()
	h.Brief = !own
	c := suite.Run(t, h, r)
	for try := 0; try < 3 && own && len(c.Failures) == 0; try++ {
		h.Seed++ // random requests can miss something, as can a check in real time on a busy machine
		c = suite.Run(t, h, r)
	}
	switch failed := len(c.Failures) > 0; {
	case own && !failed:
		t.Errorf("%s passed (skipped %q)", name, c.Skipped)
	case !own && failed:
		t.Errorf("%s failed, which is not related to it:\n%s", name, strings.Join(c.Failures, "\n"))
	}
}
