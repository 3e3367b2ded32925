package weir_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/storekey"
	"github.com/weir-go/weir/internal/test/weirtest"
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
	if many := l.DoMany(t.Context(), []weir.Request{{Key: weir.KeyOf(key...), Op: weir.Peek}}); many[0].Err != nil {
		t.Fatal(many[0].Err)
	}
	if !slices.Equal(peeked, st.keys) {
		t.Fatalf("Peek uses %q and DoMany %q", peeked, st.keys)
	}
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

var keyShape = regexp.MustCompile(`(?s)^[^{}:]+:[^{}:]+:\{[^{}]+\}:[^{}:]+(:[^{}]+)?$`)

// No input can collide with another or set the hash tag. Two requests or two rules have
// equal keys only if the segments that identify them are equal. All keys of one decision
// have the same slot.
func FuzzKeys(f *testing.F) {
	f.Add("a:b", "c", "d", "a", "b:c", "d", "weir", "x", "y")
	f.Add("{", "}", "%7B", "%257B", "{}", "}{", "{p}", "x:y", "x")
	f.Add(strings.Repeat("x", 129), digest(strings.Repeat("x", 129)), "c", "\xff", "\x00", " ", "%", ":", "::")
	f.Add("a", "b", "c", "a", "b", "c", "p", "x", "x.g2")
	empty := memory.New(nil)
	f.Fuzz(func(t *testing.T, a0, a1, a2, b0, b1, b2, prefix, name, other string) {
		ka, kb := []string{a0, a1, a2}, []string{b0, b1, b2}
		if slices.Contains(append(slices.Clone(ka), kb...), "") || name == "" || other == "" || name == other || len(name) > 128 || len(other) > 128 {
			return
		}
		for _, sets := range [][]string{{"all", "all"}, {"0", "02"}, {"02", "01"}, {"1", "all"}, {"012", "2"}} {
			p := by(3, sets...)
			p.Rules[0].Name, p.Rules[1].Name = name, other
			st := &recorder{Store: empty}
			l, err := weir.NewPolicy(st, p, &weir.Options{Prefix: prefix})
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range l.DoMany(t.Context(), []weir.Request{{Key: weir.KeyOf(ka...), Op: weir.Peek}, {Key: weir.KeyOf(kb...), Op: weir.Peek}}) {
				if a.Err != nil {
					t.Fatal(a.Err)
				}
			}
			checkKeys(t, sets, ka, kb, st.keys[:2], st.keys[2:])
		}
	})
}

// checkKeys checks sa and sb, the store's keys of ka and kb. sets are the segments in By
// of the two rules.
func checkKeys(t *testing.T, sets, ka, kb, sa, sb []string) {
	t.Helper()
	for i, key := range append(slices.Clone(sa), sb...) {
		if !keyShape.MatchString(key) {
			t.Fatalf("key %d is %q", i, key)
		}
	}
	for _, keys := range [][]string{sa, sb} {
		if store.Slot(keys[0]) != store.Slot(keys[1]) {
			t.Fatalf("%q and %q lie in two slots", keys[0], keys[1])
		}
		if keys[0] == keys[1] {
			t.Fatalf("two rules have one key %q", keys[0])
		}
	}
	for i, set := range sets {
		if set == "all" {
			set = "012"
		}
		same := true
		for _, n := range set {
			same = same && ka[n-'0'] == kb[n-'0']
		}
		if got := sa[i] == sb[i]; got != same {
			t.Fatalf("rule %d, keys %q and %q: %q and %q in the store", i, ka, kb, sa[i], sb[i])
		}
	}
	if sa[0] == sb[1] || sa[1] == sb[0] {
		t.Fatalf("two rules share a key: %q and %q", sa, sb)
	}
}

// The key of a marker is the key of its rule, followed by a hash of the whole key and the
// ID.
func TestMarkerKeys(t *testing.T) {
	t.Parallel()
	st := &recorder{Store: weirtest.NewStore(weirtest.NewClock())}
	p := by(2, "0", "all")
	p.Rules[0].Algorithm = weirtest.Window(500, time.Minute)
	p.Rules[1].Algorithm = weirtest.Window(500, time.Hour)
	l := weirtest.NewPolicy(t, st, p)
	seen := map[string]string{}
	shape := regexp.MustCompile(`^%id=[0-9a-f]{32}$`)
	for _, user := range []string{"u", "v", "u:x", "u:"} {
		for _, id := range []string{"x", "a:{b}%", "0", strings.Repeat("long", 100), "\x00", "u"} {
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("t", user), ID: id})
			decided := slices.Clone(st.keys)
			if len(decided) != 4 {
				t.Fatalf("keys %q, want two of rules and two of markers", decided)
			}
			for i, rule := range decided[:2] {
				rest, ok := strings.CutPrefix(decided[2+i], rule+":")
				if !ok || !shape.MatchString(rest) {
					t.Errorf("marker %q of the rule %q", decided[2+i], rule)
				}
			}
			if other := seen[decided[2]]; other != "" {
				t.Errorf("%q and %q share the marker %q", other, user+" "+id, decided[2])
			}
			seen[decided[2]] = user + " " + id
			if gave, err := l.Refund(t.Context(), weir.Request{Key: weir.KeyOf("t", user), ID: id}); !gave.Found || err != nil {
				t.Errorf("Refund of %q: got %v, %v", id, gave, err)
			}
			if !slices.Equal(st.keys, decided) {
				t.Errorf("ID %q: the refund uses %q, want %q", id, st.keys, decided)
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

// Segments returns what KeyOf was given, even if the key is invalid. Clone, Equal, Hash and Size
// are about the segments.
func TestKeyOf(t *testing.T) {
	seed := maphash.MakeSeed()
	for _, want := range [][]string{{"a"}, {"a", "", "c"}, {}, make([]string, weir.MaxSegments+1)} {
		k := weir.KeyOf(want...)
		c, size := k.Clone(), len(strings.Join(want, ""))
		if got := k.Segments(); !slices.Equal(got, want) || !k.Equal(&c) || k != c || k.Hash(seed) != c.Hash(seed) || k.Size() != size {
			t.Errorf("got %q of %d bytes, want %q", got, k.Size(), want)
		}
	}
	k := weir.KeyOf("a", "b")
	for _, other := range []weir.Key{weir.KeyOf("a"), weir.KeyOf("a", "c"), weir.KeyOf("b", "b"), weir.KeyOf("a", "b", "")} {
		if k.Equal(&other) || k.Hash(seed) == other.Hash(seed) && other.Segments()[len(other.Segments())-1] != "" {
			t.Errorf("%q and %q are alike", k.Segments(), other.Segments())
		}
	}
}
