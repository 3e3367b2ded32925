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
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// Every decision makes exactly one call of the store, and a pause touches only its own key.
func TestOneCall(t *testing.T) {
	t.Parallel()
	st := &recorder{Store: memory.New(nil)}
	l := weirtest.NewPolicy(t, st, weirtest.Rules(
		minute("a", 60), window("b", 50), weir.Rule{Name: "c", Algorithm: algorithm.SlidingLog{Limit: 50, Window: time.Minute}}, pauseRule, shadow(window("d", 50)),
	))
	bare := weirtest.NewPolicy(t, st, weirtest.Rules(minute("a", 60), window("b", 50)))
	for _, tt := range []struct {
		l    *weir.Limiter
		r    weir.Request
		keys int // of the last call
	}{
		{bare, ask(1, ""), 2}, {bare, do(weir.Peek, 1, ""), 2}, {bare, do(weir.TakeUpTo, 5, "y"), 4},
		{bare, ask(1, "x"), 4}, {bare, settle(2, "x"), 4}, {bare, do(weir.Refund, 0, "x"), 4}, {bare, weir.Request{Op: weir.Reset}, 2},
		{l, weir.Request{Op: weir.Pause, ID: "p", For: time.Hour}, 1}, {l, do(weir.Resume, 0, "p"), 1},
	} {
		st.evals = 0
		tt.r.Key = keyU.Key
		if weirtest.Allow(t, tt.l, tt.r); st.evals != 1 || st.mgets+st.times != 0 || len(st.keys) != tt.keys {
			t.Errorf("%v: %d calls of the store, the last with %q, want one with %d keys", tt.r.Op, st.calls(), st.keys, tt.keys)
		}
	}
}

// Decisions use Options.Clock. A time out of range is an error.
func TestOptionsClock(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		at   time.Time
		good bool
	}{
		{time.UnixMicro(1), true}, {time.UnixMicro(1<<52 - 1), true},
		{time.Time{}, false}, {time.UnixMicro(0), false}, {time.UnixMicro(1 << 52), false},
	} {
		st := &recorder{Store: memory.New(nil)}
		l, err := weir.New("t", st, metaRule.Algorithm, &weir.Options{Clock: func() time.Time { return tt.at }})
		if err != nil {
			t.Fatal(err)
		}
		res, err := l.AllowN(t.Context(), 5, "u")
		if (err == nil) != tt.good || res.Allowed != tt.good || tt.good && res.ResetAfter != time.Hour {
			t.Errorf("%v: got %+v, %v, want it to work: %v", tt.at, res, err, tt.good)
		}
		_, err = l.Entries(t.Context(), "u")
		many := l.DoMany(t.Context(), []weir.Request{{Key: keyU.Key, Op: weir.Peek}})
		if (err == nil) != tt.good || (many[0].Err == nil) != tt.good {
			t.Errorf("%v: Entries and DoMany: %v, %v, want them to work: %v", tt.at, err, many[0].Err, tt.good)
		}
		if st.times > 0 || !tt.good && st.calls() > 0 {
			t.Errorf("%v: the store was called", tt.at)
		}
	}
}

// A liar is a store that returns the reply, the values and the error of a test.
type liar struct {
	reply  []store.Value
	values []store.Value
	err    error
}

func (l liar) Eval(_ context.Context, _ *store.Script, _ []string, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	return append(reply, l.reply...), l.err
}

func (l liar) MGet(_ context.Context, _ []string, values []store.Value) ([]store.Value, error) {
	return append(values, l.values...), l.err
}

func (l liar) Time(context.Context) (time.Time, error) { return weirtest.Epoch, l.err }

func integers(n ...int64) []store.Value {
	values := make([]store.Value, len(n))
	for i := range n {
		values[i] = store.IntegerValue(n[i])
	}
	return values
}

// TestReply has what becomes of the reply to a script. One that no script makes is an error, and
// the request is not allowed. A server replies with one string, which holds all integers.
func TestReply(t *testing.T) {
	t.Parallel()
	now := weirtest.Epoch.UnixMicro()
	const least, most = -1 << 63, 1<<63 - 1
	head := fmt.Sprintf("%d %d", now/1e6, now%1e6)
	text := func(s string) []store.Value { return []store.Value{store.BulkValue(s)} }
	full := fmt.Sprint(now+1e6, " 5")
	for _, tt := range []struct {
		name  string
		reply []store.Value // for one FixedWindow of 5: allowed, now, edge, count
		want  string        // empty: an ErrScript
	}{
		{"of a server", text("1;" + head + ";f2 " + fmt.Sprint(now+1e6, " 3")), "1: fixedwindow 1 of 5, full in 1s"},
		{"a denial of a server", text("0;" + head + ";f2 " + full), "denied for 1s: fixedwindow 0 of 5, full in 1s"},
		{"of a store in Go", integers(1, now, now+1e6, 3), "1: fixedwindow 1 of 5, full in 1s"},
		{"nothing", nil, ""},
		{"yes, with a state that denies", integers(1, now, now+1, 5), ""},
		{"no, with a state that just allows", integers(0, now, now+1, 4), ""},
		{"neither yes nor no", integers(2, now, now+1, 5), ""},
		{"more than was asked for", integers(2, now, 0, 0), ""},
		{"the greatest numbers", integers(1, most, most, most), ""},
		{"a text with a state that denies", text("1;" + head + ";f2 " + full), ""},
		{"a text with a state that allows", text("0;" + head + ";"), ""},
	} {
		l := weirtest.New(t, liar{reply: tt.reply}, weirtest.Window(5, time.Hour))
		for _, op := range []weir.Op{weir.Consume, weir.Peek, weir.TakeUpTo} {
			r := weir.Request{Key: keyU.Key, Op: op}
			res, err := l.Decide(t.Context(), r, nil)
			switch got := answerOf(r, res, err); {
			case tt.want == "" && (!errors.Is(err, store.ErrScript) || res != (weir.Result{})), tt.want != "" && got != tt.want && op == weir.Consume:
				t.Errorf("%s, %v: got %s, want %q", tt.name, op, got, tt.want)
			}
		}
	}
	for name, reply := range map[string][]store.Value{"an integer": integers(1), "another tag": text("l2 0000000000000001"), "no metadata": text("m2 1 1")} {
		want := map[bool]error{true: store.ErrScript, false: store.ErrForeign}[name == "an integer"] // a text can be the list of the key
		if list, err := weirtest.New(t, liar{reply: reply}, metaRule.Algorithm).Entries(t.Context(), "u"); !errors.Is(err, want) || list != nil {
			t.Errorf("Entries of %s: got %+v, %v, want %v", name, list, err, want)
		}
	}
	for _, values := range [][]store.Value{nil, make([]store.Value, 1), make([]store.Value, 3)} {
		l := weirtest.New(t, liar{values: values}, weirtest.PerSecond)
		for i, a := range l.DoMany(t.Context(), []weir.Request{{Key: weir.KeyOf("u"), Op: weir.Peek}, {Key: weir.KeyOf("v"), Op: weir.Peek}}) {
			if !errors.Is(a.Err, store.ErrScript) || a.Result != (weir.Result{}) {
				t.Errorf("%d values for 2 keys, answer %d: got %+v, want ErrScript", len(values), i, a)
			}
		}
	}
}

// An error of the store is returned with a zero Result.
func TestStoreErrors(t *testing.T) {
	t.Parallel()
	for _, want := range []error{store.ErrUnavailable, store.ErrScript, store.ErrForeign, context.DeadlineExceeded, context.Canceled} {
		st := liar{reply: integers(1, weirtest.Epoch.UnixMicro(), 0, 0, 1), values: make([]store.Value, 1), err: fmt.Errorf("some store: %w", want)}
		l, list, jobs := weirtest.New(t, st, weirtest.PerSecond), weirtest.New(t, st, metaRule.Algorithm), weirtest.New(t, st, oneJob)
		ctx, u := t.Context(), keyU
		many := func(op weir.Op) (any, any, error) {
			a := l.DoMany(ctx, []weir.Request{{Key: u.Key, Op: op}})[0]
			return a.Result, weir.Result{}, a.Err
		}
		for name, call := range map[string]func() (any, any, error){
			"Allow":      func() (any, any, error) { r, err := l.Allow(ctx, "u"); return r, weir.Result{}, err },
			"peeks":      func() (any, any, error) { return many(weir.Peek) },
			"a batch":    func() (any, any, error) { return many(weir.Consume) },
			"Entries":    func() (any, any, error) { list, err := list.Entries(ctx, "u"); return len(list), 0, err },
			"Wait":       func() (any, any, error) { r, err := l.Wait(ctx, "u"); return r, weir.Result{}, err },
			"TryAcquire": func() (any, any, error) { r, err := jobs.TryAcquire(ctx, u); return r, (*weir.Lease)(nil), err },
		} {
			got, zero, err := call()
			if !errors.Is(err, want) || got != zero || want != store.ErrUnavailable && errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: got %+v, %v, want %v alone", name, got, err, want)
			}
		}
	}
}

// Ready runs the scripts of every algorithm, with keys of its own, and leaves no key.
func TestReady(t *testing.T) {
	t.Parallel()
	log := algorithm.SlidingLog{Limit: 3, Window: time.Hour}
	for _, p := range []weir.Policy{
		weirtest.Rules(rateRule), weirtest.Rules(metaRule), weirtest.Rules(jobsRule), weirtest.Rules(weir.Rule{Algorithm: log, Cost: 3}),
		weirtest.Rules(jobsRule, weir.Rule{Name: "b", Algorithm: algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: time.Minute, Limit: 9}}}}, shadow(rateRule)),
		{Units: []string{"u", "v"}, Rules: []weir.Rule{{Name: "u", Unit: "u", Algorithm: weirtest.PerSecond}, {Name: "v", Unit: "v", Algorithm: log, Shadow: true}}},
		{Segments: []string{"tenant", "user", "token"}, Secret: []string{"token"}, Rules: []weir.Rule{
			{Name: "a", By: []string{"tenant"}, Algorithm: weirtest.PerSecond},
			{Name: "b", By: []string{"tenant", "token"}, Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerHour(1)}},
		}},
	} {
		mem := memory.New(nil)
		st := &recorder{Store: mem}
		if err := weirtest.Wrap(t, weirtest.NewPolicy(t, st, p), deny).Ready(t.Context()); err != nil || len(keysIn(mem)) > 0 {
			t.Errorf("%+v: %v, left %q", p, err, keysIn(mem))
		}
		asked := strings.Join(st.all, "\n")
		for _, r := range p.Rules {
			if !strings.Contains(asked, "}:"+r.Name) {
				t.Errorf("rule %q was not tried: %s", r.Name, asked)
			}
		}
		if len(st.all) != strings.Count(asked, "weir:t:{%ready:") {
			t.Errorf("asked for %s", asked)
		}
	}
}

// Each error of Ready is either unavailable, or lasts.
func TestReadyErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		is, want    error
		unavailable bool
	}{
		{store.ErrUnavailable, store.ErrUnavailable, true},
		{fmt.Errorf("%w: %w: set a password", store.ErrUnavailable, store.ErrMisconfigured), store.ErrMisconfigured, false},
		{store.ErrNoGoForm, store.ErrNoGoForm, false},
		{context.DeadlineExceeded, context.DeadlineExceeded, true},
	} {
		for fails := range 4 { // the call that fails
			backend := memory.New(nil)
			n := 0
			st := &weirtest.Hooked{Store: backend, Before: func(context.Context, *store.Script) error {
				if n++; n == fails+1 {
					return fmt.Errorf("x: %w", tt.is)
				}
				return nil
			}}
			err := weirtest.New(t, st, weirtest.PerSecond).Ready(t.Context())
			if !errors.Is(err, tt.want) || errors.Is(err, store.ErrUnavailable) != tt.unavailable || !strings.HasPrefix(err.Error(), "weir: Ready: ") {
				t.Errorf("call %d fails with %v: got %v", fails, tt.is, err)
			}
			if keys := keysIn(backend); len(keys) > 0 && fails < 3 {
				t.Errorf("call %d fails with %v: left %q", fails, tt.is, keys)
			}
		}
	}
}

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
		var held [2]string // every key with its value and its TTL
		if call%16 == 15 {
			for i, st := range stores {
				held[i] = fmt.Sprint(dump(t, st), maps.Collect(st.All()))
			}
		}
		if res[0] != res[1] || each[0] != each[1] || fmt.Sprint(errs[0]) != fmt.Sprint(errs[1]) || held[0] != held[1] {
			t.Fatalf("%s, call %d, %+v by %+v:\ndirect %+v %v %s\nscript %+v %v %s", name, call, q, p.Rules, res[0], errs[0], held[0], res[1], errs[1], held[1])
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

// directRules returns up to six random rules, most of which are decided directly.
func directRules(r *rand.Rand) []weir.Rule {
	list := make([]weir.Rule, 1+r.IntN(6))
	for i := range list {
		rule := &list[i]
		rule.Name = fmt.Sprintf("r%d", i)
		n, rate, second := 1+r.Int64N(10), algorithm.PerSecond(1+r.Int64N(7)), time.Second
		algorithms := []algorithm.Algorithm{
			algorithm.GCRA{Rate: rate, Burst: n}, algorithm.FixedWindow{Limit: n, Window: time.Duration(1+r.IntN(9)) * second, Aligned: r.IntN(2) == 0},
			algorithm.TokenBucket{Capacity: n, Refill: rate, AtOnce: r.IntN(2) == 0}, algorithm.LeakyBucket{Rate: rate, Queue: n},
			algorithm.SlidingCounter{Limit: n, Window: 4 * second}, algorithm.SlidingLog{Limit: n, Window: 4 * second},
		}
		if len(list) > 2 { // with a SlidingLog, no decision is direct
			algorithms = algorithms[:5]
		}
		rule.Algorithm = algorithms[r.IntN(len(algorithms))]
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
	requests := []weir.Request{
		{Op: weir.Peek, Cost: r.Int64N(4), MaxWait: time.Duration(r.IntN(2)) * time.Second}, {Op: weir.TakeUpTo, Cost: 1 + r.Int64N(5)}, {Op: weir.Reset},
		{Cost: r.Int64N(4), MaxWait: time.Duration(r.Int64N(int64(3 * time.Second)))}, {Cost: r.Int64N(4), MaxWait: weir.Never},
		{Op: weir.Refund, ID: fmt.Sprint(r.IntN(call + 1))}, {Cost: r.Int64N(4), ID: fmt.Sprint(call)},
		{Cost: r.Int64N(4)}, {Cost: r.Int64N(4)}, {}, {}, {},
	}
	q := requests[r.IntN(len(requests))]
	q.Key = weir.KeyOf(key[:segments]...)
	return q
}

// A meter is a Meter whose methods call the functions that are set.
type meter struct {
	refunding
	advance func(now int64, c contract.Cell) // before Advance
	room    func(room int64, c contract.Cell) int64
	take    func(c contract.Cell) contract.Cell // after Take
	ends    int64                               // if it is not 0, Ends
}

type refunding interface {
	contract.Meter
	contract.Refunder
}

func (m meter) Advance(now int64, c contract.Cell) contract.Cell {
	if m.advance != nil {
		m.advance(now, c)
	}
	return m.refunding.Advance(now, c)
}

func (m meter) Room(now, at int64, c contract.Cell) int64 {
	room := m.refunding.Room(now, at, c)
	if m.room != nil {
		room = m.room(room, c)
	}
	return room
}

func (m meter) Take(c contract.Cell, n int64) contract.Cell {
	c = m.refunding.Take(c, n)
	if m.take != nil {
		c = m.take(c)
	}
	return c
}

func (m meter) Ends(c contract.Cell) int64 {
	if m.ends != 0 {
		return m.ends
	}
	return m.refunding.Ends(c)
}

// metered returns a with the Meter m around its own.
func metered(a algorithm.Algorithm, m meter) algorithm.Algorithm {
	limit := *must(a.NewLimit())
	right := limit.Kind.(*contract.MeterKind)
	kind := *right
	kind.Meter = func(args []store.Arg) contract.Meter {
		m.refunding = right.Meter(args).(refunding)
		return m
	}
	limit.Kind = &kind
	return fake{limit: &limit}
}

// If an algorithm panics, the store is unchanged: nothing is locked, and no rule has
// consumed tokens.
func TestDirectPanic(t *testing.T) {
	t.Parallel()
	armed := false
	bomb := weir.Rule{Name: "bomb", Algorithm: metered(weirtest.PerSecond, meter{take: func(c contract.Cell) contract.Cell {
		if armed {
			panic("bomb")
		}
		return c
	}})}
	for _, list := range [][]weir.Rule{{bomb}, {rateRule, bomb}} {
		st := memory.New(nil)
		l := weirtest.NewPolicy(t, st, weirtest.Rules(list...))
		allow := func() (err any) {
			defer func() { err = recover() }()
			_, err = l.Allow(context.Background(), "u")
			return err
		}
		if err := allow(); err != nil {
			t.Fatal(err)
		}
		before := dump(t, st)
		armed = true
		if err := allow(); err != "bomb" || !slices.Equal(before, dump(t, st)) {
			t.Fatalf("the algorithm panicked: Allow ended with %v, and turned %q into %q", err, before, dump(t, st))
		}
		armed = false
		if res := weirtest.Left(t, l, "u"); res.Remaining != 4 {
			t.Errorf("after a panic %d tokens remain, want 4", res.Remaining)
		}
	}
}

// Broken algorithms, and values that no limiter wrote, get the same answers and errors directly
// and from scripts.
func TestDirectBroken(t *testing.T) {
	t.Parallel()
	hour := weirtest.Epoch.Add(time.Hour).UnixMicro()
	w := weirtest.Window(5, time.Hour)
	stores := func(c contract.Cell) algorithm.Algorithm { // always c, which ends in an hour
		return metered(w, meter{take: func(contract.Cell) contract.Cell { return c }, ends: hour})
	}
	planted := func(tag string, n ...int64) *store.Nums {
		nums := &store.Nums{Tag: store.Tag{tag[0], tag[1]}, Len: uint8(len(n))}
		copy(nums.N[:], n)
		return nums
	}
	for _, tt := range []struct {
		name   string
		a      algorithm.Algorithm
		stored *store.Nums // at first
		want   error       // of the first request
	}{
		{"a negative integer", stores(contract.Cell{A: hour, B: -1}), nil, nil},
		{"an integer too large", stores(contract.Cell{A: 1<<53 + 1}), nil, nil},
		{"a negative time", stores(contract.Cell{A: -1}), nil, nil},
		{"nothing", stores(contract.Cell{}), nil, nil},
		{"more room than the capacity", metered(w, meter{room: func(room int64, _ contract.Cell) int64 { return max(room, 100) }}), nil, nil},
		{"an integer that Head.Cell does not name", metered(w, meter{
			take: func(c contract.Cell) contract.Cell { c.D++; return c },
			room: func(room int64, c contract.Cell) int64 { return room - c.D },
		}), nil, nil},
		{"another tag", w, planted("x1", hour, 1), store.ErrForeign},
		{"one integer", w, planted("f2", hour), store.ErrForeign},
		{"two integers", w, planted("f2", hour, 1), nil},
		{"three integers", w, planted("f2", hour, 1, 1), nil},
		{"four integers", w, planted("f2", hour, 1, 1, 1), store.ErrForeign},
	} {
		for _, segments := range [][]string{{"a"}, {"a", "b"}} {
			c := weirtest.NewClock()
			var limiters [2]*weir.Limiter
			for i := range limiters {
				mem := weirtest.NewStore(c)
				if tt.stored != nil {
					weirtest.Plant(t, mem, "weir:t:{"+strings.Join(segments, ":")+"}:f2", tt.stored.Tag, tt.stored.N[:tt.stored.Len]...)
				}
				limiters[i] = weirtest.NewPolicy(t, []store.Store{mem, scripted{mem}}[i], weir.Policy{Segments: segments, Rules: []weir.Rule{{Algorithm: tt.a}}})
			}
			for n, r := range []weir.Request{{}, {}, {Cost: 6}, do(weir.Peek, 1, ""), do(weir.TakeUpTo, 5, ""), do(weir.TakeUpTo, 1000, ""), do(weir.Peek, 6, ""), {}} {
				r.Key = weir.KeyOf(segments...)
				got, err := limiters[0].Decide(t.Context(), r, nil)
				want, wantErr := limiters[1].Decide(t.Context(), r, nil)
				if got != want || fmt.Sprint(err) != fmt.Sprint(wantErr) || n == 0 && (!errors.Is(err, tt.want) || tt.want == nil && err != nil) {
					t.Errorf("%s, %d segments, request %d: direct %+v, %v, script %+v, %v", tt.name, len(segments), n, got, err, want, wantErr)
				}
			}
		}
	}
}

// No script runs for known keys, whatever the number of rules and segments, even if the
// keys are in different shards. A Meter does not get a cell that has ended, even if the key has
// not expired yet.
func TestDirectKeys(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ rules, segments int }{{1, 1}, {1, 2}, {1, 8}, {2, 8}, {4, 8}, {5, 8}} {
		advanced := 0
		a := metered(weirtest.Window(100, time.Second), meter{advance: func(now int64, c contract.Cell) {
			if advanced++; c != (contract.Cell{}) && c.A <= now {
				t.Errorf("a cell ended %d microseconds ago", now-c.A)
			}
		}})
		p := weir.Policy{Segments: make([]string, tt.segments), Rules: make([]weir.Rule, tt.rules)}
		key := make([]string, tt.segments)
		for i := range key {
			p.Segments[i], key[i] = fmt.Sprint("s", i), fmt.Sprint("ann", i)
		}
		for i := range p.Rules {
			p.Rules[i] = weir.Rule{Name: fmt.Sprint("r", i), By: p.Segments[:max(1, tt.segments-i%3)], Algorithm: a}
		}
		c := weirtest.NewClock()
		l := weirtest.NewPolicy(t, weirtest.NewStore(c), p)
		for n, want := range []int{2 * tt.rules, tt.rules, tt.rules, tt.rules} { // a script advances each cell twice
			advanced = 0
			if weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf(key...)}); advanced != want {
				t.Errorf("%+v: request %d advanced %d cells, want %d", tt, n, advanced, want)
			}
			c.Advance(time.Duration(n) * time.Second)
		}
	}
}
