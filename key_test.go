package weir_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// keysOf returns the keys that a decision for path uses, one for each rule.
func keysOf(t testing.TB, rules []weir.Rule, prefix string, path ...string) []string {
	t.Helper()
	st := &recorder{Store: memory.New(nil)}
	l := mustNew(t, st, rules, &weir.Options{Prefix: prefix})
	if _, err := l.Peek(t.Context(), path...); err != nil {
		t.Fatal(err)
	}
	peeked := st.keys
	if _, err := l.PeekMany(t.Context(), [][]string{path}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(peeked, st.keys) {
		t.Fatalf("Peek uses %q and PeekMany %q", peeked, st.keys)
	}
	return peeked
}

// by returns rules named a, b, c … that are by those segments.
func by(sets ...[]int) []weir.Rule {
	var rules []weir.Rule
	for i, set := range sets {
		rules = append(rules, weir.Rule{Name: string(rune('a' + i)), By: set, Algorithm: perSecond})
	}
	return rules
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "%sha256=" + hex.EncodeToString(sum[:])
}

func TestKeys(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", weir.MaxSegment)
	for _, tt := range []struct {
		name   string
		rules  []weir.Rule
		prefix string
		path   []string
		want   []string
	}{
		{"one rule by all", by(nil), "", []string{"user"}, []string{"weir:{user}:a"}},
		{"one rule by all of three", by(nil), "", []string{"login", "ip", "user"}, []string{"weir:{login:ip:user}:a"}},
		{"named like its algorithm", []weir.Rule{{Algorithm: perSecond}}, "", []string{"user"}, []string{"weir:{user}:gcra"}},
		{"two rules by all", by(nil, nil), "", []string{"x", "y"}, []string{"weir:{x:y}:a", "weir:{x:y}:b"}},
		{"one rule by the first", by([]int{0}), "", []string{"x"}, []string{"weir:{x}:a"}},
		{"one rule by the second", by([]int{1}), "", []string{"x", "y"}, []string{"weir:{y}:a"}},
		{"action, address and account", by([]int{0}, []int{0, 1}, []int{0, 2}), "auth", []string{"login", "ip", "user"},
			[]string{"auth:{login}:a", "auth:{login}:b:ip", "auth:{login}:c:user"}},
		{"two segments in common", by([]int{0, 1}, []int{0, 1, 2}), "", []string{"t", "u", "e"}, []string{"weir:{t:u}:a", "weir:{t:u}:b:e"}},
		{"in any order", by([]int{2, 0}, []int{0, 2, 1}), "", []string{"x", "y", "z"}, []string{"weir:{x:z}:a", "weir:{x:z}:b:y"}},
		{"all beside some", by([]int{1}, nil), "", []string{"x", "y"}, []string{"weir:{y}:a", "weir:{y}:b:x"}},
		{"all beside some, a longer path", by([]int{1}, nil), "", []string{"x", "y", "z", "w"}, []string{"weir:{y}:a", "weir:{y}:b:x:z:w"}},
		{"escaped", by([]int{0}, nil), "p:{%}", []string{"a:b", "{c}"}, []string{"p%3A%7B%25%7D:{a%3Ab}:a", "p%3A%7B%25%7D:{a%3Ab}:b:%7Bc%7D"}},
		{"an escaped name", []weir.Rule{{Name: "{x}:%", Algorithm: perSecond}}, "", []string{"}"}, []string{"weir:{%7D}:%7Bx%7D%3A%25"}},
		{"any bytes", by(nil), "", []string{"\x00\xff é\n"}, []string{"weir:{\x00\xff é\n}:a"}},
		{"longest segment", by(nil), "", []string{long}, []string{"weir:{" + long + "}:a"}},
		{"too long a segment", by([]int{0}, nil), "", []string{long + "y", long + "z"},
			[]string{"weir:{" + digest(long+"y") + "}:a", "weir:{" + digest(long+"y") + "}:b:" + digest(long+"z")}},
		{"too long a segment to escape", by(nil), "", []string{"{" + long}, []string{"weir:{" + digest("{"+long) + "}:a"}},
		{"too long a prefix and name", []weir.Rule{{Name: long + "n", Algorithm: perSecond}}, long + "p", []string{"u"},
			[]string{digest(long+"p") + ":{u}:" + digest(long+"n")}},
		{"what looks like a digest", by(nil), "", []string{digest("u")}, []string{"weir:{%25" + digest("u")[1:] + "}:a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := keysOf(t, tt.rules, tt.prefix, tt.path...); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

var keyShape = regexp.MustCompile(`(?s)^[^{}:]+:\{[^{}]+\}:[^{}:]+(:[^{}:]+)*$`)

// No input chooses its slot or meets the key of another: the keys of two paths or two
// rules are equal only if the segments that identify them are, and all keys of one decision
// lie in one slot.
func FuzzKeys(f *testing.F) {
	f.Add("a:b", "c", "d", "a", "b:c", "d", "weir", "x", "y")
	f.Add("{", "}", "%7B", "%257B", "{}", "}{", "{p}", "x:y", "x")
	f.Add(strings.Repeat("x", 129), digest(strings.Repeat("x", 129)), "c", "\xff", "\x00", " ", "%", ":", "::")
	empty := memory.New(nil)
	f.Fuzz(func(t *testing.T, a0, a1, a2, b0, b1, b2, prefix, name, other string) {
		pa, pb := []string{a0, a1, a2}, []string{b0, b1, b2}
		if slices.Contains(append(slices.Clone(pa), pb...), "") || name == "" || other == "" || name == other {
			return
		}
		for _, sets := range [][][]int{{nil, nil}, {{0}, {0, 2}}, {{0, 2}, {0, 1}}, {{1}, nil}, {{0, 1, 2}, {2}}} {
			rules := by(sets...)
			rules[0].Name, rules[1].Name = name, other
			st := &recorder{Store: empty}
			l := mustNew(t, st, rules, &weir.Options{Prefix: prefix})
			if _, err := l.PeekMany(t.Context(), [][]string{pa, pb}); err != nil {
				t.Fatal(err)
			}
			ka, kb := st.keys[:2], st.keys[2:]
			for i, key := range append(slices.Clone(ka), kb...) {
				if !keyShape.MatchString(key) {
					t.Fatalf("key %d is %q", i, key)
				}
			}
			for _, keys := range [][]string{ka, kb} {
				if store.Slot(keys[0]) != store.Slot(keys[1]) {
					t.Fatalf("%q and %q lie in two slots", keys[0], keys[1])
				}
				if keys[0] == keys[1] {
					t.Fatalf("two rules have one key %q", keys[0])
				}
			}
			for i, set := range sets {
				if set == nil {
					set = []int{0, 1, 2}
				}
				same := true
				for _, n := range set {
					same = same && pa[n] == pb[n]
				}
				if got := ka[i] == kb[i]; got != same {
					t.Fatalf("rule %d, paths %q and %q: keys %q and %q", i, pa, pb, ka[i], kb[i])
				}
			}
			if ka[0] == kb[1] || ka[1] == kb[0] {
				t.Fatalf("rules meet: %q and %q", ka, kb)
			}
		}
		// Paths of different lengths never meet either.
		short, long := keysOf(t, by(nil), prefix, a0, a1), keysOf(t, by(nil), prefix, b0, b1, b2)
		if short[0] == long[0] {
			t.Fatalf("paths %q and %q have one key %q", pa[:2], pb, short[0])
		}
	})
}

// Limiters of two prefixes share nothing, and of one prefix, the rules of one name.
func TestPrefix(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	limit := func(prefix, name string) *weir.Limiter {
		return mustNew(t, st, []weir.Rule{{Name: name, Algorithm: perSecond}}, &weir.Options{Prefix: prefix})
	}
	for i, tt := range []struct {
		prefix, name string
		want         int64
	}{
		{"p", "a", 4}, {"q", "a", 4}, {"p", "b", 4}, {"p", "a", 3}, {"", "a", 4}, {weir.DefaultPrefix, "a", 3}, {"p:{u}", "a", 4},
	} {
		res, err := limit(tt.prefix, tt.name).Allow(t.Context(), "u")
		if err != nil || res.Remaining != tt.want {
			t.Errorf("step %d, %s: got %+v, %v, want %d left", i, fmt.Sprint(tt), res, err, tt.want)
		}
	}
}

// A rule with several keys has a number behind each, and rules around it keep theirs.
func TestKeysOfRing(t *testing.T) {
	t.Parallel()
	ring := algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: 3 * time.Second, Limit: 5}}}
	one := algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: time.Second, Limit: 5}}}
	rules := []weir.Rule{
		{Name: "a", By: []int{0}, Algorithm: perSecond},
		{Name: "b", By: []int{0, 1}, Algorithm: ring},
		{Name: "c", By: []int{0}, Algorithm: one},
		{Name: "d", Algorithm: ring},
	}
	want := []string{
		"weir:{x}:a", "weir:{x}:b:y:0", "weir:{x}:b:y:1", "weir:{x}:b:y:2", "weir:{x}:c", "weir:{x}:d:y:1:0", "weir:{x}:d:y:1:1", "weir:{x}:d:y:1:2",
	}
	if got := keysOf(t, rules, "", "x", "y", "1"); !slices.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}

	// No path has a key of another's.
	seen := map[string]string{}
	for _, path := range [][]string{{"x", "y"}, {"x", "y", "0"}, {"x", "y", "0", "0"}, {"x", "y:0"}, {"x", "y", "1"}, {"x", "1", "0"}, {"x", "1"}} {
		for _, key := range keysOf(t, rules[3:], "", path...) {
			if other, ok := seen[key]; ok {
				t.Errorf("%q and %q share %q", path, other, key)
			}
			seen[key] = strings.Join(path, " ")
		}
	}

	st := newStore(newClock())
	l := mustNew(t, st, rules, nil)
	if _, err := l.Allow(t.Context(), "x", "y", "1"); err != nil {
		t.Fatal(err)
	}
	if err := l.ResetRule(t.Context(), "d", "x", "y", "1"); err != nil {
		t.Fatal(err)
	}
	if got := dump(t, st); len(got) != 3 {
		t.Errorf("after a reset of one of four rules: %q", got)
	}
}
