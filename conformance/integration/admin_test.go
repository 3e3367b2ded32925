package integration

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
	"github.com/weir-go/weir/internal/chromium"
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

// The expressions of these tests, which a browser computes.
const (
	// The elements whose text has too little contrast, with the ratio of WCAG 2.
	lowContrast = `(() => {
	const rgba = s => { const v = s.match(/[\d.]+/g).map(Number); return v.length < 4 ? [...v, 1] : v };
	const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b };
	const ground = e => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c } return [255, 255, 255, 1] };
	const found = [];
	for (const e of document.querySelectorAll('body *')) {
		if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && !e.matches('input, select')) continue;
		const [a, b] = [light(rgba(getComputedStyle(e).color)), light(ground(e))];
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (ratio < 4.5) found.push(ratio.toFixed(2) + ' ' + e.outerHTML.slice(0, 80));
	}
	return found;
})()`

	// The elements that reach out of the window.
	tooWide = `[document.documentElement, ...document.querySelectorAll('body *')]
	.filter(e => e === document.documentElement && e.scrollWidth > innerWidth || e.getBoundingClientRect().right > innerWidth + .5).map(e => e.outerHTML.slice(0, 80))`

	// The cells with more lines than words, so that a word breaks.
	broken = `[...document.querySelectorAll('td')].filter(e => { const r = document.createRange(); r.selectNodeContents(e); return !e.querySelector('bdi') && r.getClientRects().length > e.textContent.split(' ').length })
	.map(e => e.outerHTML.slice(0, 80))`

	// The fields without a label, and the tables without a caption or headers.
	nameless = `[...[...document.querySelectorAll('input:not([type=hidden]), select')].filter(e => e.labels.length !== 1 || !e.labels[0].textContent.trim()),
	...[...document.querySelectorAll('table')].filter(e => !e.caption || !e.tHead || [...e.tHead.querySelectorAll('*')].some(h => h.tagName === 'TH' && h.scope !== 'col'))].map(e => e.outerHTML.slice(0, 80))`

	// The element with the focus: its text, or its name if it is a field, and whether it
	// shows that it has the focus.
	focused = `(() => {
	const e = document.activeElement, style = getComputedStyle(e);
	return { name: e.labels && e.labels.length ? e.labels[0].textContent : e.textContent, seen: style.outlineStyle === 'solid' && parseFloat(style.outlineWidth) >= 2 };
})()`

	ground = `getComputedStyle(document.body).backgroundColor`
)

// TestAdmin opens the page for operators in a browser.
func TestAdmin(t *testing.T) {
	t.Parallel()
	browser := chromium.Start(t)
	t.Run("looks", func(t *testing.T) { adminLooks(t, browser) })
	t.Run("keyboard", func(t *testing.T) { adminKeyboard(t, browser) })
}

// The page fits a telephone and a large screen, light and dark, and can be read in each.
// With WEIR_SCREENSHOTS, its pictures are written to that directory.
func adminLooks(t *testing.T, browser *chromium.Browser) {
	url, _ := adminServer(t)
	grounds := map[string]bool{}
	shots := os.Getenv("WEIR_SCREENSHOTS")
	views := map[string]chromium.View{
		"narrow": {Width: 360, Height: 800}, "narrow-dark": {Width: 360, Height: 800, Dark: true},
		"wide": {Width: 1440, Height: 900}, "wide-dark": {Width: 1440, Height: 900, Dark: true},
	}
	if shots != "" {
		views["guide"] = chromium.View{Width: 1000, Height: 600}
	}
	for name, view := range views {
		tab := browser.Tab(t, view)
		for page, query := range map[string]string{
			"overview": "", "paused": "?limiter=api&key=globex&key=eve&rule=pause&pause=x", "limiter": "?limiter=log-in", "denied": "?limiter=api&key=acme&key=ann", "allowed": "?limiter=api&key=acme&key=bob",
			"hostile": "?limiter=api&key=%3Cscript%3Edocument.title='broken'%3C/script%3E&key=" + strings.Repeat("y", 300), "error": "?limiter=api&key=acme&key=",
		} {
			tab.Open(t, url+query)
			for what, expression := range map[string]string{"too wide": tooWide, "broken": broken, "low contrast": lowContrast, "nameless": nameless} {
				var found []string
				if tab.Eval(t, expression, &found); len(found) > 0 {
					t.Errorf("%s, %s: %s: %s", name, page, what, strings.Join(found, "\n"))
				}
			}
			var title, color string
			if tab.Eval(t, "document.title", &title); title == "broken" {
				t.Errorf("%s, %s: a script of a key ran", name, page)
			}
			if tab.Eval(t, ground, &color); view.Width > 1000 {
				grounds[color] = true
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
func adminKeyboard(t *testing.T, browser *chromium.Browser) {
	url, api := adminServer(t)
	tab := browser.Tab(t, chromium.View{Width: 360, Height: 800})
	tab.Open(t, url)
	next := func() string {
		t.Helper()
		tab.Press(t, "Tab")
		var e struct {
			Name string
			Seen bool
		}
		if tab.Eval(t, focused, &e); !e.Seen {
			t.Errorf("%q does not show that it has the focus", e.Name)
		}
		return strings.TrimSpace(e.Name)
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
	tab.Press(t, "Enter")
	tab.Loaded(t)
	var text string
	if tab.Eval(t, "document.querySelector('main').innerText", &text); !strings.Contains(text, "Denied by rule burst.") {
		t.Errorf("the page of the key has the text %s", text)
	}
	to("Reset burst")
	tab.Press(t, "Enter")
	tab.Loaded(t)
	var href string
	if tab.Eval(t, "location.href", &href); !strings.HasPrefix(href, url+"?") {
		t.Errorf("the reset leads to %s", href)
	}
	if tab.Eval(t, "document.querySelector('main').innerText", &text); !strings.Contains(text, "You have reset the rule burst.") || !strings.Contains(text, "Allowed.") {
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
	tab.Press(t, "Enter")
	tab.Loaded(t)
	if tab.Eval(t, "document.querySelector('main').innerText", &text); !strings.Contains(text, "Denied by rule attempts.") || strings.Contains(text, "hunter2") {
		t.Errorf("the page of the secret key has the text %s", text)
	}
	if tab.Eval(t, "location.href", &href); strings.Contains(href, "hunter2") {
		t.Errorf("the secret is in %s", href)
	}
	if problems := tab.Problems(); len(problems) > 0 {
		t.Errorf("the browser logs %s", strings.Join(problems, "\n"))
	}
}
