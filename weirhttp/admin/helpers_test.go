package admin_test

import (
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
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
	lim, err := weir.NewPolicy(st, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

func newPage(t *testing.T, limiters ...admin.Limiter) http.Handler {
	t.Helper()
	page, err := admin.New(limiters, nil)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// consume makes n requests for a key.
func consume(t *testing.T, lim *weir.Limiter, n int, key ...string) {
	t.Helper()
	for range n {
		if _, err := lim.Allow(t.Context(), key...); err != nil {
			t.Fatal(err)
		}
	}
}

// left returns what a rule has left for a key.
func left(t *testing.T, lim *weir.Limiter, rule string, key ...string) int64 {
	t.Helper()
	only, err := lim.Only(rule)
	if err != nil {
		t.Fatal(err)
	}
	res, err := only.Peek(t.Context(), key...)
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
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

// button returns the form with that button.
func button(t *testing.T, page, text string) form {
	t.Helper()
	for _, f := range forms(page) {
		if f.button == text {
			return f
		}
	}
	t.Fatalf("the page has no button %q:\n%s", text, page)
	return form{}
}

// links returns the links of a page.
func links(page string) (list []string) {
	for _, m := range hrefTag.FindAllStringSubmatch(page, -1) {
		list = append(list, html.UnescapeString(m[1]))
	}
	return list
}

func body(t *testing.T, res *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return string(text)
}
