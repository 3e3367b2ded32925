package conformance

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// verdicts is the outcome of a check.
type verdicts struct {
	mu       sync.Mutex
	failures []string
	skipped  string
	ended    bool // the check ran to its end
}

// maxFailures limits the output for a store with defects.
const maxFailures = 5

// stop ends a check early, by panic.
type stop struct{}

func (t *T) errorf(format string, args ...any) {
	at := lines()
	if at != "" {
		at += ": "
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.failures) < maxFailures {
		t.failures = append(t.failures, at+fmt.Sprintf(format, args...))
	}
}

// lines returns the source lines of the check that runs, the innermost first. Those of the
// helpers that all checks share, in this file and in run.go, are left out.
func lines() string {
	var pcs [24]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	own, more := frames.Next()
	pkg := strings.TrimSuffix(own.Function, "lines")
	var list []string
	for more {
		var f runtime.Frame
		f, more = frames.Next()
		base := filepath.Base(f.File)
		if strings.HasPrefix(f.Function, pkg) && f.File != own.File && base != "run.go" {
			list = append(list, base+":"+strconv.Itoa(f.Line))
		}
	}
	return strings.Join(list, ", from ")
}

// fatalf ends the check. Only the check's own goroutine may call it.
func (t *T) fatalf(format string, args ...any) {
	t.errorf(format, args...)
	panic(stop{})
}

// skipf ends the check as skipped, for a reason.
func (t *T) skipf(format string, args ...any) {
	t.skipped = fmt.Sprintf(format, args...)
	panic(stop{})
}

// times returns the number of times that a random check runs, given the number n for a
// check of a store. RunAlgorithm runs it half as often. There are many built-in algorithms,
// so Run runs it an eighth as often for each.
func (t *T) times(n int) int {
	switch s := t.backend.subject; {
	case s != nil && s.builtin && t.backend.Brief:
		n /= 16
	case t.backend.Brief || s != nil && s.builtin:
		n /= 8
	case s != nil:
		n /= 2
	}
	return max(n, 1)
}

// goes runs f in a goroutine of wg. A store that panics fails this check and no other.
func (t *T) goes(wg *sync.WaitGroup, f func()) {
	wg.Go(func() {
		defer t.recover()
		f()
	})
}

func (t *T) recover() {
	switch r := recover().(type) {
	case nil, stop:
	default:
		t.errorf("panic: %v\n%s", r, debug.Stack())
	}
}

func (t *T) failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) > 0
}

// rand returns a new random source, made with the seed of the check.
func (t *T) rand() *rand.Rand { return rand.New(rand.NewPCG(t.seed, 0)) }

// key returns a key of this check. Keys with the same tag share a slot.
func (t *T) key(tag, name string) string { return t.id + ":{" + tag + "}:" + name }

func (t *T) keys(tag string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = t.key(tag, strconv.Itoa(i))
	}
	return keys
}

// eval runs s, and ends the check if that fails.
func (t *T) eval(s *store.Script, keys []string, args ...store.Arg) []store.Value {
	return must[[]store.Value](t, "Eval "+s.Name())(t.store.Eval(t.ctx, s, keys, args, nil))
}

func (t *T) mget(keys ...string) []store.Value {
	values := must[[]store.Value](t, "MGet")(t.store.MGet(t.ctx, keys, nil))
	if len(values) != len(keys) {
		t.fatalf("MGet of %d keys returned %d values", len(keys), len(values))
	}
	return values
}

// holds checks that MGet returns want for each of keys. The format and its args describe the
// case.
func (t *T) holds(want store.Value, keys []string, format string, args ...any) {
	for i, v := range t.mget(keys...) {
		if v != want {
			t.errorf("%s: key %q holds %v, want %v", fmt.Sprintf(format, args...), keys[i], v, want)
		}
	}
}

// must returns the result of the call named what, and ends the check if there is an error.
func must[V any](t *T, what string) func(V, error) V {
	return func(v V, err error) V {
		if err != nil {
			t.fatalf("%s: %v", what, err)
		}
		return v
	}
}

func (t *T) time() time.Time { return must[time.Time](t, "Time")(t.store.Time(t.ctx)) }

// A clock is a virtual clock.
type clock struct{ us int64 }

// newClock starts at a fixed instant, 2026-01-01 00:00:00 UTC, and never at 0.
func newClock() *clock { return &clock{us: 1_767_225_600_000_000} }

func (c *clock) now() time.Time          { return time.UnixMicro(c.us) }
func (c *clock) advance(d time.Duration) { c.us += d.Microseconds() }

// suite is the name of the limiters of the checks.
const suite = "suite"

// segmentsOf returns the names of the segments of a limiter with these rules: from "s0" to
// the highest name in a By, or only "s0" if no rule has a By.
func segmentsOf(rules []weir.Rule) []string {
	names := []string{"s0", "s1", "s2"}
	n := 1
	for _, r := range rules {
		for _, by := range r.By {
			n = max(n, slices.Index(names, by)+1)
		}
	}
	return names[:n]
}

// limiter returns a limiter over the store. Its clock is c, or the store's clock if c is
// nil. Its segments are those of segmentsOf.
func (t *T) limiter(c *clock, rules ...weir.Rule) *weir.Limiter {
	return t.limiterOn(t.store, c, rules...)
}

func (t *T) limiterOn(st store.Store, c *clock, rules ...weir.Rule) *weir.Limiter {
	return t.policy(st, c, weir.Policy{Name: suite, Segments: segmentsOf(rules), Rules: rules})
}

// policy returns the limiter of p, with the prefix of this check.
func (t *T) policy(st store.Store, c *clock, p weir.Policy) *weir.Limiter {
	opts := &weir.Options{Prefix: t.id}
	if c != nil {
		opts.Clock = c.now
	}
	if st == t.store {
		p.Rules = t.wrapped(p.Rules)
	}
	if t.backend.policy != nil {
		t.backend.policy(&p)
	}
	return must[*weir.Limiter](t, "NewPolicy")(weir.NewPolicy(st, p, opts))
}

// with returns l with other limits.
func (t *T) with(l *weir.Limiter, rules ...weir.Rule) *weir.Limiter {
	return must[*weir.Limiter](t, "With")(l.With(t.wrapped(rules)...))
}

// wrapped returns rules with the algorithms that the suite's own tests have changed.
func (t *T) wrapped(rules []weir.Rule) []weir.Rule {
	if t.backend.wrap == nil {
		return rules
	}
	rules = slices.Clone(rules)
	for i := range rules {
		rules[i].Algorithm = t.backend.wrap(rules[i].Algorithm)
	}
	return rules
}

// one is the only rule of a limiter.
func one(a algorithm.Algorithm) weir.Rule { return weir.Rule{Name: "one", Algorithm: a} }

// do decides r. If each is not empty, it gets the results of the rules. If r needs a lease
// and has no ID, do gives it a new one.
func (t *T) do(l *weir.Limiter, r weir.Request, each ...weir.Result) weir.Result {
	if t.leases && r.Op == weir.Consume && r.ID == "" {
		r.ID = t.lease()
	}
	res, err := l.Decide(t.ctx, r, each)
	if err != nil {
		t.fatalf("Decide %+v: %v", r, err)
	}
	return res
}

// lease returns a new name of a lease.
func (t *T) lease() string {
	t.names++
	return "lease" + strconv.Itoa(t.names)
}

// allow consumes cost tokens. A cost of 0 means 1.
func (t *T) allow(l *weir.Limiter, cost int64, key ...string) weir.Result {
	return t.do(l, weir.Request{Key: weir.KeyOf(key...), Cost: cost})
}

// peek asks for cost tokens. A cost of 0 means 1.
func (t *T) peek(l *weir.Limiter, cost int64, key ...string) weir.Result {
	return t.do(l, weir.Request{Key: weir.KeyOf(key...), Op: weir.Peek, Cost: cost})
}

// remaining makes a request, and returns the Remaining of each rule of l, in their order. l
// has at most four rules.
func (t *T) remaining(l *weir.Limiter, op weir.Op, cost int64, key ...string) (left [4]int64) {
	var each [len(left)]weir.Result
	t.do(l, weir.Request{Key: weir.KeyOf(key...), Op: op, Cost: cost}, each[:]...)
	for i, res := range each {
		left[i] = res.Remaining
	}
	return left
}

// entries returns what Entries lists for key.
func (t *T) entries(l *weir.Limiter, key ...string) []weir.Entry {
	return must[[]weir.Entry](t, "Entries")(l.Entries(t.ctx, key...))
}

// limitOf returns the limit of a.
func (t *T) limitOf(a algorithm.Algorithm) *contract.Limit {
	return must[*contract.Limit](t, "NewLimit")(a.NewLimit())
}

// A kind is a contract.Kind in one type. The fields of the other kind are zero.
type kind struct {
	*contract.Head
	contract.MeterKind
	contract.StepKind
}

// kindOf returns the kind of a.
func (t *T) kindOf(a algorithm.Algorithm) (k kind) {
	switch one := t.limitOf(a).Kind.(type) {
	case *contract.MeterKind:
		k.Head, k.MeterKind = &one.Head, *one
	case *contract.StepKind:
		k.Head, k.StepKind = &one.Head, *one
	}
	return k
}

// escaper escapes the characters that have a meaning in a key. It does not shorten.
var escaper = strings.NewReplacer("%", "%25", ":", "%3A", "{", "%7B", "}", "%7D")

// keyOf returns the first key in the store of the rule called name with the algorithm a.
// shared is the segment that all rules share, and other are the rule's other segments.
func (t *T) keyOf(shared, name string, a algorithm.Algorithm, other ...string) string {
	return t.keysOf(shared, name, a, other...)[0]
}

// keysOf returns all keys of that rule.
func (t *T) keysOf(shared, name string, a algorithm.Algorithm, other ...string) []string {
	kind := t.kindOf(a)
	key := t.id + ":" + suite + ":{" + escaper.Replace(shared) + "}:" + escaper.Replace(name) + "." + string(kind.Tag[:])
	for _, segment := range other {
		key += ":" + escaper.Replace(segment)
	}
	if kind.Keys <= 1 {
		return []string{key}
	}
	keys := make([]string, kind.Keys)
	for i := range keys {
		keys[i] = key + ":" + strconv.Itoa(i)
	}
	return keys
}

// markersOf returns the keys of the markers of the decision r, which has an ID, by a limiter
// with rules. There is one for each rule that supports Refund.
func (t *T) markersOf(r weir.Request, rules ...weir.Rule) []string {
	var named written
	l := t.limiterOn(&noting{memory.New(nil), &named}, newClock(), rules...)
	r.Op = weir.Consume
	_, _ = l.Decide(t.ctx, r, nil)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(named.keys)), func(key string) bool { return !strings.Contains(key, ":%id=") })
}
