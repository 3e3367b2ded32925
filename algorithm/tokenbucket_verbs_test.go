package algorithm_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// ask decides r, or peeks, at now.
func (b *bench) ask(script *store.Script, now int64, r algorithm.Request) algorithm.Verdict {
	b.state.now = now
	args := b.limit.AppendArgs(b.program.AppendNow(nil, 0), r)
	reply, err := script.GoForm()(b.state, args, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	n, at, err := b.program.Outcome(reply)
	if err != nil {
		b.t.Fatal(err)
	}
	v := b.limit.Verdict(at, n == 1 && script == b.program.Decide, b.program.State(reply, 0), r)
	if v.Allowed != (n == 1) {
		b.t.Fatalf("%+v at %d: the script says %d and the verdict %+v", r, now, n, v)
	}
	return v
}

// fitting are limits of 10 tokens that can be taken in part, waited for and given
// back, and about the microseconds in which one comes back.
var fitting = []struct {
	limit algorithm.Algorithm
	one   int64
}{
	{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(3)}, 333_333},
	{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(10)}, 100_000},
	{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(3), AtOnce: true}, 333_333},
	{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(300_000)}, 3},
	{algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 9}, 333_333},
	{algorithm.LeakyBucket{Rate: algorithm.PerSecond(10), Queue: 9}, 100_000},
}

// Fit is the greatest cost that passes, and Take makes the arguments of that.
func TestTokenBucketFit(t *testing.T) {
	t.Parallel()
	for i, tt := range fitting {
		a := tt.limit
		_, leaky := a.(algorithm.LeakyBucket)
		r := rand.New(rand.NewPCG(uint64(i), 4))
		b := newBench(t, a)
		f, now := b.limit.Fragment(), int64(epoch)
		for range 1000 {
			now += r.Int64N(2*tt.one) - tt.one/3
			wait := time.Duration(0)
			if r.IntN(2) == 0 && !leaky {
				wait = time.Duration(r.Int64N(9000 * tt.one))
			}
			b.state.now = now
			args := b.limit.AppendArgs(nil, algorithm.Request{Cost: 1, MaxWait: wait})
			s, _, err := f.Check(b.state, 0, now, args)
			if err != nil {
				t.Fatal(err)
			}
			fit, most := f.Fit(now, args, s), int64(0)
			for n := int64(1); n <= 10; n++ {
				if b.ask(b.program.Peek, now, algorithm.Request{Cost: n, MaxWait: wait}).Allowed {
					most = n
				}
			}
			if max(fit, 0) != most {
				t.Fatalf("%+v, wait %v, state %v at %d: Fit is %d, and %d pass", a, wait, s, now-epoch, fit, most)
			}
			if most == 0 {
				continue
			}
			n := 1 + r.Int64N(most)
			f.Take(args, n)
			want := b.limit.AppendArgs(nil, algorithm.Request{Cost: n, MaxWait: wait})
			took, paid := newState(now, 1), newState(now, 1)
			took.keys[0], paid.keys[0] = b.state.keys[0], b.state.keys[0]
			f.Commit(took, 0, now, args, s, 0)
			f.Commit(paid, 0, now, want, s, 0)
			if took.keys[0].nums != paid.keys[0].nums {
				t.Fatalf("%+v: Take(%d) wrote %v, a cost of %d writes %v", a, n, took.keys[0].nums, n, paid.keys[0].nums)
			}
			b.state = took
		}
	}
}

// A request with MaxWait is denied if its Delay would be longer, by a microsecond too.
// What it takes is there when the Delay is over, and not before.
func TestTokenBucketMaxWait(t *testing.T) {
	t.Parallel()
	for i, tt := range fitting {
		a := tt.limit
		r := rand.New(rand.NewPCG(uint64(i), 5))
		b := newBench(t, a)
		now := int64(epoch)
		denied := 0
		for range 2000 {
			now += r.Int64N(2 * tt.one)
			ask := algorithm.Request{Cost: 1 + r.Int64N(3), MaxWait: us + time.Duration(r.Int64N(12_000*tt.one))}
			long := ask
			long.MaxWait = time.Minute
			v := b.ask(b.program.Peek, now, ask)
			if d := b.ask(b.program.Peek, now, long); d.Allowed && (v.Allowed != (d.Delay <= ask.MaxWait.Truncate(us)) || v.Allowed && v.Delay != d.Delay) {
				t.Fatalf("%+v, %+v: got %+v, with a minute %+v", a, ask, v, d)
			}
			if !v.Allowed {
				denied++
				if v.RetryAfter <= 0 || v.Delay != 0 {
					t.Fatalf("%+v, %+v: denied with %+v", a, ask, v)
				}
				early, due := b.ask(b.program.Peek, now+v.RetryAfter.Microseconds()-1, ask), b.ask(b.program.Peek, now+v.RetryAfter.Microseconds(), ask)
				if early.Allowed || early.RetryAfter != us || !due.Allowed {
					t.Fatalf("%+v, %+v: RetryAfter is %v, 1µs before %+v, and then %+v", a, ask, v.RetryAfter, early, due)
				}
				continue
			}
			if v.Delay > 0 {
				short := ask
				short.MaxWait = v.Delay - us
				if d := b.ask(b.program.Peek, now, short); short.MaxWait > 0 && d.Allowed {
					t.Fatalf("%+v: a Delay of %v within %v: %+v", a, v.Delay, short.MaxWait, d)
				}
			}
			if r.IntN(3) > 0 {
				b.ask(b.program.Decide, now, ask)
			}
		}
		if denied < 20 {
			t.Errorf("%+v: only %d denials", a, denied)
		}
	}
}

// However long a caller would wait, no time and no count passes 2^53.
func TestTokenBucketLongestWait(t *testing.T) {
	t.Parallel()
	for _, a := range []algorithm.TokenBucket{
		{Capacity: 10, Refill: algorithm.PerSecond(3)},
		{Capacity: 10, Refill: algorithm.PerSecond(3), AtOnce: true},
		{Capacity: 10, Refill: algorithm.PerSecond(4_000_000_000)},
		{Capacity: 1 << 52, Refill: algorithm.PerSecond(1_000_000_000)},
		{Capacity: 1, Refill: algorithm.Every(maxSpan)},
		{Capacity: algorithm.MaxTokens - 1000, Refill: algorithm.PerSecond(1_000_000_000)},
		{Capacity: algorithm.MaxTokens - 1000, Refill: algorithm.Rate{Count: 1000, Period: us}, AtOnce: true},
	} {
		if _, err := a.NewLimit(); err != nil {
			t.Errorf("%+v: %v", a, err)
			continue
		}
		b := newBench(t, a)
		now := int64(1<<52 - 1)
		allowed := 0
		for range 100 {
			v := b.ask(b.program.Decide, now, algorithm.Request{Cost: a.Capacity, MaxWait: 1<<63 - 1})
			if !v.Allowed {
				break
			}
			allowed++
		}
		n := b.state.keys[0].nums
		if n.N[0] >= 1<<53 || n.N[1] >= 1<<53 || allowed == 0 {
			t.Errorf("%+v: %d allowed, and it holds %v", a, allowed, n)
		}
		if v := b.peek(now, 1); v.ResetAfter > maxSpan+us {
			t.Errorf("%+v: full after %v", a, v.ResetAfter)
		}
	}
}

// charge takes, and returns what a refund needs to know.
func (b *bench) charge(now int64, r algorithm.Request) (algorithm.Charge, algorithm.Verdict) {
	b.state.now = now
	f, args := b.limit.Fragment(), b.limit.AppendArgs(nil, r)
	s, ok, err := f.Check(b.state, 0, now, args)
	if err != nil {
		b.t.Fatal(err)
	}
	v := b.limit.Verdict(now, ok, s, r)
	if !ok {
		return algorithm.Charge{}, v
	}
	c, life := f.Charge(now, args, s, algorithm.Note{})
	f.Commit(b.state, 0, now, args, s, 0)
	if life <= 0 || life < v.ResetAfter.Microseconds() {
		b.t.Fatalf("a charge that matters for %d µs, of a bucket that is full after %v", life, v.ResetAfter)
	}
	return c, v
}

func (b *bench) refund(now int64, was algorithm.Charge) bool {
	b.state.now = now
	f, args := b.limit.Fragment(), b.limit.AppendArgs(nil, algorithm.Request{Cost: 1})
	s, _, err := f.Check(b.state, 0, now, args)
	if err != nil {
		b.t.Fatal(err)
	}
	before := b.state.writes
	gave := f.Refund(b.state, 0, now, args, s, was, algorithm.Note{})
	if gave != (b.state.writes > before) {
		b.t.Fatalf("gave back: %v, after %d writes", gave, b.state.writes-before)
	}
	return gave
}

func TestTokenBucketRefund(t *testing.T) {
	t.Parallel()
	const s = 1_000_000
	wait := 10 * time.Second
	for _, tt := range []struct {
		name   string
		limit  algorithm.TokenBucket
		charge int64 // what is given back
		then   []algorithm.Request
		after  int64 // µs
		gave   bool
		left   int64
		reset  time.Duration
	}{
		{"at once", algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}, 2, nil, 0, true, 5, 0},
		{"with another", algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}, 2, []algorithm.Request{{Cost: 1}}, 0, true, 4, time.Second},
		{"half of it is back", algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}, 2, []algorithm.Request{{Cost: 3}}, 1 * s, true, 2, 3 * time.Second},
		{"half of a token more", algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}, 2, []algorithm.Request{{Cost: 3}}, 1.5 * s, true, 2, 2500 * time.Millisecond},
		{"all of it is back", algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}, 2, []algorithm.Request{{Cost: 3}}, 2 * s, false, 2, 3 * time.Second},
		{"long ago", algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}, 2, nil, 1000 * s, false, 5, 0},
		{"somebody waits behind", algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}, 5, []algorithm.Request{{Cost: 3, MaxWait: wait}}, 0, true, 0, 6 * time.Second},
		{"more wait behind than it took", algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}, 2, []algorithm.Request{{Cost: 5, MaxWait: wait}}, 0, false, 0, 7 * time.Second},
		{"all at once", algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(2), AtOnce: true}, 3, []algorithm.Request{{Cost: 2}}, s - 1, true, 3, us},
		{"all at once, a part is back", algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(2), AtOnce: true}, 3, []algorithm.Request{{Cost: 2}}, s, true, 3, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, tt.limit)
			was, v := b.charge(epoch, algorithm.Request{Cost: tt.charge})
			if !v.Allowed {
				t.Fatalf("got %+v", v)
			}
			for _, r := range tt.then {
				if _, v := b.charge(epoch, r); !v.Allowed {
					t.Fatalf("%+v: got %+v", r, v)
				}
			}
			now := epoch + tt.after
			if gave := b.refund(now, was); gave != tt.gave {
				t.Errorf("gave back: %v, want %v", gave, tt.gave)
			}
			got := b.peek(now, 1)
			if got.Remaining != tt.left || got.ResetAfter != tt.reset {
				t.Errorf("then %d are left, full after %v; want %d, %v", got.Remaining, got.ResetAfter, tt.left, tt.reset)
			}
		})
	}
}

// A refund gives back no more than was taken, and gives nobody the turn of another
// who waits, nor an earlier one.
func TestRefundKeepsTurns(t *testing.T) {
	t.Parallel()
	type taken struct {
		charge algorithm.Charge
		turn   int64 // when its Delay is over; 0 if it had none
	}
	for i, tt := range fitting {
		a := tt.limit
		r := rand.New(rand.NewPCG(uint64(i), 6))
		b := newBench(t, a)
		given, refused, now := 0, 0, int64(epoch)
		together := false // two may have one turn
		if tokens, ok := a.(algorithm.TokenBucket); ok {
			together = tokens.AtOnce
		}
		var list []taken
		for range 3000 {
			now += r.Int64N(2 * tt.one)
			if len(list) > 3 && r.IntN(3) == 0 {
				n := len(list) - 1 - r.IntN(3)
				before := b.peek(now, 0)
				if b.refund(now, list[n].charge) {
					given++
				} else {
					refused++
				}
				after := b.peek(now, 0)
				if after.Remaining < before.Remaining || after.Remaining > before.Remaining+1 || after.ResetAfter > before.ResetAfter {
					t.Fatalf("%+v: a refund makes of %+v: %+v", a, before, after)
				}
				list = append(list[:n], list[n+1:]...)
				continue
			}
			c, v := b.charge(now, algorithm.Request{Cost: 1, MaxWait: time.Duration(8000 * tt.one)})
			if !v.Allowed {
				continue
			}
			turn := now + v.Delay.Microseconds()
			for _, other := range list {
				if other.turn > turn || other.turn == turn && !together {
					t.Fatalf("%+v: a turn at %d, when another has it at %d", a, turn-epoch, other.turn-epoch)
				}
			}
			if v.Delay == 0 {
				turn = 0
			}
			list = append(list, taken{c, turn})
		}
		if given < 50 || refused < 50 {
			t.Errorf("%+v: only %d refunds gave anything back, and %d did not", a, given, refused)
		}
	}
}
