package limiters

import (
	"errors"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/store"
)

// kinds returns algorithms of many kinds, with a limit of n.
func kinds(n int64) []algorithm.Algorithm {
	return []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerHour(9), Burst: n},
		algorithm.FixedWindow{Limit: n, Window: time.Hour},
		algorithm.Calendar{Limit: n, Every: algorithm.Day},
		algorithm.SlidingCounter{Limit: n, Window: time.Hour},
		algorithm.TokenBucket{Capacity: n, Refill: algorithm.PerHour(9)},
		algorithm.TokenBucket{Capacity: n, Refill: algorithm.PerHour(3), AtOnce: true},
		algorithm.SlidingLog{Limit: n, Window: time.Hour},
		algorithm.MetadataWindow{Limit: n, Window: time.Hour},
		ringOf(4*time.Hour, n),
		algorithm.LeakyBucket{Rate: algorithm.PerHour(9), Queue: n - 1},
		algorithm.Concurrency{Limit: n, Lease: time.Hour},
	}
}

// ringOf returns a SlidingBuckets with one span, of four buckets.
func ringOf(window time.Duration, limit int64) algorithm.SlidingBuckets {
	return algorithm.SlidingBuckets{Width: window / 4, Spans: []algorithm.Span{{Window: window, Limit: limit}}}
}

// checkWrites makes calls that change nothing, on missing keys and on others. What they
// write can be no key: a row without a value, or a commit.
func checkWrites(t *decisions.T) {
	t.Writes() // or the check is skipped
	c := decisions.NewClock()
	gate := weir.Rule{Name: "gate", Algorithm: algorithm.FixedWindow{Limit: 1, Window: time.Hour}}
	for i, a := range kinds(9) {
		name := "writes" + strconv.Itoa(i)
		t.Leases = t.KindOf(a).Leases
		own, first, last := t.Limiter(c, decisions.One(a)), t.Limiter(c, decisions.One(a), gate), t.Limiter(c, gate, decisions.One(a))
		before := t.Writes()
		t.Do(t.Limiter(c, gate), weir.Request{Key: weir.KeyOf(name), ID: "gate"})
		if after := t.Writes(); after <= before {
			t.Fatalf("Backend.Writes returned %d, then a request was allowed, and then Backend.Writes returned %d: it must grow with each write", before, after)
		}
		r := weir.Request{Key: weir.KeyOf(name)}
		idle(t, a, "a request that the second rule denies, and whose first rule has no key yet", r, first)
		idle(t, a, "a request that the first rule denies, and whose second rule has no key yet", r, last)
		used := weir.Request{Key: weir.KeyOf(name + "used")}
		for n := 0; t.Do(own, used).Allowed; n++ {
			if n == 20 {
				t.Fatalf("%T: 20 requests of a limit of 9 are allowed", a)
			}
		}
		idle(t, a, "a request that its only rule denies", used, own)
		t.Put(t.KeyOf(name+"foreign", "one", a), 1)
		idle(t, a, "a request to a key with a foreign value", weir.Request{Key: weir.KeyOf(name + "foreign")}, last)
	}
}

// idle checks that r, which is not allowed, and requests like it write nothing: a Peek,
// one for a part of the tokens, one with an ID, and all of them in a batch. Something
// else can write to the database meanwhile, so there are several tries.
func idle(t *decisions.T, a algorithm.Algorithm, what string, r weir.Request, l *weir.Limiter) {
	named, peek, part := r, r, r
	named.ID, peek.Op, part.Op = "denied", weir.Peek, weir.TakeUpTo
	list := []weir.Request{named, peek}
	if !t.Leases {
		list = append(list, r, part)
	}
	for try := 1; ; try++ {
		before := t.Writes()
		answers := l.DoMany(t.Ctx, list)
		for _, r := range list {
			res, err := l.Decide(t.Ctx, r, nil)
			answers = append(answers, weir.Answer{Result: res, Err: err})
		}
		after := t.Writes()
		for _, answer := range answers {
			if unsupported := errors.Is(answer.Err, weir.ErrUnsupported); answer.Result.Allowed || answer.Err != nil && !unsupported && !errors.Is(answer.Err, store.ErrForeign) {
				t.Fatalf("%+v, %s: got %+v, want a denial or an ErrForeign", a, what, answer)
			}
		}
		switch {
		case after == before:
			return
		case try == 5:
			t.Fatalf("%+v, %s, %d times in other ways, half of them in a batch: Backend.Writes returned %d before and %d after, and grew in each of %d tries: want nothing to be written", a, what, len(answers), before, after, try)
		}
	}
}
