package algorithm_test

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

const (
	// epoch is the start of virtual time: 2026-01-01, in microseconds.
	epoch = 1767225600000000

	us    = time.Microsecond
	never = algorithm.Never

	// maxSpan is algorithm.MaxSpan as a duration.
	maxSpan = algorithm.MaxSpan
)

// A state is a minimal store.Tx.
type state struct {
	now    int64
	keys   []value
	keep   bool // expired keys stay: TTLs are ignored
	writes int
	ttl    time.Duration // the last TTL that was set
}

type value struct {
	held    bool
	nums    store.Nums
	expires int64
	set     []store.Member // sorted; nil if the key holds Nums
}

func newState(now int64, keys int) *state { return &state{now: now, keys: make([]value, keys)} }

// live returns key i, or nil if the key is missing.
func (s *state) live(i int) *value {
	if v := &s.keys[i]; v.held && (v.expires > s.now || s.keep) {
		return v
	}
	return nil
}

func (s *state) Now() int64 { return s.now }

func (s *state) Get(i int) (store.Nums, bool, error) {
	v := s.live(i)
	switch {
	case v == nil:
		return store.Nums{}, false, nil
	case v.set != nil:
		return store.Nums{}, false, store.ForeignAt(i)
	}
	return v.nums, true, nil
}

func (s *state) Put(i int, n store.Nums, ttl time.Duration) {
	s.keys[i] = value{held: true, nums: n, expires: s.expires(ttl)}
}

// expires records a write with a TTL, and returns when the key expires.
func (s *state) expires(ttl time.Duration) int64 {
	if ttl <= 0 || ttl%time.Millisecond != 0 {
		panic(fmt.Sprintf("TTL %v: want a positive number of milliseconds", ttl))
	}
	s.writes++
	s.ttl = ttl
	return s.now + ttl.Microseconds()
}

func (s *state) Keep(i int, n store.Nums) {
	if v := s.live(i); v != nil {
		*v = value{held: true, nums: n, expires: v.expires}
	}
	s.writes++
}

func (s *state) Del(i int) {
	s.keys[i] = value{}
	s.writes++
}

// members returns the set at key i.
func (s *state) members(i int) ([]store.Member, error) {
	v := s.live(i)
	switch {
	case v == nil:
		return nil, nil
	case v.set == nil:
		return nil, store.ForeignAt(i)
	}
	return v.set, nil
}

func (s *state) At(i int, fromEnd int64) (store.Member, bool, error) {
	set, err := s.members(i)
	if n := int64(len(set)); fromEnd >= 0 && fromEnd < n {
		return set[n-1-fromEnd], true, nil
	}
	return store.Member{}, false, err
}

func (s *state) Count(i int, after int64) (above, all int64, err error) {
	set, err := s.members(i)
	for _, m := range set {
		if m.Score > after {
			above++
		}
	}
	return above, int64(len(set)), err
}

func (s *state) Score(i int, text string) (int64, bool, error) {
	set, err := s.members(i)
	for _, m := range set {
		if m.Text == text {
			return m.Score, true, nil
		}
	}
	return 0, false, err
}

func (s *state) Add(i int, m store.Member, ttl time.Duration) {
	set, _ := s.members(i)
	expires := s.keys[i].expires
	switch {
	case ttl != 0:
		expires = s.expires(ttl)
	case set == nil:
		panic("TTL 0 of a key that is missing")
	}
	set = slices.DeleteFunc(slices.Clone(set), func(o store.Member) bool { return o.Text == m.Text })
	set = append(set, m)
	slices.SortFunc(set, func(a, b store.Member) int {
		if a.Score != b.Score {
			return int(min(max(a.Score-b.Score, -1), 1))
		}
		return strings.Compare(a.Text, b.Text)
	})
	s.keys[i] = value{held: true, set: set, expires: expires}
}

func (s *state) Remove(i int, text string) {
	s.cut(i, func(set []store.Member) []store.Member {
		return slices.DeleteFunc(set, func(m store.Member) bool { return m.Text == text })
	})
}

func (s *state) Trim(i int, n int64) {
	s.cut(i, func(set []store.Member) []store.Member { return set[min(n, int64(len(set))):] })
}

// cut replaces the members of the set at key i, if there is one.
func (s *state) cut(i int, f func([]store.Member) []store.Member) {
	s.writes++
	if set, _ := s.members(i); set != nil {
		if s.keys[i].set = f(slices.Clone(set)); len(s.keys[i].set) == 0 {
			s.keys[i] = value{}
		}
	}
}

func mustLimit(t testing.TB, a algorithm.Algorithm) *contract.Limit {
	t.Helper()
	l, err := a.NewLimit()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustProgram(t testing.TB, limits ...*contract.Limit) *compose.Program {
	t.Helper()
	rules := make([]compose.Rule, len(limits))
	for i, l := range limits {
		rules[i].Limit = l
	}
	p, err := compose.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A verdict is the answer of one limit, without its window.
type verdict struct {
	Allowed    bool
	Limit      int64
	Remaining  int64
	RetryAfter time.Duration
	ResetAfter time.Duration
	Delay      time.Duration
}

// A charge is a decision with a marker.
type charge = value

// A bench is a limit with its keys. The last key is for a marker.
type bench struct {
	t       testing.TB
	state   *state
	limit   *contract.Limit
	program *compose.Program
	others  map[*contract.Limit]*compose.Program // of earlier limits
	gen     int64
	kept    bool // the last reply says that tokens are kept
	result  compose.Result
}

func newBench(t testing.TB, a algorithm.Algorithm) *bench {
	t.Helper()
	l := mustLimit(t, a)
	p := mustProgram(t, l)
	return &bench{t: t, state: newState(epoch, p.Keys(0)+1), limit: l, program: p, others: map[*contract.Limit]*compose.Program{l: p}}
}

// change replaces the limit, and keeps the keys.
func (b *bench) change(a algorithm.Algorithm) { b.use(mustLimit(b.t, a)) }

// use is change with a limit that was already made.
func (b *bench) use(l *contract.Limit) {
	if b.limit, b.program = l, b.others[l]; b.program == nil {
		b.program = mustProgram(b.t, l)
		b.others[l] = b.program
	}
}

// do runs v at now, and returns the number in the reply and the answer. It checks that
// they agree, and that a denied request writes nothing. It does not call t.Helper,
// because that costs more time than the decision.
func (b *bench) do(v script.Verb, now int64, c compose.Call) (int64, verdict) {
	b.state.now = now
	before := b.state.writes
	reply, err := b.program.Script(v).GoForm()(b.state, b.program.AppendArgs(nil, v, &c), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	o, err := b.program.Parse(v, reply, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	if at := cmp.Or(c.Now, now); o.Now != at {
		b.t.Fatalf("decided at %d, want %d", o.Now, at)
	}
	if b.kept = o.Kept > 0; b.kept && v == script.Refund && (o.Allowed || o.Granted == 0) {
		b.t.Fatalf("%s kept tokens, and replied %d and the cost %d", b.program.Script(v).Name(), o.Head(), o.Granted)
	}
	if wrote := b.state.writes > before; wrote && (o.Head() == 0 && v != script.Refund && v != script.Resume && v != script.Release || v == script.Peek) {
		b.t.Fatalf("%s replied %d, and wrote", b.program.Script(v).Name(), o.Head())
	}
	if v > script.Renew {
		return o.Head(), verdict{}
	}
	a := b.program.Result(0, v, &o, &c)
	if a.Allowed != (o.Head() > 0 || v.Forces()) || (a.Granted > 0) != (o.Head() > 0 && v != script.Peek) {
		b.t.Fatalf("%s replied %d, and the answer is %+v", b.program.Script(v).Name(), o.Head(), a)
	}
	if !a.Allowed && a.Delay != never {
		b.t.Fatalf("a denied request has the Delay %v", a.Delay)
	}
	b.result = a
	return o.Head(), verdictOf(a)
}

// verdictOf returns a as a verdict. The Delay of a denied request is left out.
func verdictOf(a compose.Result) verdict {
	v := verdict{a.Allowed, a.Limit, a.Remaining, a.RetryAfter, a.ResetAfter, a.Delay}
	if !a.Allowed {
		v.Delay = 0
	}
	return v
}

// take consumes cost tokens at now, if the limit allows it.
func (b *bench) take(now, cost int64) verdict {
	_, v := b.do(script.Consume, now, compose.Call{Cost: cost})
	return v
}

func (b *bench) peek(now, cost int64) verdict {
	_, v := b.do(script.Peek, now, compose.Call{Cost: cost})
	return v
}

// wait is take or peek, for a caller who can wait.
func (b *bench) wait(v script.Verb, now, cost int64, wait time.Duration) verdict {
	_, got := b.do(v, now, compose.Call{Cost: cost, Wait: wait.Microseconds()})
	return got
}

// charge is wait for a decision with an ID.
func (b *bench) charge(now, cost int64, wait time.Duration) (charge, verdict) {
	b.gen++
	mark := &b.state.keys[len(b.state.keys)-1]
	*mark = value{}
	_, v := b.do(script.ConsumeMark, now, compose.Call{Cost: cost, Wait: wait.Microseconds(), Gen: b.gen})
	if v.Allowed != mark.held {
		b.t.Fatalf("allowed: %v, marker: %v", v.Allowed, mark.held)
	}
	if v.Allowed && mark.expires < now+v.ResetAfter.Microseconds() {
		b.t.Fatalf("the marker expires in %d µs, and the key is in use for %v", mark.expires-now, v.ResetAfter)
	}
	return *mark, v
}

// refund refunds a charge, and reports whether anything was refunded.
func (b *bench) refund(now int64, was charge) bool {
	mark := &b.state.keys[len(b.state.keys)-1]
	*mark = was
	n, _ := b.do(script.Refund, now, compose.Call{})
	if held := mark.held && mark.expires > now; held != b.kept {
		b.t.Fatalf("a refund left its marker: %v, and kept the tokens: %v", held, b.kept)
	}
	return n > 0
}

// force consumes cost tokens past the limit, or as many as MaxDebt allows. It returns
// their number, and the charge of the decision.
func (b *bench) force(now, cost int64) (int64, charge) {
	b.gen++
	v, mark := script.Force, &b.state.keys[len(b.state.keys)-1]
	if *mark = (value{}); b.program.Marked(0) {
		v = script.ForceMark
	}
	n, _ := b.do(v, now, compose.Call{Cost: cost, Gen: b.gen})
	return n, *mark
}

// part refunds the last n tokens of a charge, and leaves the others in the charge. It
// reports whether anything was refunded.
func (b *bench) part(now int64, was *charge, n int64) bool {
	last := len(b.state.keys) - 1
	b.state.keys[last] = *was
	before := slices.Clone(b.state.keys[:last])
	b.gen++
	b.do(script.Settle, now, compose.Call{Cost: was.nums.N[2] - n, Gen: b.gen})
	*was = b.state.keys[last]
	return !reflect.DeepEqual(before, b.state.keys[:last])
}

// lease runs v for the lease with this name. For a release, Allowed says whether the
// lease was held.
func (b *bench) lease(v script.Verb, now int64, name string) verdict {
	n, got := b.do(v, now, compose.Call{Cost: 1, Text: name})
	if v == script.Release {
		got.Allowed = n == 1
	}
	return got
}

// integers fails the test unless all integers of the key are below 2^53.
func (b *bench) integers() {
	for _, x := range b.state.keys[0].nums.N {
		if x < 0 || x >= 1<<53 {
			b.t.Fatalf("the key holds %v, want integers below 2^53", b.state.keys[0].nums)
		}
	}
}

// checkExact fails the test if the RetryAfter of a denied request is not exact: the same
// request must be allowed at RetryAfter, and denied one microsecond earlier.
func (b *bench) checkExact(now, cost int64, wait time.Duration, v verdict) {
	retry := now + v.RetryAfter.Microseconds()
	if v.Allowed || v.RetryAfter == never || retry >= 1<<52 {
		return
	}
	if early := b.wait(script.Peek, retry-1, cost, wait); early.Allowed {
		b.t.Fatalf("one microsecond before RetryAfter %v, cost %d passes: %+v", v.RetryAfter, cost, early)
	}
	if due := b.wait(script.Peek, retry, cost, wait); !due.Allowed {
		b.t.Fatalf("after RetryAfter %v, cost %d is denied: %+v", v.RetryAfter, cost, due)
	}
}

// checkPossible fails the test on an answer that no limit gives.
func (b *bench) checkPossible(v verdict) {
	if v.Remaining < 0 || v.Remaining > v.Limit || v.RetryAfter < 0 || v.ResetAfter < 0 || v.Delay < 0 || v.Allowed != (v.RetryAfter == 0) {
		b.t.Fatalf("impossible: %+v", v)
	}
}

// reserves reports whether tokens of l can be reserved ahead of time.
func reserves(l *contract.Limit) bool {
	k, ok := l.Kind.(*contract.MeterKind)
	return ok && k.Reserves
}
