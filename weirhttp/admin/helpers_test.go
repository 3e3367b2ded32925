package admin_test

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp/admin"
)

// newAPI returns a limiter with a rule for tenants, a rule for users and a shadow rule.
func newAPI(t *testing.T, st store.Store) *weir.Limiter {
	t.Helper()
	return newPolicy(t, st, weir.Policy{Name: "api", Segments: []string{"tenant", "user"}, Rules: []weir.Rule{
		{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 100}},
		{Name: "user", Algorithm: algorithm.FixedWindow{Limit: 10, Window: time.Hour}},
		{Name: "tight", Shadow: true, Algorithm: algorithm.SlidingLog{Limit: 2, Window: time.Hour}},
	}})
}

// newSecret returns a limiter whose keys have an address and a secret token.
func newSecret(t *testing.T, st store.Store) *weir.Limiter {
	t.Helper()
	return newPolicy(t, st, weir.Policy{
		Name: "log-in", Segments: []string{"ip", "token"}, Secret: []string{"token"},
		Rules: []weir.Rule{{Name: "attempts", Algorithm: algorithm.FixedWindow{Limit: 5, Window: time.Hour}}},
	})
}

func newPolicy(t *testing.T, st store.Store, p weir.Policy) *weir.Limiter {
	t.Helper()
	if st == nil {
		st = memory.New(nil)
	}
	return weirtest.NewPolicy(t, st, p)
}

// newPage returns the page of limiters. It checks that every answer has the headers that keep scripts,
// frames and caches away, and that all its links are relative, so that the page works at any path.
func newPage(t *testing.T, limiters ...admin.Limiter) http.Handler {
	t.Helper()
	page, err := admin.New(limiters, nil)
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page.ServeHTTP(w, r)
		if answer, ok := w.(*httptest.ResponseRecorder); ok && strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			for _, link := range append(links(answer.Body.String()), actions(answer.Body.String())...) {
				if !strings.HasPrefix(link, "?") && link != "data:," {
					t.Errorf("%s has the link %q", r.URL, link)
				}
			}
		}
		for field, want := range map[string]string{
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Vary": "Accept",
			"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		} {
			if r.URL.Query().Has("style") && field == "Cache-Control" {
				want = "private, max-age=31536000, immutable"
			}
			if got := w.Header().Get(field); got != want {
				t.Errorf("%s %s: %s is %q, want %q", r.Method, r.URL, field, got, want)
			}
		}
	})
}

// consume makes n requests for a key.
func consume(t *testing.T, lim *weir.Limiter, n int, key ...string) {
	t.Helper()
	for range n {
		weirtest.Decide(t, lim, weir.Request{Key: weir.KeyOf(key...)})
	}
}

// left returns what a rule has left for a key.
func left(t *testing.T, lim *weir.Limiter, rule string, key ...string) int64 {
	t.Helper()
	return weirtest.Left(t, weirtest.Only(t, lim, rule), key...).Remaining
}

// get returns the answer to a GET with that query. accept can be empty.
func get(h http.Handler, query, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/limits?"+query, nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// post returns the answer to a form. Each change can change the request.
func post(h http.Handler, form url.Values, changes ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/limits", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, change := range changes {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var (
	formTag   = regexp.MustCompile(`(?s)<form[^>]* method="(\w+)" action="([^"]*)"[^>]*>(.*?)</form>`)
	inputTag  = regexp.MustCompile(`<input[^>]* name="(\w+)"[^>]* value="([^"]*)"`)
	buttonTag = regexp.MustCompile(`<button[^>]*>([^<]*)</button>`)
	hrefTag   = regexp.MustCompile(`<(?:a|link)[^>]* href="([^"]*)"`)
)

// A form is a form of a page, with the values of its fields.
type form struct {
	method, action, button string
	values                 url.Values
}

// forms returns the forms of a page.
func forms(page string) (list []form) {
	for _, m := range formTag.FindAllStringSubmatch(page, -1) {
		f := form{method: m[1], action: html.UnescapeString(m[2]), values: url.Values{}}
		for _, in := range inputTag.FindAllStringSubmatch(m[3], -1) {
			f.values.Add(in[1], html.UnescapeString(in[2]))
		}
		if b := buttonTag.FindStringSubmatch(m[3]); b != nil {
			f.button = html.UnescapeString(b[1])
		}
		list = append(list, f)
	}
	return list
}

// button returns the form with that button. If a rule is given, it is the form of that rule.
func button(t *testing.T, page, text string, rule ...string) form {
	t.Helper()
	for _, f := range forms(page) {
		if f.button == text && (rule == nil || f.values.Get("rule") == rule[0]) {
			return f
		}
	}
	t.Fatalf("the page has no button %q of %q:\n%s", text, rule, page)
	return form{}
}

// send sends a form, and returns the query and the text of the page that follows.
func send(t *testing.T, h http.Handler, form url.Values) (query, text string) {
	t.Helper()
	w := post(h, form)
	query, ok := strings.CutPrefix(w.Header().Get("Location"), "?")
	if w.Code != http.StatusSeeOther || !ok {
		t.Fatalf("%v: status %d, Location %q:\n%s", form, w.Code, w.Header().Get("Location"), w.Body)
	}
	return query, get(h, query, "").Body.String()
}

// links returns the links of a page.
func links(page string) (list []string) {
	for _, m := range hrefTag.FindAllStringSubmatch(page, -1) {
		list = append(list, html.UnescapeString(m[1]))
	}
	return list
}

func actions(page string) (list []string) {
	for _, f := range forms(page) {
		list = append(list, f.action)
	}
	return list
}
