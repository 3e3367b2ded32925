package weir_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/storekey"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// keysOf returns the store's keys of a decision on key.
func keysOf(t testing.TB, p weir.Policy, prefix string, key ...string) []string {
	t.Helper()
	st := &recorder{Store: memory.New(nil)}
	l, err := weir.NewPolicy(st, p, &weir.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Peek(t.Context(), key...); err != nil {
		t.Fatal(err)
	}
	peeked := st.keys
	parts := l.Parts(key...)
	if len(parts) != len(peeked) { // a rule with several keys keeps no cell
		return peeked
	}
	for i, parts := range parts {
		for j, text := range peeked {
			if got, want := parts.Is(text, false), i == j; got != want {
				t.Errorf("%+v is %q: got %t, want %t", parts, text, got, want)
			}
		}
		parts.SetHash()
		if caller, hash := storekey.Hash(peeked[i]); parts.Caller() != caller || parts.Hash() != hash {
			t.Errorf("%+v and %q have different hashes", parts, peeked[i])
		}
	}
	return peeked
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "%sha256=" + hex.EncodeToString(sum[:])
}

// A key in the store is prefix:name:{shared segments}:rule.tag:other segments, escaped.
func TestKeys(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", weir.MaxSegment)
	secret := by(2, "0", "all")
	secret.Secret = []string{"1"}
	secretTag := by(2, "0", "all")
	secretTag.Secret = []string{"0"}
	named := func(name, rule string) weir.Policy {
		return weir.Policy{Name: name, Rules: []weir.Rule{{Name: rule, Algorithm: weirtest.PerSecond}}}
	}
	ring := func(p weir.Policy, n int, rules ...int) weir.Policy {
		for _, i := range rules {
			p.Rules[i].Algorithm = algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: time.Duration(n) * time.Second, Limit: 5}}}
		}
		return p
	}
	for _, tt := range []struct {
		name   string
		policy weir.Policy
		prefix string
		key    []string
		want   []string
	}{
		{"no name", named("t", ""), "", []string{"u"}, []string{"weir:t:{u}:g2"}},
		{"the example of the documentation", weir.Policy{Name: "login", Segments: []string{"ip", "account"}, Rules: []weir.Rule{
			{Name: "ip", By: []string{"ip"}, Algorithm: weirtest.PerSecond},
			{Name: "account", Algorithm: algorithm.SlidingLog{Limit: 5, Window: time.Minute}},
		}}, "", []string{"10.0.0.1", "ann"}, []string{"weir:login:{10.0.0.1}:ip.g2", "weir:login:{10.0.0.1}:account.l3:ann"}},
		{"two rules by all", by(2, "all", "all"), "", []string{"x", "y"}, []string{"weir:t:{x:y}:a.g2", "weir:t:{x:y}:b.g2"}},
		{"one rule by the second", by(2, "1"), "", []string{"x", "y"}, []string{"weir:t:{y}:a.g2"}},
		{"action, address and account", by(3, "0", "01", "02"), "auth", []string{"login", "ip", "user"},
			[]string{"auth:t:{login}:a.g2", "auth:t:{login}:b.g2:ip", "auth:t:{login}:c.g2:user"}},
		{"two segments in common", by(3, "01", "012"), "", []string{"x", "y", "z"}, []string{"weir:t:{x:y}:a.g2", "weir:t:{x:y}:b.g2:z"}},
		{"in any order", by(3, "20", "021"), "", []string{"x", "y", "z"}, []string{"weir:t:{x:z}:a.g2", "weir:t:{x:z}:b.g2:y"}},
		{"all eight", by(8, "all", "7"), "", strings.Split("abcdefgh", ""), []string{"weir:t:{h}:a.g2:a:b:c:d:e:f:g", "weir:t:{h}:b.g2"}},
		{"escaped", by(2, "0", "all"), "p:{%}", []string{"a:b%", "{c:d}"}, []string{"p%3A%7B%25%7D:t:{a:b%25}:a.g2", "p%3A%7B%25%7D:t:{a:b%25}:b.g2:%7Bc:d%7D"}},
		{"colons", by(5, "01", "012", "all"), "", []string{"a:b", "c:d", "e:f", "g:h", "i:j"},
			[]string{"weir:t:{a%3Ab:c:d}:a.g2", "weir:t:{a%3Ab:c:d}:b.g2:e:f", "weir:t:{a%3Ab:c:d}:c.g2:e%3Af:g%3Ah:i:j"}},
		{"escaped names", named("{n}:%", "{x}:%"), "", []string{"}"}, []string{"weir:%7Bn%7D%3A%25:{%7D}:%7Bx%7D%3A%25.g2"}},
		{"any bytes", by(1, "all"), "", []string{"\x00\xff é\n"}, []string{"weir:t:{\x00\xff é\n}:a.g2"}},
		{"the longest segment", by(1, "all"), "", []string{long}, []string{"weir:t:{" + long + "}:a.g2"}},
		{"a longer segment", by(2, "0", "all"), "", []string{long + "y", long + "z"},
			[]string{"weir:t:{" + digest(long+"y") + "}:a.g2", "weir:t:{" + digest(long+"y") + "}:b.g2:" + digest(long+"z")}},
		{"a longer segment to escape", by(1, "all"), "", []string{"{" + long}, []string{"weir:t:{" + digest("{"+long) + "}:a.g2"}},
		{"a longer prefix", by(1, "all"), long + "p", []string{"u"}, []string{digest(long+"p") + ":t:{u}:a.g2"}},
		{"what looks like a digest", by(1, "all"), "", []string{digest("u")}, []string{"weir:t:{%25" + digest("u")[1:] + "}:a.g2"}},
		{"a secret", secret, "", []string{"x", "s3cret"}, []string{"weir:t:{x}:a.g2", "weir:t:{x}:b.g2:" + digest("s3cret")}},
		{"a rule with several keys", ring(by(1, "all"), 2, 0), "", []string{"u"}, []string{"weir:t:{u}:a.b2:0", "weir:t:{u}:a.b2:1"}},
		{"among others", ring(ring(by(3, "0", "01", "0", "all"), 3, 1, 3), 1, 2), "", []string{"x", "y", "1"}, []string{
			"weir:t:{x}:a.g2", "weir:t:{x}:b.b2:y:0", "weir:t:{x}:b.b2:y:1", "weir:t:{x}:b.b2:y:2", "weir:t:{x}:c.b2",
			"weir:t:{x}:d.b2:y:1:0", "weir:t:{x}:d.b2:y:1:1", "weir:t:{x}:d.b2:y:1:2",
		}},
		{"a shared secret", secretTag, "", []string{"s3cret", "y"}, []string{"weir:t:{" + digest("s3cret") + "}:a.g2", "weir:t:{" + digest("s3cret") + "}:b.g2:y"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := keysOf(t, tt.policy, tt.prefix, tt.key...); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// The key of a marker is the key of its rule, followed by a hash of the whole key and the
// ID. Its last 8 digits also depend on the unit that the rule counts.
func TestMarkerKeys(t *testing.T) {
	t.Parallel()
	st := &recorder{Store: memory.New(nil)}
	p := by(2, "0", "all")
	p.Units = []string{"u", "v"}
	p.Rules = append(p.Rules, weir.Rule{Name: "u", Unit: "u", Algorithm: weirtest.PerSecond}, weir.Rule{Name: "v", Unit: "v", Algorithm: weirtest.PerSecond})
	l := weirtest.NewPolicy(t, st, p)
	seen := map[string]string{}
	shape := regexp.MustCompile(`^[0-9a-f]{32}$`)
	for i, user := range []string{"u", "v", "u:x", "u:"} {
		for _, id := range []string{"x", "a:{b}%", strings.Repeat("long", 100), "x:u"} {
			r := weir.Request{Key: weir.KeyOf(weirtest.Number(i), user), ID: id, Costs: weir.CostsOf(map[string]int64{"u": 0, "v": 0})}
			weirtest.Allow(t, l, r)
			decided := st.keys
			var ids []string
			for i, rule := range decided[:4] {
				id, ok := strings.CutPrefix(decided[4+i], rule+":%id=")
				if ids = append(ids, id); !ok || !shape.MatchString(id) || id[:24] != ids[0][:24] {
					t.Fatalf("got the keys %q", decided)
				}
			}
			if other := seen[ids[0]]; other != "" || ids[0] != ids[1] || ids[0] == ids[2] || ids[1] == ids[3] || ids[2] == ids[3] {
				t.Errorf("%s %s, %q: the markers are %q", user, id, other, ids)
			}
			seen[ids[0]] = user + " " + id
			if gave, err := l.Refund(t.Context(), r); !gave.Found || err != nil || !slices.Equal(st.keys, decided) {
				t.Errorf("Refund: got %v, %v, with %q, want %q", gave, err, st.keys, decided)
			}
		}
	}
}

// Every special byte is escaped at every place, among bytes that are alike, and no other
// is. Colons are escaped in all segments but the last.
func TestKeyEscapes(t *testing.T) {
	t.Parallel()
	escape := strings.NewReplacer("{", "%7B", "}", "%7D", "%", "%25")
	st := memory.New(nil)
	p := by(2, "all")
	p.Rules[0].Algorithm = algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1000}
	l, err := weir.NewPolicy(st, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for length := range 26 {
		for _, fill := range []byte{0, 'a', '$', '&', '9', ';', 'z', '|', '~', 0x80 | '{', 0xff} {
			for at := range length {
				for _, c := range []byte("{}:%a\x00\xff") {
					key := bytes.Repeat([]byte{fill}, length)
					key[at] = c
					weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf(string(key), string(key))})
					last := escape.Replace(string(key))
					want["weir:t:{"+strings.ReplaceAll(last, ":", "%3A")+":"+last+"}:a.g2"] = true
				}
			}
		}
	}
	if got := keysIn(st); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Errorf("got %d keys, want %d", len(got), len(want))
	}
}

// Segments returns what KeyOf was given, even if the key is invalid. Equal compares the segments.
func TestKeyOf(t *testing.T) {
	seed := maphash.MakeSeed()
	last := weir.KeyOf("a", "c")
	for _, want := range [][]string{{"a"}, {"a", "b"}, {"a", "", "c"}, {}, make([]string, weir.MaxSegments+1)} {
		k := weir.KeyOf(want...)
		c := k.Clone()
		if got := k.Segments(); !slices.Equal(got, want) || k != c || !k.Equal(&c) || k.Equal(&last) || k.Hash(seed) != c.Hash(seed) || k.Size() != len(strings.Join(want, "")) {
			t.Errorf("got %q of %d bytes, want %q", got, k.Size(), want)
		}
		last = k
	}
}

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
