package conformance

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// This file holds the checks of keys: the names of limiters, a rule whose algorithm changes,
// secret segments, and the decisions that a refund can find.

var keyChecks = []check{
	{"Prefix", "a decision writes the documented keys, each with a TTL, and nothing else", limiterPrefix},
	{"Names", "a limiter's name is part of its keys: limiters with different names share no state, limiters with the same name share all state", limiterNames},
	{"Changed", "if the algorithm of a rule changes, its limit is full again, and the old keys do not change", limiterChanged},
	{"Secret", "a secret segment is hashed in every key, and limits like any other segment", limiterSecret},
	{"RefundKeys", "if two decisions have the same ID and different keys, each refund refunds its own decision", limiterRefundKeys},
	{"RefundLimits", "a limiter with other limits refunds nothing", limiterRefundLimits},
}

// left returns the keys that the check left in the store.
func (t *T) left() map[string]time.Duration {
	if t.backend.Keys == nil {
		t.skipf("backend gives no Keys")
	}
	return t.backend.Keys(t.test, t.hooked, t.id)
}

func limiterPrefix(t *T) {
	t.left()
	const year = 365 * 24 * time.Hour
	window, bucket := algorithm.FixedWindow{Limit: 9, Window: 2 * year}, algorithm.GCRA{Rate: algorithm.Rate{Count: 1, Period: 2 * year}, Burst: 5}
	l := t.limiter(nil,
		weir.Rule{Name: "all", By: []string{"s0"}, Algorithm: window},
		weir.Rule{Name: "ip", By: []string{"s0", "s1"}, Algorithm: bucket},
		weir.Rule{Name: "user", By: []string{"s0", "s2"}, Algorithm: bucket})
	t.allow(l, 1, "log{in}", "10.0.0.1", "a:b%")
	t.peek(l, 1, "log{in}", "10.0.0.1", "a:b%")
	t.reset(t.only(l, "ip"), "log{in}", "10.0.0.1", "a:b%")
	want := map[string]bool{
		t.id + ":suite:{log%7Bin%7D}:all.f2":           true,
		t.id + ":suite:{log%7Bin%7D}:user.g2:a%3Ab%25": true,
	}
	// A limiter of one rule without a name.
	single := must[*weir.Limiter](t, "New")(weir.New("a b", t.store, window, &weir.Options{Prefix: t.id}))
	t.allow(single, 1, "ann")
	want[t.id+":a b:{ann}:f2"] = true
	got := t.left()
	for key, ttl := range got {
		if !want[key] {
			t.errorf("%q was written", key)
		}
		if ttl < year {
			t.errorf("%q expires after %v (0 or less: never), want two years", key, ttl)
		}
	}
	if len(got) < len(want) {
		t.errorf("got keys %v, want %v", got, want)
	}
}

func limiterNames(t *T) {
	c := newClock()
	two := algorithm.FixedWindow{Limit: 2, Window: time.Minute}
	limiter := func(name string, rules ...weir.Rule) *weir.Limiter {
		return t.policy(t.store, c, weir.Policy{Name: name, Rules: rules})
	}
	for _, name := range []string{
		"n", "N", "n:", "n:n", "n%3An", "n:{k}", "{n}", "n:{k}:a.f2", " n", "n\x00", "1", "01", strings.Repeat("n", weir.MaxSegment),
	} {
		for _, rules := range [][]weir.Rule{{{Algorithm: two}}, {{Name: "a.f2", Algorithm: two}, {Name: "b", Algorithm: two}}} {
			for _, key := range []string{"k", "k}:a.f2"} {
				for i := range int64(3) {
					// Each request is made by a new limiter of that name.
					if res := t.allow(limiter(name, rules...), 1, key); res.Allowed != (i < 2) || res.Remaining != max(1-i, 0) {
						t.errorf("limiter %q with %d rules, key %q, request %d: got %+v, want 2 allowed", name, len(rules), key, i, res)
					}
				}
			}
		}
	}
}

func limiterChanged(t *T) {
	c := newClock()
	list := []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerHour(9), Burst: 9},
		algorithm.FixedWindow{Limit: 9, Window: time.Hour},
		algorithm.SlidingCounter{Limit: 9, Window: time.Hour},
		algorithm.TokenBucket{Capacity: 9, Refill: algorithm.PerHour(9)},
		algorithm.SlidingLog{Limit: 9, Window: time.Hour},
		algorithm.MetadataWindow{Limit: 9, Window: time.Hour},
		ringOf(4*time.Hour, 9),
		algorithm.LeakyBucket{Rate: algorithm.PerHour(9), Queue: 8},
		algorithm.Concurrency{Limit: 9, Lease: time.Hour},
	}
	for round := range int64(2) {
		for _, a := range list {
			rules := []weir.Rule{{Name: "changes", Algorithm: a}, {Name: "stays", Algorithm: algorithm.FixedWindow{Limit: 1000, Window: time.Hour}}}
			req := weir.Request{Key: weir.KeyOf("changed")}
			if t.kindOf(a).Leases {
				req.ID = strconv.FormatInt(round, 10)
			}
			each := make([]weir.Result, 2)
			res := t.do(t.limiter(c, rules...), req, each...)
			want := each[0].Limit - 1 - round
			if _, queue := a.(algorithm.LeakyBucket); queue { // only the first request is allowed without MaxWait
				if res.Allowed != (round == 0) {
					t.errorf("round %d, %T: got %+v, want the first request alone to be allowed", round, a, res)
				}
				continue
			}
			if !res.Allowed || each[0].Remaining != want {
				t.errorf("round %d, %T in place of another algorithm: got %+v, want it allowed with %d left", round, a, each[0], want)
			}
		}
	}
}

func limiterSecret(t *T) {
	secrets := []string{"sk-live-0123456789", "sk-live-0123456780", "sk:{live}%", strings.Repeat("sk-live-", 40), "%sha256=00"}
	a := algorithm.FixedWindow{Limit: 2, Window: time.Minute}
	c := newClock()
	var asked written
	spy := &noting{t.store, &asked}
	for _, by := range [][]string{{"account"}, {"account", "secret"}, {"secret"}} {
		name := "secret" + strconv.Itoa(len(by)) + by[0]
		l := t.policy(spy, c, weir.Policy{
			Name: name, Segments: []string{"account", "secret"}, Secret: []string{"secret"},
			Rules: t.wrapped([]weir.Rule{{Name: "a", By: by, Algorithm: a}, {Name: "b", Algorithm: tenPerMinute}}),
		})
		for i, secret := range secrets {
			if by[0] == "account" && len(by) == 1 {
				c.advance(time.Minute) // the first rule is shared
			}
			key := []string{"ann", secret}
			for j := range 3 {
				req := weir.Request{Key: weir.KeyOf(key...), ID: strconv.Itoa(j)}
				if res := t.do(l, req); res.Allowed != (j < 2) {
					t.errorf("secret %d by %v, request %d: got %+v, want 2 allowed", i, by, j, res)
				}
				t.hashed(asked.keys, secret)
			}
			t.peek(l, 1, key...)
			t.hashed(asked.keys, secret)
			if answers := l.DoMany(t.ctx, peeks([][]string{key})); answers[0].Err != nil || answers[0].Result.Allowed {
				t.errorf("DoMany: got %+v, want a denial", answers[0])
			}
			t.hashed(asked.keys, secret)
			t.refundAs(l, "1", true, key...)
			t.hashed(asked.keys, secret)
		}
	}
}

// hashed checks that no key contains secret, and that one contains its SHA-256. Then it
// clears the keys.
func (t *T) hashed(keys map[string]bool, secret string) {
	sum := sha256.Sum256([]byte(secret))
	seen := false
	for key := range keys {
		if strings.Contains(key, secret) || strings.Contains(key, escaper.Replace(secret)) {
			t.errorf("the key %q shows the secret segment %.40q", key, secret)
		}
		seen = seen || strings.Contains(key, "%sha256="+hex.EncodeToString(sum[:]))
	}
	if !seen {
		t.errorf("of the keys %.200q none has the SHA-256 of the segment %.40q", slices.Collect(maps.Keys(keys)), secret)
	}
	clear(keys)
}

// refunded are algorithms that support Refund, have a limit of 20, and refill slowly. Each
// is changed to another limit of the same algorithm.
var refunded = []struct{ a, changed algorithm.Algorithm }{
	{algorithm.GCRA{Rate: algorithm.PerHour(20), Burst: 20}, algorithm.GCRA{Rate: algorithm.PerHour(40), Burst: 20}},
	{algorithm.GCRA{Rate: algorithm.PerHour(11), Burst: 20}, algorithm.GCRA{Rate: algorithm.PerHour(13), Burst: 30}}, // a fraction of a microsecond
	{algorithm.FixedWindow{Limit: 20, Window: time.Hour}, algorithm.FixedWindow{Limit: 21, Window: time.Hour}},
	{algorithm.FixedWindow{Limit: 20, Window: time.Hour, Aligned: true}, algorithm.FixedWindow{Limit: 20, Window: time.Minute, Aligned: true}},
	{algorithm.SlidingCounter{Limit: 20, Window: time.Hour}, algorithm.SlidingCounter{Limit: 40, Window: time.Hour}},
	{algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerHour(20)}, algorithm.TokenBucket{Capacity: 40, Refill: algorithm.PerHour(20)}},
	{algorithm.SlidingLog{Limit: 20, Window: time.Hour}, algorithm.SlidingLog{Limit: 20, Window: 2 * time.Hour}},
	{ringOf(time.Hour, 20), ringOf(time.Hour, 30)},
}

// ringOf returns a SlidingBuckets with one span, of four buckets.
func ringOf(window time.Duration, limit int64) algorithm.SlidingBuckets {
	return algorithm.SlidingBuckets{Width: window / 4, Spans: []algorithm.Span{{Window: window, Limit: limit}}}
}

func limiterRefundKeys(t *T) {
	c := newClock()
	for i, tt := range refunded {
		a, tenant := tt.a, "twokeys"+strconv.Itoa(i)
		l := t.limiter(c, weir.Rule{Name: "all", By: []string{"s0"}, Algorithm: a}, weir.Rule{Name: "user", Algorithm: a, By: []string{"s0", "s1"}})
		want := func(when string, all, u, v int64) {
			left, other := t.remaining(l, weir.Peek, 1, tenant, "u"), t.remaining(l, weir.Peek, 1, tenant, "v")
			if left != [4]int64{all, u} || other != [4]int64{all, v} {
				t.errorf("%+v, %s: %v and %v are left of the tenant and its users, want %d, %d and %d", a, when, left, other, all, u, v)
			}
		}
		t.do(l, weir.Request{Key: weir.KeyOf(tenant, "u"), Cost: 3, ID: "it"})
		t.do(l, weir.Request{Key: weir.KeyOf(tenant, "v"), Cost: 5, ID: "it"})
		want("before", 12, 17, 15)
		t.refundAs(l, "it", false, tenant, "w")
		want("after the refund of an unknown decision", 12, 17, 15)
		t.refundAs(l, "it", true, tenant, "v")
		want("after the refund of v", 17, 17, 20)
		t.refundAs(l, "it", false, tenant, "v")
		want("after the second refund of v", 17, 17, 20)
		t.refundAs(l, "it", true, tenant, "u")
		want("after the refund of u", 20, 20, 20)
	}
}

func limiterRefundLimits(t *T) {
	c := newClock()
	for i, tt := range refunded {
		a := tt.a
		l := t.limiter(c, one(a), weir.Rule{Name: "two", Algorithm: tenPerMinute})
		for j, other := range []*weir.Limiter{
			t.with(l, one(tt.changed)),
			t.with(l, weir.Rule{Name: "two", Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(10), Burst: 50}}),
			t.with(l, weir.Rule{Name: "one", Algorithm: a, Cost: 1}),
		} {
			key := "limits" + strconv.Itoa(i) + "." + strconv.Itoa(j)
			t.do(l, weir.Request{Key: weir.KeyOf(key), Cost: 2, ID: "it"})
			before, under := t.peek(l, 1, key), t.peek(other, 1, key)
			t.refundAs(other, "it", false, key)
			if got, now := t.peek(l, 1, key), t.peek(other, 1, key); got != before || now != under {
				t.errorf("%+v: a refund with other limits changed\n     %+v\nto   %+v,\nand with the other limits\n     %+v\nto   %+v", a, before, got, under, now)
			}
			t.refundAs(l, "it", true, key)
			if got := t.peek(l, 1, key); got.Remaining != 5 {
				t.errorf("%+v: after the refund: got %+v, want 5 left", a, got)
			}
		}
	}
}
