package algorithm_test

import (
	"math/big"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// epoch is where virtual time starts: 2026-01-01, in microseconds.
const epoch = 1767225600000000

// A state is a store of a few keys, as small as a Go form can run on.
type state struct {
	now    int64
	keys   []value
	keep   bool // the dead stay: a TTL is ignored
	writes int
	ttl    time.Duration // of the last write
}

type value struct {
	held    bool
	nums    store.Nums
	expires int64
	set     []store.Member // what the key holds, if it is no Nums
}

func newState(now int64, keys int) *state { return &state{now: now, keys: make([]value, keys)} }

func (s *state) Now() int64 { return s.now }

func (s *state) Get(i int, tag store.Tag) (store.Nums, bool, error) {
	v := s.keys[i]
	if !v.held || v.expires <= s.now && !s.keep {
		return store.Nums{}, false, nil
	}
	if v.set != nil || v.nums.Tag != tag {
		return store.Nums{}, false, s.Foreign(i)
	}
	return v.nums, true, nil
}

func (s *state) Foreign(int) error { return store.Foreign("key") }

func (s *state) Put(i int, n store.Nums, ttl time.Duration) {
	expires := s.keys[i].expires
	if ttl > 0 {
		expires, s.ttl = s.now+ttl.Microseconds(), ttl
	}
	s.keys[i] = value{held: true, nums: n, expires: expires}
	s.writes++
}

// At, Count, Find, Add, Remove and Expire keep a set as a plain sorted list.

func (s *state) At(i int, rank int64) (store.Member, bool, error) {
	v := s.keys[i]
	if !v.held || v.expires <= s.now && !s.keep {
		return store.Member{}, false, nil
	}
	if v.set == nil {
		return store.Member{}, false, s.Foreign(i)
	}
	if rank < 0 {
		rank += int64(len(v.set))
	}
	if rank < 0 || rank >= int64(len(v.set)) {
		return store.Member{}, false, nil
	}
	return v.set[rank], true, nil
}

func (s *state) Count(i int, after int64) (above, all int64, err error) {
	for rank := int64(0); ; rank++ {
		m, ok, err := s.At(i, rank)
		if !ok {
			return above, rank, err
		}
		if m.Score > after {
			above++
		}
	}
}

func (s *state) Find(i int, text string) (rank int64, ok bool, err error) {
	for ; ; rank++ {
		m, ok, err := s.At(i, rank)
		if !ok || m.Text == text {
			return rank, ok, err
		}
	}
}

func (s *state) Add(i int, m store.Member) {
	v := &s.keys[i]
	if v.expires <= s.now && !s.keep && v.expires > 0 {
		*v = value{}
	}
	v.held, v.set = true, append(v.set, m)
	sort.Slice(v.set, func(a, b int) bool {
		return v.set[a].Score < v.set[b].Score || v.set[a].Score == v.set[b].Score && v.set[a].Text < v.set[b].Text
	})
	s.writes++
}

func (s *state) Remove(i int, rank, n int64) {
	v := &s.keys[i]
	if v.set = slices.Delete(v.set, int(rank), int(min(rank+n, int64(len(v.set))))); len(v.set) == 0 {
		*v = value{}
	}
	s.writes++
}

func (s *state) Expire(i int, ttl time.Duration) {
	s.keys[i].expires = s.now + ttl.Microseconds()
	s.ttl = ttl
}

func (s *state) Del(i int) {
	s.keys[i] = value{}
	s.writes++
}

func mustLimit(t testing.TB, a algorithm.Algorithm) algorithm.Limit {
	t.Helper()
	l, err := a.NewLimit()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustCompose(t testing.TB, fragments ...*algorithm.Fragment) *algorithm.Program {
	t.Helper()
	p, err := algorithm.Compose(fragments...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run runs the Go form of script for limits, each at its own cost, at the
// caller's time now, or at tx's if now is 0. It returns what was decided
// and each limit's verdict. (It is no t.Helper: that costs more than the decision.)
func run(t testing.TB, p *algorithm.Program, script *store.Script, tx store.Tx, now int64, limits []algorithm.Limit, costs []int64) (bool, []algorithm.Verdict) {
	args := p.AppendNow(nil, now)
	for i, l := range limits {
		args = l.AppendArgs(args, algorithm.Request{Cost: costs[i]})
	}
	reply, err := script.GoForm()(tx, args, nil)
	if err != nil {
		t.Fatal(err)
	}
	n, at, err := p.Outcome(reply)
	if err != nil {
		t.Fatal(err)
	}
	ok := n == 1
	if want := now; at != want && want != 0 || want == 0 && at != tx.Now() {
		t.Fatalf("decided at %d, want %d", at, want)
	}
	verdicts := make([]algorithm.Verdict, len(limits))
	for i, l := range limits {
		verdicts[i] = l.Verdict(at, ok && script == p.Decide, p.State(reply, i), algorithm.Request{Cost: costs[i]})
	}
	return ok, verdicts
}

// A bench is one limit over one key.
type bench struct {
	t       testing.TB
	state   *state
	limit   algorithm.Limit
	program *algorithm.Program
}

func newBench(t testing.TB, a algorithm.Algorithm) *bench {
	t.Helper()
	l := mustLimit(t, a)
	return &bench{t, newState(epoch, 1), l, mustCompose(t, l.Fragment())}
}

// change puts another limit over the key.
func (b *bench) change(a algorithm.Algorithm) { b.use(mustLimit(b.t, a)) }

// use is change, for a limit that was made before.
func (b *bench) use(l algorithm.Limit) {
	if l.Fragment() != b.limit.Fragment() {
		b.program = mustCompose(b.t, l.Fragment())
	}
	b.limit = l
}

// take decides at now; cost 0 peeks, as a limiter does.
func (b *bench) take(now, cost int64) algorithm.Verdict {
	if cost == 0 {
		return b.peek(now, 0)
	}
	return b.run(b.program.Decide, now, cost)
}

// admits is how many tokens pass within span, from the epoch on, for a caller who
// comes back whenever one is there.
func (b *bench) admits(span time.Duration) int64 {
	var n int64
	end := epoch + span.Microseconds()
	for now := int64(epoch); now <= end; {
		v := b.take(now, 1)
		if v.Allowed {
			n++
		}
		now += v.RetryAfter.Microseconds()
	}
	return n
}

func (b *bench) peek(now, cost int64) algorithm.Verdict {
	before := b.state.writes
	v := b.run(b.program.Peek, now, cost)
	if b.state.writes != before {
		b.t.Fatal("a peek wrote")
	}
	return v
}

func (b *bench) run(script *store.Script, now, cost int64) algorithm.Verdict {
	before := b.state.writes
	b.state.now = now
	ok, v := run(b.t, b.program, script, b.state, 0, []algorithm.Limit{b.limit}, []int64{cost})
	if ok != v[0].Allowed {
		b.t.Fatalf("the script says %v and the verdict %+v", ok, v[0])
	}
	if !ok && b.state.writes != before {
		b.t.Fatal("a denial wrote")
	}
	return v[0]
}

// fuzzStep is by how much a fuzzed clock at now moves, by three bytes of input: step,
// or so many times one or many, or about a third of so many times few; and three to
// one forwards.
func fuzzStep(now int64, op byte, step int64, unit byte, one, few, many int64) int64 {
	switch unit % 5 {
	case 1:
		step *= one
	case 2:
		step = step*one + 1
	case 3:
		step = max(0, step*few/3-1)
	case 4:
		step *= many
	}
	if step < 0 || step > algorithm.MaxSpan/8 {
		step = algorithm.MaxSpan / 8
	}
	if op&3 == 3 {
		step = -step
	}
	if now+step < 1 || now+step >= 1<<52 {
		return 0
	}
	return step
}

// fuzzCost is a cost by a byte of input: small, or a part of capacity, or about as
// much, or far above it.
func fuzzCost(cost, capacity int64) int64 {
	switch {
	case cost > 250:
		cost = capacity + cost - 254 // from three below it to one above
	case cost > 240:
		cost = 1 << 53 << (cost - 241)
	case cost > 100:
		cost = capacity / (cost - 99)
	}
	return max(cost, 0)
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// floor and ceil are the integers beside x.
func floor(x *big.Rat) *big.Int { return new(big.Int).Div(x.Num(), x.Denom()) } // Euclidean; the denominator is positive

func ceil(x *big.Rat) *big.Int {
	up := new(big.Int).Add(x.Num(), new(big.Int).Sub(x.Denom(), big.NewInt(1)))
	return up.Div(up, x.Denom())
}

// micros is x microseconds as a duration, Never when that is out of range.
func micros(x *big.Int) time.Duration {
	ns := new(big.Int).Mul(x, big.NewInt(1000))
	if !ns.IsInt64() {
		return algorithm.Never
	}
	return time.Duration(ns.Int64())
}

const us = time.Microsecond

// scriptsOf are the scripts that p can run: a decision in every mode, the questions,
// and what undoes it.
func scriptsOf(t testing.TB, p *algorithm.Program) []*store.Script {
	t.Helper()
	scripts := []*store.Script{p.Decide, p.Peek, p.Reset}
	for _, mode := range []algorithm.Mode{{Marked: true}, {UpTo: true}, {UpTo: true, Marked: true}, {UpTo: true, Fixed: 1<<algorithm.MaxRules - 1}} {
		if s, err := p.Variant(mode); err == nil {
			scripts = append(scripts, s)
		}
	}
	if s, err := p.Refund(); err == nil {
		scripts = append(scripts, s)
	}
	return scripts
}
