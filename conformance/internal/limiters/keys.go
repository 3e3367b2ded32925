package limiters

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
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/conformance/internal/suite"
)

// The checks of keys are about the names of limiters, a rule whose algorithm changes, secret
// segments, and the decisions that a refund can find.
var keyChecks = []suite.Check{
	of("Prefix", "a decision writes the documented keys, each with a TTL, and nothing else", checkPrefix),
	of("Names", "a limiter's name is part of its keys: limiters with different names share no state, limiters with the same name share all state", checkNames),
	of("Changed", "if the algorithm of a rule changes, its limit is full again, and the old keys do not change", checkChanged),
	of("Secret", "a secret segment is hashed in every key, and limits like any other segment", checkSecret),
	of("RefundKeys", "if two decisions have the same ID and different keys, each refund refunds its own decision", checkRefundKeys),
	of("RefundLimits", "a limiter with other limits recognizes, settles and refunds a decision, except in a rule that it cannot adjust", checkRefundLimits),
}

func checkPrefix(t *decisions.T) {
	t.Left()
	const year = 365 * 24 * time.Hour
	window, bucket := algorithm.FixedWindow{Limit: 9, Window: 2 * year}, algorithm.GCRA{Rate: algorithm.Rate{Count: 1, Period: 2 * year}, Burst: 5}
	l := t.Limiter(nil,
		weir.Rule{Name: "all", By: []string{"s0"}, Algorithm: window},
		weir.Rule{Name: "ip", By: []string{"s0", "s1"}, Algorithm: bucket},
		weir.Rule{Name: "user", By: []string{"s0", "s2"}, Algorithm: bucket})
	t.Allow(l, 1, "log{in}", "10.0.0.1", "a:b%")
	t.Peek(l, 1, "log{in}", "10.0.0.1", "a:b%")
	t.Reset(only(t, l, "ip"), "log{in}", "10.0.0.1", "a:b%")
	want := map[string]bool{
		t.Prefix + ":suite:{log%7Bin%7D}:all.f2":         true,
		t.Prefix + ":suite:{log%7Bin%7D}:user.g2:a:b%25": true,
	}
	// A limiter of one rule without a name.
	single := suite.Must[*weir.Limiter](t.T, "New")(weir.New("a b", t.Store, window, &weir.Options{Prefix: t.Prefix}))
	t.Allow(single, 1, "ann")
	want[t.Prefix+":a b:{ann}:f2"] = true
	got := t.Left()
	for key, ttl := range got {
		if !want[key] {
			t.Errorf("%q was written", key)
		}
		if ttl < year {
			t.Errorf("%q expires after %v (0 or less: never), want two years", key, ttl)
		}
	}
	if len(got) < len(want) {
		t.Errorf("got keys %v, want %v", got, want)
	}
}

func checkNames(t *decisions.T) {
	two := algorithm.FixedWindow{Limit: 2, Window: time.Minute}
	limiter := func(name string, rules ...weir.Rule) *weir.Limiter {
		return t.Policy(t.Store, decisions.NewClock(), weir.Policy{Name: name, Rules: rules})
	}
	for _, name := range []string{
		"n", "N", "n:", "n:n", "n%3An", "n:{k}", "{n}", "n:{k}:a.f2", " n", "n\x00", "1", "01", strings.Repeat("n", weir.MaxSegment),
	} {
		for _, rules := range [][]weir.Rule{{{Algorithm: two}}, {{Name: "a.f2", Algorithm: two}, {Name: "b", Algorithm: two}}} {
			for _, key := range []string{"k", "k}:a.f2"} {
				for i := range int64(3) {
					// Each request is made by a new limiter of that name.
					if res := t.Allow(limiter(name, rules...), 1, key); res.Allowed != (i < 2) || res.Remaining != max(1-i, 0) {
						t.Errorf("limiter %q with %d rules, key %q, request %d: got %+v, want 2 allowed", name, len(rules), key, i, res)
					}
				}
			}
		}
	}
}

// nines are algorithms of many kinds, with a limit of 9.
var nines = []algorithm.Algorithm{
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

func checkChanged(t *decisions.T) {
	for round := range int64(2) {
		for _, a := range nines {
			rules := []weir.Rule{{Name: "changes", Algorithm: a}, {Name: "stays", Algorithm: algorithm.FixedWindow{Limit: 1000, Window: time.Hour}}}
			req := weir.Request{Key: weir.KeyOf("changed")}
			if t.KindOf(a).Leases {
				req.ID = strconv.FormatInt(round, 10)
			}
			each := make([]weir.Result, 2)
			res := t.Do(t.Limiter(decisions.NewClock(), rules...), req, each...)
			want := each[0].Limit - 1 - round
			if _, queue := a.(algorithm.LeakyBucket); queue { // only the first request is allowed without MaxWait
				if res.Allowed != (round == 0) {
					t.Errorf("round %d, %T: got %+v, want the first request alone to be allowed", round, a, res)
				}
				continue
			}
			if !res.Allowed || each[0].Remaining != want {
				t.Errorf("round %d, %T in place of another algorithm: got %+v, want it allowed with %d left", round, a, each[0], want)
			}
		}
	}
}

func checkSecret(t *decisions.T) {
	secrets := []string{"sk-live-0123456789", "sk-live-0123456780", "sk:{live}%", strings.Repeat("sk-live-", 40), "%sha256=00"}
	a := algorithm.FixedWindow{Limit: 2, Window: time.Minute}
	c := decisions.NewClock()
	var asked suite.Written
	spy := suite.Note(t.Store, &asked)
	for _, by := range [][]string{{"account"}, {"account", "secret"}, {"secret"}} {
		name := "secret" + strconv.Itoa(len(by)) + by[0]
		l := t.Policy(spy, c, weir.Policy{
			Name: name, Segments: []string{"account", "secret"}, Secret: []string{"secret"},
			Rules: []weir.Rule{{Name: "a", By: by, Algorithm: a}, {Name: "b", Algorithm: decisions.TenPerMinute}},
		})
		for i, secret := range secrets {
			if by[0] == "account" && len(by) == 1 {
				c.Advance(time.Minute) // the first rule is shared
			}
			key := []string{"ann", secret}
			for j := range 3 {
				req := weir.Request{Key: weir.KeyOf(key...), ID: strconv.Itoa(j)}
				if res := t.Do(l, req); res.Allowed != (j < 2) {
					t.Errorf("secret %d by %v, request %d: got %+v, want 2 allowed", i, by, j, res)
				}
				hashed(t, asked.Keys, secret)
			}
			t.Peek(l, 1, key...)
			hashed(t, asked.Keys, secret)
			if answers := l.DoMany(t.Ctx, decisions.Peeks([][]string{key})); answers[0].Err != nil || answers[0].Result.Allowed {
				t.Errorf("DoMany: got %+v, want a denial", answers[0])
			}
			hashed(t, asked.Keys, secret)
			refundAs(t, l, "1", true, key...)
			hashed(t, asked.Keys, secret)
		}
	}
}

// hashed checks that no key contains secret, and that one contains its SHA-256. Then it
// clears the keys.
func hashed(t *decisions.T, keys map[string]bool, secret string) {
	sum := sha256.Sum256([]byte(secret))
	seen := false
	for key := range keys {
		if strings.Contains(key, secret) || strings.Contains(key, decisions.Escaper.Replace(secret)) {
			t.Errorf("the key %q shows the secret segment %.40q", key, secret)
		}
		seen = seen || strings.Contains(key, "%sha256="+hex.EncodeToString(sum[:]))
	}
	if !seen {
		t.Errorf("of the keys %.200q none has the SHA-256 of the segment %.40q", slices.Collect(maps.Keys(keys)), secret)
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

func checkRefundKeys(t *decisions.T) {
	c := decisions.NewClock()
	for i, tt := range refunded {
		a, tenant := tt.a, "twokeys"+strconv.Itoa(i)
		l := t.Limiter(c, weir.Rule{Name: "all", By: []string{"s0"}, Algorithm: a}, weir.Rule{Name: "user", Algorithm: a, By: []string{"s0", "s1"}})
		want := func(when string, all, u, v int64) {
			left, other := t.Remaining(l, weir.Peek, 1, tenant, "u"), t.Remaining(l, weir.Peek, 1, tenant, "v")
			if left != [4]int64{all, u} || other != [4]int64{all, v} {
				t.Errorf("%+v, %s: %v and %v are left of the tenant and its users, want %d, %d and %d", a, when, left, other, all, u, v)
			}
		}
		t.Do(l, weir.Request{Key: weir.KeyOf(tenant, "u"), Cost: 3, ID: "it"})
		t.Do(l, weir.Request{Key: weir.KeyOf(tenant, "v"), Cost: 5, ID: "it"})
		want("before", 12, 17, 15)
		refundAs(t, l, "it", false, tenant, "w")
		want("after the refund of an unknown decision", 12, 17, 15)
		refundAs(t, l, "it", true, tenant, "v")
		want("after the refund of v", 17, 17, 20)
		refundAs(t, l, "it", false, tenant, "v")
		want("after the second refund of v", 17, 17, 20)
		refundAs(t, l, "it", true, tenant, "u")
		want("after the refund of u", 20, 20, 20)
	}
}

func checkRefundLimits(t *decisions.T) {
	for i, tt := range refunded {
		a := tt.a
		l := t.Limiter(decisions.NewClock(), decisions.One(a), weir.Rule{Name: "two", Algorithm: decisions.TenPerMinute})
		left := func(l *weir.Limiter, rule int, key string) int64 { return t.Remaining(l, weir.Peek, 1, key)[rule] }
		for j, other := range []*weir.Limiter{
			t.With(l, decisions.One(tt.changed)),
			t.With(l, weir.Rule{Name: "two", Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(10), Burst: 50}}),
			t.With(l, weir.Rule{Name: "one", Algorithm: a, Cost: 1}),
		} {
			key := "limits" + strconv.Itoa(i) + "." + strconv.Itoa(j)
			r := weir.Request{Key: weir.KeyOf(key), Cost: 3, ID: "it"}
			before := left(other, 0, key)
			t.Do(l, r)
			after := left(other, 0, key)
			if got := t.Do(other, r); !got.Allowed || !got.Replayed || got.Granted != 3 || left(l, 1, key) != 2 {
				t.Errorf("%+v: a repeat under other limits: got %+v, and %d tokens left of rule two, want 2", a, got, left(l, 1, key))
			}
			got, err := other.Settle(t.Ctx, r, 1)
			if !got.Found || got.Cost != 1 || got.Kept != "" && got.Kept != "one" || err != nil || left(l, 1, key) != 4 {
				t.Errorf("%+v: a Settle at 1 under other limits: got %+v, %v, and %d tokens left of rule two, want 4", a, got, err, left(l, 1, key))
			}
			kept := got.Kept
			if kept != "" && left(other, 0, key) != after {
				t.Errorf("%+v: rule one is kept, and %d tokens are left of it, want %d as before the Settle", a, left(other, 0, key), after)
			}
			got, err = other.Refund(t.Ctx, r)
			want := weir.Settlement{Found: true, Kept: kept}
			if kept != "" && j != 2 {
				want.Cost = 3
			}
			if got != want || err != nil || left(l, 1, key) != 5 {
				t.Errorf("%+v: a Refund under other limits: got %+v, %v, and %d tokens left of rule two, want 5", a, got, err, left(l, 1, key))
			}
			if want := before; kept == "" && left(other, 0, key) != want {
				t.Errorf("%+v: after the refund, %d tokens are left of rule one, want %d", a, left(other, 0, key), want)
			}
			refundAs(t, l, "it", false, key)
		}
	}
	checkKept(t)
}

// checkKept refunds a decision whose tokens a reservation depends on.
func checkKept(t *decisions.T) {
	l := t.Limiter(decisions.NewClock(), decisions.One(algorithm.GCRA{Rate: algorithm.PerHour(5), Burst: 5}), weir.Rule{Name: "two", Algorithm: algorithm.FixedWindow{Limit: 20, Window: time.Hour}})
	one, r := only(t, l, "one"), weir.Request{Key: weir.KeyOf("kept"), Cost: 5, ID: "it"}
	t.Do(l, r)
	t.Do(one, weir.Request{Key: r.Key, Cost: 5, MaxWait: weir.Never})
	want := weir.Settlement{Found: true, Cost: 5, Kept: "one"}
	for range 2 {
		got, err := one.Refund(t.Ctx, r)
		settled, err2 := one.Settle(t.Ctx, r, 2)
		if again := t.Do(l, r); got != want || settled != want || err != nil || err2 != nil || !again.Replayed || again.Granted != 5 {
			t.Errorf("all tokens are reserved: a Refund got %+v, %v, a Settle %+v, %v, and a repeat %+v; want %+v, and a repeat", got, err, settled, err2, again, want)
		}
	}
	got, err := l.Refund(t.Ctx, r)
	if left := t.Remaining(l, weir.Peek, 1, "kept")[1]; got != want || err != nil || left != 20 {
		t.Errorf("a Refund to one of two rules: got %+v, %v, want %+v; %d tokens are left, want 20", got, err, want, left)
	}
	refundAs(t, l, "it", false, "kept")
}
