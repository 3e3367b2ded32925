// Package guide tests the page for operators, which admin.md shows.
package guide

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/docs/internal/browser"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp/admin"
)

// adminServer serves a page for operators at a path with a prefix, and returns its URL
// and a limiter that it shows.
func adminServer(t *testing.T) (url string, api *weir.Limiter) {
	t.Helper()
	var denied, deniedLogIns observe.TopDenied
	st := memory.New(nil)
	out := outage.New(nil)
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC) // nothing is refilled during a test
	opts := &weir.Options{Clock: func() time.Time { return noon }}
	limiter := func(p weir.Policy, wrappers ...weir.Wrapper) *weir.Limiter {
		lim, err := weir.NewPolicy(st, p, opts)
		if err == nil {
			lim, err = lim.Wrap(wrappers...)
		}
		if err != nil {
			t.Fatal(err)
		}
		return lim
	}
	api = limiter(weir.Policy{Name: "api", Segments: []string{"tenant", "user"}, Rules: []weir.Rule{
		{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 200}},
		{Name: "burst", Algorithm: algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerMinute(10)}},
		{Name: "day", Algorithm: algorithm.Calendar{Limit: 50, Every: algorithm.Day, Zone: "Europe/Berlin"}},
		{Name: "pause", Algorithm: algorithm.Pause{}},
		{Name: "tighter", Shadow: true, Algorithm: algorithm.SlidingLog{Limit: 15, Window: time.Minute}},
	}}, denied.Wrap, out.Wrap)
	logIns := limiter(weir.Policy{Name: "log-in", Segments: []string{"address", "token"}, Secret: []string{"token"}, Rules: []weir.Rule{
		{Name: "attempts", Algorithm: algorithm.FixedWindow{Limit: 5, Window: time.Hour}},
	}}, deniedLogIns.Wrap)
	for lim, keys := range map[*weir.Limiter]map[weir.Key]int{
		api: {
			weir.KeyOf("acme", "ann"): 62, weir.KeyOf("acme", "bob"): 17, weir.KeyOf("globex", "eve"): 48,
			weir.KeyOf("initech", "<script>document.title='broken'</script>"):                            25,
			weir.KeyOf("initech", "\u202e\xff"):                                                          23,
			weir.KeyOf("a-long-name-without-a-space-"+strings.Repeat("x", 60), strings.Repeat("y", 300)): 22,
		},
		logIns: {weir.KeyOf("2001:db8::/64", "hunter2"): 6},
	} {
		for key, n := range keys {
			for range n {
				if _, err := lim.Allow(t.Context(), key.Segments()...); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if _, err := api.Pause(t.Context(), 5*time.Minute, "globex", "eve"); err != nil {
		t.Fatal(err)
	}
	page, err := admin.New([]admin.Limiter{{Name: "api", Limiter: api, Denied: &denied, Outage: out}, {Name: "log-in", Limiter: logIns, Denied: &deniedLogIns}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.StripPrefix("/operate/limits", page))
	t.Cleanup(srv.Close)
	return srv.URL + "/operate/limits", api
}

// broken is an expression for the cells with more lines than words, in which a word breaks.
const broken = `[...document.querySelectorAll('td')].filter(e => { const r = document.createRange(); r.selectNodeContents(e); return !e.querySelector('bdi') && r.getClientRects().length > e.textContent.split(' ').length })
	.map(e => e.outerHTML.slice(0, 80))`

// TestAdmin opens the page for operators in a browser.
func TestAdmin(t *testing.T) {
	t.Parallel()
	b := browser.Start(t)
	t.Run("looks", func(t *testing.T) { adminLooks(t, b) })
	t.Run("keyboard", func(t *testing.T) { adminKeyboard(t, b) })
}

// The page fits a telephone and a large screen, light and dark, and can be read in each.
// With WEIR_SCREENSHOTS, its pictures are written to that directory.
func adminLooks(t *testing.T, b browser.Browser) {
	url, _ := adminServer(t)
	grounds := map[string]bool{}
	shots := os.Getenv("WEIR_SCREENSHOTS")
	views := map[string]browser.View{
		"narrow": {Width: 360, Height: 800}, "narrow-dark": {Width: 360, Height: 800, Dark: true},
		"wide": {Width: 1440, Height: 900}, "wide-dark": {Width: 1440, Height: 900, Dark: true},
	}
	if shots != "" {
		views["guide"] = browser.View{Width: 1000, Height: 600}
	}
	for name, view := range views {
		tab := b.Tab(t, view)
		for page, query := range map[string]string{
			"overview": "", "paused": "?limiter=api&key=globex&key=eve&rule=pause&pause=x", "limiter": "?limiter=log-in", "denied": "?limiter=api&key=acme&key=ann", "allowed": "?limiter=api&key=acme&key=bob",
			"hostile": "?limiter=api&key=%3Cscript%3Edocument.title='broken'%3C/script%3E&key=" + strings.Repeat("y", 300), "error": "?limiter=api&key=acme&key=",
		} {
			tab.Open(t, url+query)
			if found := browser.Eval[[]string](t, tab, broken); len(found) > 0 {
				t.Errorf("%s, %s: words break: %s", name, page, strings.Join(found, "\n"))
			}
			if browser.Eval[string](t, tab, "document.title") == "broken" {
				t.Errorf("%s, %s: a script of a key ran", name, page)
			}
			if ground := tab.Check(t, name+", "+page); view.Width > 1000 {
				grounds[ground] = true
			}
			if shots != "" {
				if err := os.WriteFile(filepath.Join(shots, page+"-"+name+".png"), tab.Screenshot(t), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, problem := range tab.Problems() {
			if !strings.Contains(problem, "status of 400") { // of the page with an error
				t.Errorf("%s: the browser logs %s", name, problem)
			}
		}
	}
	if len(grounds) != 2 {
		t.Errorf("the grounds are %v, want one for light and one for dark", grounds)
	}
}

// The keyboard alone finds a key and resets a rule, without JavaScript.
func adminKeyboard(t *testing.T, b browser.Browser) {
	url, api := adminServer(t)
	tab := b.Tab(t, browser.View{Width: 360, Height: 800})
	tab.Open(t, url)
	next := func() string {
		t.Helper()
		tab.Press(t, browser.Tabulator)
		e := tab.Focus(t)
		if !e.Seen {
			t.Errorf("%+v does not show that it has the focus", e)
		}
		return e.Text
	}
	to := func(name string) {
		t.Helper()
		var seen []string
		for range 40 {
			got := next()
			if got == name {
				return
			}
			seen = append(seen, got)
		}
		t.Fatalf("the Tab key does not lead to %q: %q", name, seen)
	}
	var order []string
	for range 7 {
		order = append(order, next())
	}
	if want := []string{"Refresh", "api", "tenant", "user", "Show this key", "acme / ann", "globex / eve"}; !slices.Equal(order, want) {
		t.Errorf("the Tab key leads to %q, want %q", order, want)
	}
	tab.Open(t, url)
	to("tenant")
	tab.Type(t, "acme")
	to("user")
	tab.Type(t, "ann")
	tab.Enter(t)
	main := func() string { return browser.Eval[string](t, tab, "document.querySelector('main').innerText") }
	if text := main(); !strings.Contains(text, "Denied by rule burst.") {
		t.Errorf("the page of the key has the text %s", text)
	}
	to("Reset burst")
	tab.Enter(t)
	if href := browser.Eval[string](t, tab, "location.href"); !strings.HasPrefix(href, url+"?") {
		t.Errorf("the reset leads to %s", href)
	}
	if text := main(); !strings.Contains(text, "You have reset the rule burst.") || !strings.Contains(text, "Allowed.") {
		t.Errorf("the page after the reset has the text %s", text)
	}
	burst, err := api.Only("burst")
	if err != nil {
		t.Fatal(err)
	}
	if res, err := burst.Peek(t.Context(), "acme", "ann"); err != nil || res.Remaining != 20 {
		t.Errorf("after the reset: %+v, %v", res, err)
	}
	// A secret is typed into a form, and is in no URL.
	tab.Open(t, url+"?limiter=log-in")
	to("address")
	tab.Type(t, "2001:db8::/64")
	to("token")
	tab.Type(t, "hunter2")
	tab.Enter(t)
	if text := main(); !strings.Contains(text, "Denied by rule attempts.") || strings.Contains(text, "hunter2") {
		t.Errorf("the page of the secret key has the text %s", text)
	}
	if href := browser.Eval[string](t, tab, "location.href"); strings.Contains(href, "hunter2") {
		t.Errorf("the secret is in %s", href)
	}
	if problems := tab.Problems(); len(problems) > 0 {
		t.Errorf("the browser logs %s", strings.Join(problems, "\n"))
	}
}
