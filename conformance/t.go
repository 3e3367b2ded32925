package conformance

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// verdicts is what became of a rule.
type verdicts struct {
	mu       sync.Mutex
	failures []string
	skipped  string
	ended    bool // the rule ran to its end
}

// maxFailures keeps a broken store from filling the screen.
const maxFailures = 5

// stop ends a rule early, by panic.
type stop struct{}

func (t *T) errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.failures) < maxFailures {
		t.failures = append(t.failures, fmt.Sprintf(format, args...))
	}
}

// fatalf ends the rule. Only the rule's own goroutine may call it.
func (t *T) fatalf(format string, args ...any) {
	t.errorf(format, args...)
	panic(stop{})
}

// skipf ends the rule as not checked, for a reason.
func (t *T) skipf(format string, args ...any) {
	t.skipped = fmt.Sprintf(format, args...)
	panic(stop{})
}

// times is how often a random rule tries what it tries n times.
func (t *T) times(n int) int {
	if t.backend.brief {
		return n / 8
	}
	return n
}

// goes runs f in a goroutine of wg. A store that panics breaks the rule and no other.
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

// rand returns a source that repeats with the seed.
func (t *T) rand() *rand.Rand { return rand.New(rand.NewPCG(t.seed, 0)) }

// key returns a key of this rule; keys with the same tag share a slot.
func (t *T) key(tag, name string) string { return t.id + ":{" + tag + "}:" + name }

func (t *T) keys(tag string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = t.key(tag, strconv.Itoa(i))
	}
	return keys
}

// eval runs s and ends the rule when it fails.
func (t *T) eval(s *store.Script, keys []string, args ...store.Arg) []store.Value {
	reply, err := t.store.Eval(t.ctx, s, keys, args, nil)
	if err != nil {
		t.fatalf("Eval %s: %v", s.Name(), err)
	}
	return reply
}

func (t *T) mget(keys ...string) []store.Value {
	values, err := t.store.MGet(t.ctx, keys, nil)
	if err != nil {
		t.fatalf("MGet: %v", err)
	}
	if len(values) != len(keys) {
		t.fatalf("MGet of %d keys returned %d values", len(keys), len(values))
	}
	return values
}

func (t *T) time() time.Time {
	now, err := t.store.Time(t.ctx)
	if err != nil {
		t.fatalf("Time: %v", err)
	}
	return now
}

// A clock is a virtual clock.
type clock struct{ us int64 }

// newClock starts at a fixed instant, 2026-01-01 00:00:00 UTC, and never at 0.
func newClock() *clock { return &clock{us: 1_767_225_600_000_000} }

func (c *clock) now() time.Time          { return time.UnixMicro(c.us) }
func (c *clock) advance(d time.Duration) { c.us += d.Microseconds() }

// limiter returns a limiter over the store, on c or, if that is nil, the store's clock.
func (t *T) limiter(c *clock, rules ...weir.Rule) *weir.Limiter {
	return t.limiterOn(t.store, c, rules...)
}

func (t *T) limiterOn(st store.Store, c *clock, rules ...weir.Rule) *weir.Limiter {
	opts := &weir.Options{Prefix: t.id}
	if c != nil {
		opts.Clock = c.now
	}
	if t.backend.wrap != nil && st == t.store {
		rules = slices.Clone(rules)
		for i := range rules {
			rules[i].Algorithm = t.backend.wrap(rules[i].Algorithm)
		}
	}
	l, err := weir.NewRules(st, rules, opts)
	if err != nil {
		t.fatalf("NewRules: %v", err)
	}
	return l
}

// one is the rules of a limiter with a alone.
func one(a algorithm.Algorithm) weir.Rule { return weir.Rule{Name: "one", Algorithm: a} }

func (t *T) do(l *weir.Limiter, r weir.Request) weir.Result {
	res, err := l.Do(t.ctx, r)
	if err != nil {
		t.fatalf("Do %v: %v", r.Path, err)
	}
	return res
}

func (t *T) allow(l *weir.Limiter, cost int64, path ...string) weir.Result {
	return t.do(l, weir.Request{Path: path, Cost: cost})
}

func (t *T) peek(l *weir.Limiter, cost int64, path ...string) weir.Result {
	return t.do(l, weir.Request{Path: path, Cost: cost, Peek: true})
}
