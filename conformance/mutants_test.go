package conformance

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-go/weir/conformance/internal/algorithms"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/internal/weirtest"
)

// A mutant differs from a correct store, or algorithm, in one behaviour. It must fail its
// check, may fail related checks, and must pass all others.
type mutant struct {
	name  string
	check string   // its check
	also  []string // related checks or, ending in a slash, subjects
	wrong mutation
}

var mutants = slices.Concat(storeMutants, closedMutants(), batchMutants, dataMutants, listMutants, everyMutants(), algorithmMutants, limiterMutants, pauseMutants)

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
	if check == "Units" { // it has nearly all verbs, so most mutants may fail it
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

// test runs the check of m, and one in sixteen of the others, which the seed chooses. With
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

// chosen reports whether the text is in the sixteenth of all texts that the seed chooses.
func chosen(seed uint64, text string) bool {
	h := fnv.New64a()
	fmt.Fprint(h, seed, text)
	return h.Sum64()>>7%16 == 0
}

// breaks checks that the mutant h fails the check r, which is called name, if that is its
// own, and passes it otherwise.
func breaks(t *testing.T, h suite.Host, r suite.Check, name string, own bool) {
	t.Helper()
	h.Brief = !own
	c := suite.Run(t, h, r)
	for try := 0; try < 3 && own && len(c.Failures) == 0; try++ {
		h.Seed += 1000 // random requests can miss something, as can a check in real time on a busy machine
		c = suite.Run(t, h, r)
	}
	switch failed := len(c.Failures) > 0; {
	case own && !failed:
		t.Errorf("%s passed (skipped %q)", name, c.Skipped)
	case !own && failed:
		t.Errorf("%s failed, which is not related to it:\n%s", name, strings.Join(c.Failures, "\n"))
	}
}
