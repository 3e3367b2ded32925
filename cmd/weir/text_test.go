package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestQuoted(t *testing.T) {
	for s, want := range map[string]string{
		"ann": "ann", "203.0.113.7": "203.0.113.7", "größe": "größe", "": `""`, "a b": `"a b"`,
		"\x1b[2J": `"\x1b[2J"`, "a\nb": `"a\nb"`, "\u202e": `"\u202e"`, "\xff": `"\xff"`, "\u009b1m": `"\u009b1m"`, `a"b`: `"a\"b"`,
	} {
		if got := quoted(s); got != want {
			t.Errorf("%q: got %s, want %s", s, got, want)
		}
	}
	if got := quotedAll([]string{"acme", "a n"}); got != `acme "a n"` {
		t.Errorf("got %s", got)
	}
}

// TestCleaner shows that nothing controls a terminal, and that JSON stays JSON with the
// same meaning.
func TestCleaner(t *testing.T) {
	hostile := "a\x1b[2J\u009b\u202eé\U000e0001\t\n\x7f"
	text, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 2, 1000} {
		var w strings.Builder
		c := &cleaner{w: &w}
		for rest := text; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if n, err := c.Write(rest[:min(size, len(rest))]); err != nil || n != min(size, len(rest)) {
				t.Fatal(n, err)
			}
		}
		if strings.ContainsAny(w.String(), "\x1b\u009b\u202e\U000e0001\x7f") {
			t.Errorf("got %q", w.String())
		}
		var got string
		if err := json.Unmarshal([]byte(w.String()), &got); err != nil || got != hostile {
			t.Errorf("got %q, %v", got, err)
		}
	}
	var w strings.Builder
	if _, _ = (&cleaner{w: &w}).Write([]byte("a\xffb")); w.String() != "a\ufffdb" {
		t.Errorf("got %q", w.String())
	}
}
