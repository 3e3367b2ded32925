package weir_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A scripted store is a memory store that runs a script for every decision. A limiter
// does not recognize it as a memory store.
type scripted struct{ store.Store }

// TestDirectIsEval runs random histories on two memory stores: one decides directly, and
// the other with scripts. Their answers, errors, keys and TTLs must be equal.
func TestDirectIsEval(t *testing.T) {
	decisions := 200_000
	switch {
	case weirtest.Long():
		decisions = 5_000_000
	case testing.Short():
		decisions = 20_000
	}
	seed := weirtest.Seed(t)
	synctest.Test(t, func(t *testing.T) { // in virtual time, because generations depend on the time
		for n := uint64(0); decisions > 0 && !t.Failed(); n++ {
			decisions -= playDirect(t, rand.New(rand.NewPCG(seed, n)), fmt.Sprintf("seed %d, %d", seed, n))
		}
	})
}

// playDirect runs one history, and returns the number of its decisions.
func playDirect(t *testing.T, r *rand.Rand, name string) int {
	c := weirtest.NewClock()
	stores := [2]*memory.Store{weirtest.NewStore(c), weirtest.NewStore(c)}
	p := weir.Policy{Name: "d:{}", Segments: []string{"a", "b"}[:1+r.IntN(2)], Rules: directRules(r)}
	if len(p.Segments) == 1 && r.IntN(2) == 0 { // decide decides many of its requests
		p.Rules = p.Rules[:1]
	}
	if r.IntN(4) == 0 {
		p.Secret = p.Segments[len(p.Segments)-1:]
	}
	opts, behind := &weir.Options{}, 3*time.Minute // the caller's clock may step back
	if r.IntN(4) == 0 {
		opts.Clock = func() time.Time { return c.Now().Add(-behind) }
	}
	other := p.Rules[0].Algorithm // the algorithm of another plan
	if b, ok := other.(algorithm.TokenBucket); ok {
		b.Refill.Count++
		other = b
	}
	var lims [2][2]*weir.Limiter // for each store, the limiter of the policy and of the plan
	for i, st := range []store.Store{stores[0], scripted{stores[1]}} {
		lim, err := weir.NewPolicy(st, p, opts)
		if err != nil {
			t.Fatal(err)
		}
		lims[i][0] = lim
		if lims[i][1], err = lim.With(weir.Rule{Name: "r0", Algorithm: other}); err != nil {
			t.Fatal(err)
		}
	}
	const calls = 128
	for call := range calls {
		q := randomRequest(r, call, len(p.Segments))
		plan := r.IntN(5) / 4
		var each [2][16]weir.Result
		var res [2]weir.Result
		var errs [2]error
		for i := range lims {
			for j := range each[i] {
				each[i][j].Replayed = true // of an earlier decision
			}
			res[i], errs[i] = lims[i][plan].Decide(t.Context(), q, each[i][:])
		}
		var keys [2]map[string]time.Duration
		var values [2]string
		if call%16 == 15 {
			for i, st := range stores {
				keys[i] = maps.Collect(st.All())
				values[i] = valuesOf(t, st, keys[i])
			}
		}
		if res[0] != res[1] || each[0] != each[1] || fmt.Sprint(errs[0]) != fmt.Sprint(errs[1]) || !maps.Equal(keys[0], keys[1]) || values[0] != values[1] {
			t.Fatalf("%s, call %d, %+v by %+v:\ndirect %+v %v %v\n%s\nscript %+v %v %v\n%s",
				name, call, q, p.Rules, res[0], errs[0], keys[0], values[0], res[1], errs[1], keys[1], values[1])
		}
		switch r.IntN(8) {
		case 0:
			c.Advance(time.Duration(r.Int64N(int64(time.Minute))))
		case 1:
			behind += time.Duration(r.Int64N(int64(3 * time.Second)))
		case 2:
			c.Advance(res[0].ResetAfter % time.Hour)
		case 3, 4:
			c.Advance(time.Duration(r.Int64N(int64(2 * time.Second))))
		}
	}
	return calls
}

func directRules(r *rand.Rand) []weir.Rule {
	list := make([]weir.Rule, 1+r.IntN(6))
	for i := range list {
		rule := &list[i]
		rule.Name = fmt.Sprintf("r%d", i)
		n := 1 + r.Int64N(10)
		switch r.IntN(6) {
		case 0:
			rule.Algorithm = algorithm.GCRA{Rate: algorithm.PerSecond(1 + r.Int64N(7)), Burst: n}
		case 1:
			rule.Algorithm = algorithm.FixedWindow{Limit: n, Window: time.Duration(1+r.IntN(9)) * time.Second, Aligned: r.IntN(2) == 0}
		case 2:
			rule.Algorithm = algorithm.TokenBucket{Capacity: n, Refill: algorithm.PerSecond(1 + r.Int64N(7)), AtOnce: r.IntN(2) == 0}
		case 3:
			rule.Algorithm = algorithm.LeakyBucket{Rate: algorithm.PerSecond(1 + r.Int64N(7)), Queue: n}
		case 4:
			rule.Algorithm = algorithm.SlidingCounter{Limit: n, Window: 4 * time.Second}
		default: // with this algorithm, no decision is direct
			rule.Algorithm = algorithm.SlidingLog{Limit: n, Window: 4 * time.Second}
			if len(list) > 2 {
				rule.Algorithm = algorithm.GCRA{Rate: algorithm.PerMinute(50), Burst: n}
			}
		}
		if r.IntN(4) == 0 {
			rule.Cost = 1 + r.Int64N(min(2, n))
		}
		if r.IntN(3) == 0 {
			rule.By = []string{"a"}
		}
	}
	return list
}

func randomRequest(r *rand.Rand, call, segments int) weir.Request {
	names := []string{"x", "%7B%3A%25%7D", "{:%}", strings.Repeat("long", 60)} // the second is the third, escaped
	key := []string{names[r.IntN(len(names))], names[r.IntN(3)]}
	q := weir.Request{Key: weir.KeyOf(key[:segments]...), Cost: r.Int64N(4)}
	switch r.IntN(10) {
	case 0:
		q.Op = weir.Peek
		q.MaxWait = time.Duration(r.IntN(2)) * time.Second
	case 1:
		q.Op, q.Cost = weir.TakeUpTo, 1+r.Int64N(5)
	case 2:
		q.MaxWait = time.Duration(r.Int64N(int64(3 * time.Second)))
		if r.IntN(4) == 0 {
			q.MaxWait = weir.Never
		}
	case 3:
		q.Op = weir.Reset
	case 4:
		q.Op, q.ID = weir.Refund, fmt.Sprint(r.IntN(call+1))
	case 5:
		q.ID = fmt.Sprint(call)
	}
	return q
}

// valuesOf returns the values of keys.
func valuesOf(t *testing.T, st *memory.Store, keys map[string]time.Duration) string {
	names := slices.Sorted(maps.Keys(keys))
	values, err := st.MGet(t.Context(), names, nil)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(names, values)
}

// If an algorithm panics, the store is unchanged: nothing is locked, and no rule has
// consumed tokens.
func TestDirectPanic(t *testing.T) {
	c := weirtest.NewClock()
	st := weirtest.NewStore(c)
	bomb := &bombed{Algorithm: weirtest.PerSecond}
	for n, list := range [][]weir.Rule{
		{{Name: "one", Algorithm: bomb}},
		{{Name: "a", Algorithm: weirtest.PerSecond}, {Name: "b", Algorithm: bomb}},
	} {
		lim := weirtest.NewPolicy(t, st, weir.Policy{Name: fmt.Sprint(n), Rules: list})
		testDirectPanic(t, st, lim, bomb)
	}
}

func testDirectPanic(t *testing.T, st *memory.Store, lim *weir.Limiter, bomb *bombed) {
	allow := func() (err any) {
		defer func() { err = recover() }()
		_, err = lim.Allow(context.Background(), "ann")
		return err
	}
	if err := allow(); err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprint(maps.Collect(st.All()))
	bomb.armed = true
	if err := allow(); err != "bomb" {
		t.Fatalf("the algorithm panicked, and Allow ended with %v", err)
	}
	bomb.armed = false
	if after := fmt.Sprint(maps.Collect(st.All())); after != before {
		t.Errorf("a panic changed the keys from %s to %s", before, after)
	}
	res, err := lim.Peek(context.Background(), "ann")
	if err != nil || res.Remaining != 4 {
		t.Errorf("after a panic %d tokens remain, error %v: want 4", res.Remaining, err)
	}
}

// A bombed is an algorithm whose Take panics while armed is true.
type bombed struct {
	algorithm.Algorithm
	armed bool
	kind  *contract.MeterKind
}

func (b *bombed) NewLimit() (*contract.Limit, error) {
	l, err := b.Algorithm.NewLimit()
	if b.kind == nil {
		right := l.Kind.(*contract.MeterKind)
		kind := *right
		kind.Name = "bombed"
		kind.Meter = func(args []store.Arg) contract.Meter { return bombedMeter{right.Meter(args), b} }
		b.kind = &kind
	}
	other := *l
	other.Kind = b.kind
	return &other, err
}

type bombedMeter struct {
	contract.Meter
	b *bombed
}

func (m bombedMeter) Take(c contract.Cell, n int64) contract.Cell {
	if m.b.armed {
		panic("bomb")
	}
	return m.Meter.Take(c, n)
}

func (m bombedMeter) Refund(now int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
	return m.Meter.(contract.Refunder).Refund(now, c, ch, note)
}

// Broken algorithms get the same answers and errors directly and from scripts, even if an
// integer in the store is out of range.
func TestDirectNonsense(t *testing.T) {
	t.Parallel()
	for _, taken := range []contract.Cell{
		{A: weirtest.Epoch.Add(time.Minute).UnixMicro(), B: -1},
		{A: 1<<53 + 1},
		{A: -1},
		{},
	} {
		a := metered(weirtest.Window(5, time.Hour), func(m refunding) contract.Meter { return nonsense{m, taken} })
		c := weirtest.NewClock()
		direct, script := weirtest.New(t, weirtest.NewStore(c), a), weirtest.New(t, scripted{weirtest.NewStore(c)}, a)
		for n, op := range []weir.Op{weir.Consume, weir.Consume, weir.Peek, weir.TakeUpTo} {
			q := weir.Request{Key: weir.KeyOf("ann"), Op: op}
			got, err := direct.Decide(t.Context(), q, nil)
			want, wantErr := script.Decide(t.Context(), q, nil)
			if got != want || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Errorf("%+v was stored, request %d, %v: direct %+v, %v, script %+v, %v", taken, n, op, got, err, want, wantErr)
			}
		}
	}
}

// If a Meter has room for more than the capacity, a request above the capacity gets the
// same error directly and from a script.
func TestDirectRoomy(t *testing.T) {
	t.Parallel()
	a := metered(weirtest.Window(5, time.Hour), func(m refunding) contract.Meter { return roomy{m} })
	for _, segments := range [][]string{{"a"}, {"a", "b"}} {
		c, p := weirtest.NewClock(), weir.Policy{Name: "roomy", Segments: segments, Rules: []weir.Rule{{Algorithm: a}}}
		direct, script := weirtest.NewPolicy(t, weirtest.NewStore(c), p), weirtest.NewPolicy(t, scripted{weirtest.NewStore(c)}, p)
		for n, q := range []weir.Request{{Cost: 1}, {Cost: 6}, {Cost: 5}, {Cost: 7}, {Op: weir.TakeUpTo, Cost: 5}, {Op: weir.TakeUpTo, Cost: 1000}, {Op: weir.Peek, Cost: 6}} {
			q.Key = weir.KeyOf(segments...)
			got, err := direct.Decide(t.Context(), q, nil)
			want, wantErr := script.Decide(t.Context(), q, nil)
			if got != want || fmt.Sprint(err) != fmt.Sprint(wantErr) || (err != nil) != (q.Cost > 5) {
				t.Errorf("%d segments, request %d, %+v: direct %+v, %v, script %+v, %v", len(segments), n, q, got, err, want, wantErr)
			}
		}
	}
}

// A roomy is a Meter that never has less room than 100 tokens.
type roomy struct{ refunding }

func (m roomy) Room(now, at int64, c contract.Cell) int64 {
	return max(m.refunding.Room(now, at, c), 100)
}

// A request that is not valid is an error, even if the store knows the key.
func TestDirectInvalid(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		ctx  context.Context
		q    weir.Request
		want error
	}{
		{t.Context(), weir.Request{Key: weir.KeyOf("ann", "bob")}, weir.ErrInvalidKey},
		{t.Context(), weir.Request{Key: weir.KeyOf("")}, weir.ErrInvalidKey},
		{t.Context(), weir.Request{}, weir.ErrInvalidKey},
		{t.Context(), weir.Request{Key: weir.KeyOf("ann"), Cost: -1}, weir.ErrInvalidCost},
		{t.Context(), weir.Request{Key: weir.KeyOf("ann"), Metadata: "m"}, weir.ErrUnsupported},
		{t.Context(), weir.Request{Key: weir.KeyOf("ann"), Op: 99}, weir.ErrUnsupported},
		{ended, weir.Request{Key: weir.KeyOf("ann")}, context.Canceled},
	} {
		lim := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.PerSecond)
		if res, err := lim.Allow(t.Context(), "ann"); err != nil || !res.Allowed {
			t.Fatal(res, err)
		}
		if res, err := lim.Decide(tt.ctx, tt.q, nil); !errors.Is(err, tt.want) || res != (weir.Result{}) {
			t.Errorf("%+v: got %+v, %v, want %v", tt.q, res, err, tt.want)
		}
	}
}

// A key that lacks a segment is an error, even if the rule does not use that segment.
func TestDirectSegments(t *testing.T) {
	t.Parallel()
	p := weir.Policy{Name: "t", Segments: []string{"a", "b"}, Rules: []weir.Rule{{By: []string{"a"}, Algorithm: weirtest.PerSecond}}}
	lim := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), p)
	if res, err := lim.Allow(t.Context(), "ann", "x"); err != nil || !res.Allowed {
		t.Fatal(res, err)
	}
	if res, err := lim.Allow(t.Context(), "ann"); !errors.Is(err, weir.ErrInvalidKey) {
		t.Errorf("got %+v, %v, want %v", res, err, weir.ErrInvalidKey)
	}
}

// A value that no limiter wrote gets the same error directly and from a script.
func TestDirectForeign(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a"} { // with a name, the key has two segments
		p := weir.Policy{Name: "t", Segments: []string{"a"}, Rules: []weir.Rule{{Name: name, Algorithm: weirtest.Window(9, time.Hour)}}}
		key, stored := []string{"ann"}, "weir:t:{ann}:f2"
		if name != "" {
			p.Segments, key, stored = []string{"a", "b"}, []string{"ann", "bob"}, "weir:t:{ann:bob}:a.f2"
		}
		for _, tag := range []store.Tag{{'x', '1'}, {'f', '2'}} {
			for ints := range 6 {
				c := weirtest.NewClock()
				sts := [2]*memory.Store{weirtest.NewStore(c), weirtest.NewStore(c)}
				direct, script := weirtest.NewPolicy(t, sts[0], p), weirtest.NewPolicy(t, scripted{sts[1]}, p)
				for _, st := range sts {
					weirtest.Plant(t, st, stored, tag, []int64{weirtest.Epoch.Add(time.Hour).UnixMicro(), 1, 1, 1, 1}[:ints]...)
				}
				got, err := direct.Allow(t.Context(), key...)
				want, wantErr := script.Allow(t.Context(), key...)
				if got != want || fmt.Sprint(err) != fmt.Sprint(wantErr) || tag[0] == 'x' && !errors.Is(err, store.ErrForeign) {
					t.Errorf("%s with %d integers in %s: direct %+v, %v, script %+v, %v", tag, ints, stored, got, err, want, wantErr)
				}
			}
		}
	}
}

// A Meter does not get a cell that has ended, even if the key has not expired yet.
func TestDirectEnded(t *testing.T) {
	t.Parallel()
	for _, segments := range [][]string{{"a"}, {"a", "b"}} {
		settled := 0
		a := metered(weirtest.Window(5, time.Second), func(m refunding) contract.Meter { return endless{m, t, &settled} })
		c := weirtest.NewClock()
		lim := weirtest.NewPolicy(t, weirtest.NewStore(c), weir.Policy{Name: "t", Segments: segments, Rules: []weir.Rule{{Algorithm: a}}})
		for range 100 {
			if res, err := lim.Allow(t.Context(), segments...); err != nil || !res.Allowed || res.Remaining != 4 {
				t.Fatal(res, err)
			}
			c.Advance(time.Second)
		}
		if settled != 101 { // a script settles a cell twice
			t.Errorf("%d segments: 100 requests settled %d cells, want 101", len(segments), settled)
		}
	}
}

// An endless is a Meter that reports cells that have ended.
type endless struct {
	refunding
	t       *testing.T
	settled *int
}

func (m endless) Advance(now int64, c contract.Cell) contract.Cell {
	*m.settled++
	if c != (contract.Cell{}) && m.Ends(c) <= now {
		m.t.Errorf("a cell has ended %d microseconds ago", now-m.Ends(c))
	}
	return m.refunding.Advance(now, c)
}

// An integer that Head.Cell does not name is not stored, directly and by scripts.
func TestDirectUnnamed(t *testing.T) {
	t.Parallel()
	a := metered(weirtest.Window(9, time.Hour), func(m refunding) contract.Meter { return unnamed{m} })
	c := weirtest.NewClock()
	direct, script := weirtest.New(t, weirtest.NewStore(c), a), weirtest.New(t, scripted{weirtest.NewStore(c)}, a)
	for n := range 4 {
		got, err := direct.Allow(t.Context(), "ann")
		want, wantErr := script.Allow(t.Context(), "ann")
		if got != want || err != nil || wantErr != nil {
			t.Errorf("request %d: direct %+v, %v, script %+v, %v", n, got, err, want, wantErr)
		}
	}
}

// An unnamed is a Meter that uses an integer which Head.Cell does not name.
type unnamed struct{ refunding }

func (m unnamed) Take(c contract.Cell, n int64) contract.Cell {
	c = m.refunding.Take(c, n)
	c.D++
	return c
}

func (m unnamed) Room(now, at int64, c contract.Cell) int64 {
	return m.refunding.Room(now, at, c) - c.D
}

// A nonsense is a Meter that always stores taken, which ends in an hour.
type nonsense struct {
	refunding
	taken contract.Cell
}

func (m nonsense) Take(contract.Cell, int64) contract.Cell { return m.taken }
func (m nonsense) Ends(contract.Cell) int64                { return weirtest.Epoch.Add(time.Hour).UnixMicro() }

// No script runs for known keys, whatever the number of rules and segments, even if the
// keys are in different shards.
func TestDirectKeys(t *testing.T) {
	t.Parallel()
	settled := 0
	a := metered(weirtest.Window(100, time.Hour), func(m refunding) contract.Meter { return counted{m, &settled} })
	for _, tt := range []struct{ rules, segments int }{{1, 1}, {1, 8}, {2, 8}, {4, 8}, {5, 8}} {
		p := weir.Policy{Segments: make([]string, tt.segments), Rules: make([]weir.Rule, tt.rules)}
		key := make([]string, tt.segments)
		for i := range key {
			p.Segments[i], key[i] = fmt.Sprint("s", i), fmt.Sprint("ann", i)
		}
		for i := range p.Rules {
			p.Rules[i] = weir.Rule{Name: fmt.Sprint("r", i), By: p.Segments[:max(1, tt.segments-i%3)], Algorithm: a}
		}
		lim := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), p)
		for n, want := range []int{2 * tt.rules, tt.rules} { // a script settles each cell twice
			settled = 0
			if res, err := lim.Allow(t.Context(), key...); err != nil || !res.Allowed {
				t.Fatal(res, err)
			}
			if settled != want {
				t.Errorf("%+v: request %d settled %d cells, want %d", tt, n, settled, want)
			}
		}
	}
}

// A counted is a Meter that counts the calls of Settle.
type counted struct {
	refunding
	settled *int
}

func (m counted) Advance(now int64, c contract.Cell) contract.Cell {
	*m.settled++
	return m.refunding.Advance(now, c)
}

type refunding interface {
	contract.Meter
	contract.Refunder
}

// metered returns a, with the Meter that wrap returns for the Meter of a.
func metered(a algorithm.Algorithm, wrap func(refunding) contract.Meter) algorithm.Algorithm {
	l, err := a.NewLimit()
	if err != nil {
		panic(err)
	}
	right, limit := l.Kind.(*contract.MeterKind), *l
	kind := *right
	kind.Meter = func(args []store.Arg) contract.Meter { return wrap(right.Meter(args).(refunding)) }
	limit.Kind = &kind
	return ready{&limit}
}

// A ready is an algorithm whose limit is made.
type ready struct{ limit *contract.Limit }

func (a ready) NewLimit() (*contract.Limit, error) { return a.limit, nil }

// A limiter of one rule that has segments after the braces decides on its own key.
func TestDirectOnly(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	user := weir.Rule{Name: "user", By: []string{"tenant"}, Algorithm: weirtest.Window(5, time.Hour)}
	p := weir.Policy{Name: "api", Segments: []string{"tenant", "user"}, Rules: []weir.Rule{
		{Name: "tenant", By: []string{"tenant"}, Algorithm: weirtest.Window(100, time.Hour)}, user,
	}}
	before := weirtest.NewPolicy(t, st, p)
	for range 5 {
		weirtest.Allow(t, before, weir.Request{Key: weir.KeyOf("acme", "x")})
	}
	p.Rules[1].By = nil
	l := weirtest.Only(t, weirtest.NewPolicy(t, st, p), "user")
	for want := int64(4); want >= 0; want-- {
		if res, err := l.Allow(t.Context(), "acme", "ann"); !res.Allowed || res.Remaining != want || err != nil {
			t.Errorf("got %+v, %v, want %d left", res, err, want)
		}
	}
}
