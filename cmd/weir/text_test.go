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

// TestClean shows that nothing controls a terminal, and that JSON stays JSON with the
// same meaning.
func TestClean(t *testing.T) {
	hostile := "a\x1b[2J\u009b\u202eé\U000e0001\t\n\x7f"
	text, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	cleaned := clean(string(text))
	if strings.ContainsAny(cleaned, "\x1b\u009b\u202e\U000e0001\x7f") {
		t.Errorf("got %q", cleaned)
	}
	var got string
	if err := json.Unmarshal([]byte(cleaned), &got); err != nil || got != hostile {
		t.Errorf("got %q, %v", got, err)
	}
	if got := clean("a\xffb"); got != "a\ufffdb" {
		t.Errorf("got %q", got)
	}
}
