package weir_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// storePolicy has rules of one, two and three segments, a rule with several keys, a rule
// with a sorted set, and a shadow rule whose keys have another slot.
func storePolicy(secret ...string) weir.Policy {
	gcra := algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}
	return weir.Policy{
		Name: "a:p%{i}", Segments: []string{"tenant", "user", "ip"}, Secret: secret,
		Rules: []weir.Rule{
			{Name: "t", By: []string{"tenant"}, Algorithm: gcra},
			{Name: "t.g2", By: []string{"tenant", "user"}, Algorithm: gcra},
			{Name: "all", Algorithm: algorithm.SlidingLog{Limit: 5, Window: time.Minute}},
			{Name: "ring:", By: []string{"tenant", "ip"}, Algorithm: algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Limit: 9, Window: 4 * time.Second}}}},
			{Name: "shadow", By: []string{"user", "ip"}, Algorithm: gcra, Shadow: true},
		},
	}
}

var lookalike = "%sha256=" + strings.Repeat("5", 64)

// hostile returns a segment with characters that mean something in a key.
func hostile(r *rand.Rand) string {
	parts := []string{"a", ":", "{", "}", "%", "%3A", "%sha256=", lookalike, "%25" + lookalike[1:], "%2525" + lookalike[1:], "-", ".", "g2", ":%id=", "\x00", "\xff", "ü", "*", " ", ":0", strings.Repeat("f", 64), strings.Repeat("x", 130)}
	text := parts[r.IntN(len(parts))]
	for range r.IntN(4) {
		text += parts[r.IntN(len(parts))]
	}
	return text
}

// Every key that a decision writes is among StoreKeys, except for markers, and
// ParseStoreKey makes the rule and the segments of it. With that Key, a decision finds
// the same state.
func TestStoreKeysRoundTrip(t *testing.T) {
	t.Parallel()
	r, now := rand.New(rand.NewPCG(1, 2)), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, secret := range [][]string{nil, {"user"}, {"tenant", "ip"}} {
		st := memory.New(&memory.Options{Now: func() time.Time { return now }})
		policy := storePolicy(secret...)
		lim, err := weir.NewPolicy(st, policy, &weir.Options{Prefix: "p:{"})
		if err != nil {
			t.Fatal(err)
		}
		written := map[string]bool{}
		for range 300 {
			segments := []string{hostile(r), hostile(r), hostile(r)}
			k := weir.KeyOf(segments...)
			weirtest.Allow(t, lim, weir.Request{Key: k})
			lists, err := lim.StoreKeys(k)
			if err != nil || lim.Name() != policy.Name {
				t.Fatal(err, lim.Name())
			}
			for i, info := range lim.Rules() {
				if want := map[string]int{"ring:": 4}[info.Name]; len(lists[i]) != max(want, 1) {
					t.Fatalf("rule %q has %d keys", info.Name, len(lists[i]))
				}
				for _, stored := range lists[i] {
					written[stored] = true
					checkParsed(t, lim, info, stored, segments)
					for n := range len(segments) + 1 {
						if prefix := lim.StorePrefix(segments[:n]...); !info.Shadow && !strings.HasPrefix(stored, prefix) {
							t.Errorf("%q does not begin with %q", stored, prefix)
						}
					}
				}
				if slot := store.Slot(lists[0][0]); !info.Shadow && store.Slot(lists[i][0]) != slot {
					t.Errorf("%q and %q have different slots", lists[0][0], lists[i][0])
				}
			}
		}
		for key := range st.All() {
			if !written[key] {
				t.Errorf("a decision wrote %q, which is not among StoreKeys", key)
			}
			if !strings.HasPrefix(key, lim.StorePrefix()) {
				t.Errorf("%q does not begin with %q", key, lim.StorePrefix())
			}
		}
	}
}

// checkParsed checks what ParseStoreKey returns for a key of the rule info.
func checkParsed(t *testing.T, lim *weir.Limiter, info weir.RuleInfo, stored string, segments []string) {
	t.Helper()
	got, ok := lim.ParseStoreKey(stored)
	if !ok || got.Rule != info.Name || len(got.Segments) != len(info.By) {
		t.Fatalf("%q: got %+v, %v, want the rule %q", stored, got, ok, info.Name)
	}
	for i, s := range got.Segments {
		n := slices.IndexFunc(lim.Segments(), func(of weir.SegmentInfo) bool { return of.Name == info.By[i] })
		hashed := lim.Segments()[n].Secret || len(segments[n]) > weir.MaxSegment
		if s.Name != info.By[i] || s.Hashed != hashed || got.Key.Hashed(n) != hashed || !hashed && got.Key.Segments()[n] != segments[n] {
			t.Fatalf("%q: got segment %+v, want %q, hashed %v", stored, s, segments[n], hashed)
		}
		if hashed && (!strings.HasPrefix(s.Value, "%sha256=") || len(s.Value) != len("%sha256=")+64) {
			t.Fatalf("%q: the segment is %q, want a hash", stored, s.Value)
		}
	}
	only := weirtest.Only(t, lim, info.Name)
	want, res := weirtest.Left(t, only, segments...), weirtest.Decide(t, only, weir.Request{Key: got.Key, Op: weir.Peek})
	if res.Remaining != want.Remaining || res.Remaining == res.Limit {
		t.Fatalf("%q: with the parsed key %d of %d remain, and with the key %d", stored, res.Remaining, res.Limit, want.Remaining)
	}
	keys, err := only.StoreKeys(got.Key)
	if err != nil || !slices.Contains(keys[0], stored) {
		t.Fatalf("the keys of the parsed key are %q, %v, want %q", keys, err, stored)
	}
	shown := got.Key.Segments()
	for _, s := range got.Segments {
		shown[slices.IndexFunc(lim.Segments(), func(of weir.SegmentInfo) bool { return of.Name == s.Name })] = s.Value
	}
	if typed := weir.HashedKeyOf(shown...); typed != got.Key {
		t.Fatalf("%q: from the parsed segments, HashedKeyOf makes %+v, want %+v", stored, typed, got.Key)
	}
}

// A key that is not the state of a rule of the limiter is not parsed.
func TestParseForeignStoreKey(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	lim := weirtest.NewPolicy(t, st, weir.Policy{Name: "api", Segments: []string{"tenant", "user"}, Secret: []string{"user"}, Rules: []weir.Rule{
		{Name: "tenant", By: []string{"tenant"}, Algorithm: weirtest.PerSecond}, {Name: "user", Algorithm: weirtest.PerSecond},
	}})
	weirtest.Allow(t, lim, weir.Request{Key: weir.KeyOf("acme", "ann"), ID: "1"})
	parsed, markers := 0, 0
	for key := range st.All() {
		if _, ok := lim.ParseStoreKey(key); ok {
			parsed++
		} else if strings.Contains(key, "%id=") {
			markers++
		}
	}
	if parsed != 2 || markers != 2 {
		t.Errorf("of the keys of a decision with an ID, %d are parsed, and %d markers are not, want 2 and 2", parsed, markers)
	}
	hash := "%sha256=" + strings.Repeat("0", 64)
	for _, key := range []string{
		"weir:api:{acme}:user.g2:" + hash, "weir:api:{a:b%25}:tenant.g2",
	} {
		if _, ok := lim.ParseStoreKey(key); !ok {
			t.Errorf("%q is not parsed", key)
		}
	}
	for _, key := range []string{
		"", "weir:api:{", "weir:api:{}", "weir:api:{acme}", "weir:api:{acme}:", "weir:api:{acme}:tenant", "weir:api:{acme}:tenant.f2", "weir:api:{acme}:tenant.g22",
		"weir:api:{acme}:tenant.g2:", "weir:api:{acme}:tenant.g2:ann", "weir:api:{}:tenant.g2", "weir:api:{a%3Ab}:tenant.g2", "weir:api:{a%}:tenant.g2",
		"weir:api:{a%7b}:tenant.g2", "weir:api:{%41}:tenant.g2", "weir:api:{a%zz}:tenant.g2", "weir:other:{acme}:tenant.g2", "other:api:{acme}:tenant.g2",
		"weir:api:{acme}:user.g2:ann", "weir:api:{acme}:user.g2:" + strings.ToUpper(hash), "weir:api:{acme}:user.g2:" + hash + "0",
		"weir:api:{acme}:user.g2:" + hash + ":0", "weir:api:{acme}:user.g2", "weir:api:{" + strings.Repeat("a", 129) + "}:tenant.g2",
	} {
		if got, ok := lim.ParseStoreKey(key); ok {
			t.Errorf("%q is parsed as %+v", key, got)
		}
	}
}
