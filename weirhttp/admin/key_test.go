package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/explain"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/weirhttp/admin"
)

// hostile are segments that try to break out of a page, a URL or a form.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `</title><svg/onload=alert(1)>`, `{{.}}`, `javascript:alert(1)`,
	"a&key=b", "a=b;c#d?e%2Ff+g h", "%", "%zz", "..", "/", "//evil.example", `\`, `"quoted"`, " space ", "\t", "a\nb", "a\r\nb", "a\x00b", "a\x1b[31mb",
	"\u202egnp.exe", "\u2066x\u2069", "\u200b", "\ufeff", "\u0627\u0644\u0639", "e\u0301", "\xff", "a\xc3", "\xed\xa0\x80", "🦀", strings.Repeat("long", 200), "%sha256=" + strings.Repeat("0", 64),
}

// Every key that was denied has a link. The page behind it shows this key, and its button
// resets this key. A field of a form has what was typed.
func TestHostileKeys(t *testing.T) {
	for _, segment := range hostile {
		var top observe.TopDenied
		lim := weirtest.Wrap(t, newAPI(t, nil), top.Wrap)
		consume(t, lim, 11, "acme", segment)
		typed, name := segment, segment
		if strings.ContainsFunc(segment, unicode.IsControl) || !utf8.ValidString(segment) {
			typed, name = "", "api" // a browser would change it, so no field has it, and no limiter this name
		}
		page := newPage(t, admin.Limiter{Name: name, Limiter: lim, Denied: &top})
		pages := map[string]string{"overview": get(page, "", "").Body.String()}
		var query string
		for _, l := range links(pages["overview"]) {
			q := strings.TrimPrefix(l, "?")
			if values, err := url.ParseQuery(q); err == nil && values.Has("key") {
				query = q
			}
		}
		pages["limiter"] = get(page, url.Values{"limiter": {name}}.Encode(), "").Body.String()
		pages["key"] = get(page, query, "").Body.String()
		pages["error"] = get(page, query+"&key=", "").Body.String()
		for name, text := range pages {
			checkMarkup(t, segment, name, text)
		}
		if f := button(t, pages["key"], "Show this key"); f.method != "get" || !slices.Equal(f.values["key"], []string{"acme", typed}) {
			t.Errorf("%q: the form is %+v", segment, f)
		}
		var doc explain.Document
		if err := json.Unmarshal(get(page, query, "application/json").Body.Bytes(), &doc); err != nil {
			t.Fatalf("%q: %v", segment, err)
		}
		if got := doc.Key[1].Value; utf8.ValidString(segment) && len(segment) <= weir.MaxSegment && got != segment || doc.DeniedBy != "user" {
			t.Errorf("%q: the link leads to %q, denied by %q", segment, got, doc.DeniedBy)
		}
		if send(t, page, button(t, pages["key"], "Reset user").values); left(t, lim, "user", "acme", segment) != 10 {
			t.Errorf("%q: %d left after a reset", segment, left(t, lim, "user", "acme", segment))
		}
	}
}

// checkMarkup checks that a page has no tag or attribute of the segment, and no character
// that cannot be seen.
func checkMarkup(t *testing.T, segment, name, text string) {
	t.Helper()
	for _, bad := range []string{"<script", "<img", "<svg/", "onerror=alert(1)>", "' onmouseover='", `href="javascript`} {
		if strings.Contains(text, bad) {
			t.Errorf("%q: the page %s has %q:\n%s", segment, name, bad, text)
		}
	}
	if !utf8.ValidString(text) {
		t.Errorf("%q: the page %s is not UTF-8", segment, name)
	}
	for _, r := range text {
		// A field of a form can hold what was typed.
		if !unicode.IsGraphic(r) && r != '\n' && !strings.ContainsRune("\u202e\u2066\u2069\u200b\ufeff", r) || r == '\r' {
			t.Errorf("%q: the page %s has %q", segment, name, r)
			return
		}
	}
	visible := inputTag.ReplaceAllString(text, "")
	if i := strings.IndexFunc(visible, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' }); i >= 0 {
		t.Errorf("%q: the page %s shows %q", segment, name, visible[i:min(len(visible), i+10)])
	}
}

// A secret is in no page, in no URL, and in no answer to a program.
func TestSecret(t *testing.T) {
	const secret = "correct horse & battery"
	var top observe.TopDenied
	lim := weirtest.Wrap(t, newSecret(t, nil), top.Wrap)
	consume(t, lim, 6, "192.0.2.1", secret)
	page := newPage(t, admin.Limiter{Name: "log-in", Limiter: lim, Denied: &top})
	var texts []string
	see := func(query, accept string) string {
		t.Helper()
		w := get(page, query, accept)
		if w.Code != http.StatusOK {
			t.Errorf("%s: status %d:\n%s", query, w.Code, w.Body)
		}
		texts = append(texts, query, w.Body.String())
		return w.Body.String()
	}
	see("", "application/json")
	for _, l := range links(see("", "")) {
		if strings.Contains(l, "sealed=") {
			see(strings.TrimPrefix(l, "?"), "")
		}
	}
	f := button(t, see("limiter=log-in", ""), "Show this key")
	if f.method != "post" {
		t.Fatalf("the form is %+v", f)
	}
	f.values["key"] = []string{"192.0.2.1", secret} // typed
	to, text := send(t, page, f.values)
	see(to, "application/json")
	if !strings.Contains(text, "Denied by rule") || !strings.Contains(text, "%sha256=") {
		t.Errorf("the page does not show the key:\n%s", text)
	}
	query, reset := send(t, page, button(t, text, "Reset attempts").values)
	if left(t, lim, "attempts", "192.0.2.1", secret) != 5 || !strings.Contains(reset, "You have reset the rule attempts.") {
		t.Errorf("nothing was reset:\n%s", reset)
	}
	texts = append(texts, text, query, reset)
	for _, text := range texts {
		for _, clear := range []string{"correct", "battery"} {
			if strings.Contains(text, clear) {
				t.Errorf("the secret is in %s", text)
			}
		}
	}
	// A link is for this limiter of this process.
	two := newPage(t, admin.Limiter{Name: "log-in", Limiter: lim}, admin.Limiter{Name: "second", Limiter: lim})
	own, _ := send(t, two, f.values)
	for _, query := range []string{to, strings.Replace(own, "log-in", "second", 1)} {
		if w := get(two, query, ""); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "made by another process") {
			t.Errorf("%s: status %d:\n%s", query, w.Code, w.Body)
		}
	}
	// The page never takes a secret from a URL.
	w := get(page, url.Values{"limiter": {"log-in"}, "key": {"192.0.2.1", secret}}.Encode(), "")
	if text := w.Body.String(); w.Code != http.StatusBadRequest || !strings.Contains(text, "must not be in a URL") || strings.Contains(text, "battery") {
		t.Errorf("status %d:\n%s", w.Code, text)
	}
}

// A key with limits of its own is shown and reset under them.
func TestLimiterOfKey(t *testing.T) {
	lim := newAPI(t, nil)
	raised := weirtest.With(t, lim, weir.Rule{Name: "user", Algorithm: algorithm.FixedWindow{Limit: 50, Window: time.Hour}})
	var asked []weir.Key
	page := newPage(t, admin.Limiter{Name: "api", Limiter: lim, For: func(_ context.Context, key weir.Key) (*weir.Limiter, error) {
		asked = append(asked, key)
		switch key {
		case weir.KeyOf("acme", "ann"):
			return raised, nil
		case weir.KeyOf("acme", "eve"):
			return nil, errors.New("the database is away")
		}
		return nil, nil
	}})
	for user, want := range map[string]int64{"ann": 50, "bob": 10} {
		var doc explain.Document
		if err := json.Unmarshal(get(page, "limiter=api&key=acme&key="+user, "application/json").Body.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		if doc.Rules[1].Limit != want {
			t.Errorf("%s: the limit is %d, want %d", user, doc.Rules[1].Limit, want)
		}
	}
	if got := get(page, "limiter=api&key=acme&key=eve", ""); got.Code != http.StatusInternalServerError || !strings.Contains(got.Body.String(), "The database is away") {
		t.Errorf("got status %d for a key whose limits are not known:\n%s", got.Code, got.Body)
	}
	consume(t, raised, 20, "acme", "ann")
	asked = nil
	if got := post(page, url.Values{"limiter": {"api"}, "key": {"acme", "ann"}, "op": {"reset"}, "rule": {"user"}}); got.Code != http.StatusSeeOther || len(asked) != 1 {
		t.Errorf("reset: got status %d, and the limiter was asked for %d times", got.Code, len(asked))
	}
	if n := left(t, raised, "user", "acme", "ann"); n != 50 {
		t.Errorf("after a reset: %d left, want 50", n)
	}
}
