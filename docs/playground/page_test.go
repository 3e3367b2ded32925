package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-go/weir/docs/playground/simulate"
	"github.com/weir-go/weir/internal/chromium"
)

// TestSize checks that the page can be downloaded in a second.
func TestSize(t *testing.T) {
	files, err := build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, text := range files {
		sum += len(compress(text))
	}
	t.Logf("%d bytes, compressed", sum)
	if sum > 3_000_000 {
		t.Errorf("the page has %d bytes, compressed: it must have at most 3,000,000", sum)
	}
	dir := filepath.Join(t.TempDir(), "new")
	if err := write(dir, files); err != nil {
		t.Fatal(err)
	}
	var names []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := slices.Sorted(maps.Keys(files)); err != nil || !slices.Equal(names, want) || !slices.Contains(names, "index.html") {
		t.Errorf("written are %q, %v, want %q", names, err, want)
	}
}

// TestHandler checks what the server sends.
func TestHandler(t *testing.T) {
	h := handler(map[string][]byte{"index.html": []byte("page"), "x.wasm": []byte("module")})
	for path, want := range map[string]string{"/": "200 text/html; charset=utf-8 page", "/x.wasm": "200 application/wasm module", "/y": "404"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if got := fmt.Sprint(w.Code, " ", w.Header().Get("Content-Type"), " ", w.Body); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// The expressions of TestPage, which a browser computes.
const (
	ready = `document.readyState === 'complete' && globalThis.playground`

	// How much of each picture is drawn, by the lengths of the paths of each class.
	drawn = `[...document.querySelectorAll('section svg')].map(svg => Object.fromEntries([...svg.querySelectorAll('path:not(.line)')].map(p => [p.getAttribute('class'), p.getAttribute('d').length])))`

	// The texts of pictures that reach out of their picture, or overlap.
	crowded = `[...document.querySelectorAll('section svg')].flatMap(svg => {
	const all = [...svg.querySelectorAll('text')].map(e => ({ text: e.textContent, box: e.getBoundingClientRect() })), out = svg.getBoundingClientRect();
	const over = (a, b) => a.left < b.right && b.left < a.right && a.top + 2 < b.bottom - 2 && b.top + 2 < a.bottom - 2;
	return all.filter(({ box }, i) => box.left < out.left - .5 || box.right > out.right + .5 || all.slice(i + 1).some(o => over(box, o.box))).map(e => e.text);
})`

	// The elements that reach out of the window.
	tooWide = `[document.documentElement, ...document.querySelectorAll('body *:not(pre *)')]
	.filter(e => e === document.documentElement && e.scrollWidth > innerWidth || e.getBoundingClientRect().right > innerWidth + .5).map(e => e.outerHTML.slice(0, 80))`

	// The elements whose text has too little contrast, with the ratio of WCAG 2, and the
	// marks of pictures, for which it must be 3.
	lowContrast = `(() => {
	const rgba = s => { const v = s.match(/[\d.]+/g).map(Number); return v.length < 4 ? [...v, 1] : v };
	const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b };
	const ground = e => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c } return [255, 255, 255, 1] };
	const found = [];
	const check = (e, color, least) => {
		const [a, b] = [light(rgba(color)), light(ground(e))];
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (ratio < least) found.push(ratio.toFixed(2) + ' ' + e.outerHTML.slice(0, 80));
	};
	for (const e of document.querySelectorAll('body *:not(script, noscript, template)')) {
		const style = getComputedStyle(e);
		if (e.matches('svg path:not(.line)')) check(e, style.stroke === 'none' ? style.fill : style.stroke, e.matches('.waited') ? 1.5 : 3);
		else if ([...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || e.matches('select')) check(e, e.matches('svg *') ? style.fill : style.color, 4.5);
	}
	return found;
})()`

	// The controls without a label, and the pictures without a name.
	nameless = `[...[...document.querySelectorAll('input, select')].filter(e => e.labels.length !== 1 || !e.labels[0].textContent.trim()),
	...[...document.querySelectorAll('svg')].filter(e => !e.getAttribute('aria-label')), ...[...document.querySelectorAll('[id]')].filter(e => document.getElementById(e.id) !== e)].map(e => e.outerHTML.slice(0, 80))`

	// The element with the focus: its text, or its ID if it is a control, and whether it
	// shows that it has the focus.
	focused = `(() => {
	const e = document.activeElement, style = getComputedStyle(e);
	return { name: e.id || e.textContent, seen: style.outlineStyle === 'solid' && parseFloat(style.outlineWidth) >= 2 };
})()`

	ground = `getComputedStyle(document.body).backgroundColor`
)

// TestPage opens the page in a browser.
func TestPage(t *testing.T) {
	browser := chromium.Start(t)
	files, err := build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(handler(files))
	t.Cleanup(srv.Close)
	t.Run("answers", func(t *testing.T) { pageAnswers(t, browser, srv.URL) })
	t.Run("looks", func(t *testing.T) { pageLooks(t, browser, srv.URL) })
	t.Run("buttons", func(t *testing.T) { pageButtons(t, browser, srv.URL) })
	t.Run("keyboard", func(t *testing.T) { pageKeyboard(t, browser, srv.URL) })
}

// open opens the page with a link, and waits for its pictures.
func open(t *testing.T, tab *chromium.Tab, url, link string) {
	t.Helper()
	tab.Open(t, "about:blank") // otherwise only the part after # changes
	tab.Open(t, url+"/"+link)
	tab.Until(t, ready)
}

// follow follows a link within the page.
func follow(t *testing.T, tab *chromium.Tab, link string) {
	t.Helper()
	tab.Eval(t, fmt.Sprintf("new Promise(done => { addEventListener('hashchange', () => done(true), { once: true }); location.hash = %q })", link), new(bool))
}

func quiet(t *testing.T, tab *chromium.Tab) {
	t.Helper()
	for _, problem := range tab.Problems() {
		t.Errorf("the browser logs %s", problem)
	}
}

// same checks that the page has the answers of the library to its settings, and returns
// the settings.
func same(t *testing.T, tab *chromium.Tab) simulate.Settings {
	t.Helper()
	var page struct {
		Settings simulate.Settings
		Answers  string
	}
	tab.Eval(t, "playground", &page)
	want, err := json.Marshal(simulate.Run(t.Context(), page.Settings))
	if err != nil {
		t.Fatal(err)
	}
	if page.Answers != string(want) {
		t.Errorf("%+v: the answers of the page differ from those of the library", page.Settings)
	}
	return page.Settings
}

// Every algorithm draws, with every traffic, and answers as the library does. A link
// leads back to the settings.
func pageAnswers(t *testing.T, browser *chromium.Browser, url string) {
	tab := browser.Tab(t, chromium.View{Width: 1000, Height: 800, Scripts: true})
	open(t, tab, url, "")
	kinds := simulate.Kinds()
	for i, a := range kinds.Algorithms {
		b := kinds.Algorithms[(i+1)%len(kinds.Algorithms)]
		for _, traffic := range kinds.Traffic {
			name := traffic.Name + ", " + a.Name
			follow(t, tab, fmt.Sprintf("#traffic=%s&a=%s&b=%s&b2=sliding-log&b2.limit=7&seed=5", traffic.Name, a.Name, b.Name))
			s := same(t, tab)
			if s.Seed != 5 || s.Traffic.Kind != traffic.Name || len(s.Sides) != 2 || s.Sides[0][0].Kind != a.Name || len(s.Sides[1]) != 2 || s.Sides[1][0].Kind != b.Name || s.Sides[1][1].Numbers["limit"] != 7 {
				t.Errorf("%s: the link leads to %+v", name, s)
			}
			var marks []map[string]int
			tab.Eval(t, drawn, &marks)
			if len(marks) != 3 || marks[0]["arrived"] == 0 {
				t.Fatalf("%s: drawn is %v", name, marks)
			}
			for _, m := range marks[1:] {
				if m["allowed"]+m["waited"] == 0 || m["denied"] == 0 || m["remaining"] < 20 || m["retry"] == 0 {
					t.Errorf("%s: drawn is %v", name, m)
				}
			}
		}
	}
	// The link of settings that differ from the defaults in every number.
	var link, answers, again string
	tab.Eval(t, `(() => { for (const e of document.querySelectorAll('input')) { e.value = Number(e.max) - 1; e.dispatchEvent(new Event('input')) } return playground.link })()`, &link)
	tab.Eval(t, "playground.answers", &answers)
	s := same(t, tab)
	if n := s.Traffic.Numbers; n["clients"] != 29 || n["busy"] != 9 {
		t.Errorf("the sliders set %v", n)
	}
	tab.Until(t, "location.hash === playground.link")
	open(t, tab, url, link)
	if tab.Eval(t, "playground.answers", &again); again != answers {
		t.Error("the link leads to other answers")
	}
	// A link that is not valid leads to the defaults, and rules that do not go together
	// to an error.
	follow(t, tab, "#traffic=x&a=&a.capacity=1e3&b=gcra&b.burst=61&seed=-1&b2=%3Cscript%3E")
	if s := same(t, tab); s.Seed != 1 || s.Traffic.Kind != "bursts" || s.Sides[0][0].Numbers["capacity"] != 10 || s.Sides[1][0].Numbers["burst"] != 10 || len(s.Sides[1]) != 1 {
		t.Errorf("a link that is not valid leads to %+v", s)
	}
	follow(t, tab, "#a=concurrency&a2=metadata-window")
	var text string
	if tab.Eval(t, "document.querySelector('#a .summary').textContent", &text); !strings.Contains(text, "weir: ") {
		t.Errorf("rules that do not go together: %q", text)
	}
	quiet(t, tab)
}

// The page fits a telephone and a large screen, light and dark, and can be read in each.
// With WEIR_SCREENSHOTS, its pictures are written to that directory.
func pageLooks(t *testing.T, browser *chromium.Browser, url string) {
	grounds := map[string]bool{}
	for name, view := range map[string]chromium.View{
		"narrow": {Width: 360, Height: 800, Scripts: true}, "narrow-dark": {Width: 360, Height: 800, Dark: true, Scripts: true},
		"wide": {Width: 1200, Height: 800, Scripts: true}, "wide-dark": {Width: 1200, Height: 800, Dark: true, Scripts: true},
	} {
		tab := browser.Tab(t, view)
		open(t, tab, url, "")
		for page, link := range map[string]string{
			"first": "#a=token-bucket", "storm": "#traffic=storm&a=leaky-bucket&b=sliding-counter&b2=calendar", "clients": "#traffic=clients&a=concurrency&a2=token-bucket&b=gcra&b.by=1",
			"error": "#a=concurrency&a2=metadata-window",
		} {
			follow(t, tab, link)
			tab.Eval(t, "document.querySelectorAll('details').forEach(e => { e.open = true }) ?? true", new(bool))
			for what, expression := range map[string]string{"crowded": crowded, "too wide": tooWide, "low contrast": lowContrast, "nameless": nameless} {
				var found []string
				if tab.Eval(t, expression, &found); len(found) > 0 {
					t.Errorf("%s, %s: %s: %s", name, page, what, strings.Join(found, "\n"))
				}
			}
			var color string
			tab.Eval(t, ground, &color)
			grounds[color] = true
			if dir := os.Getenv("WEIR_SCREENSHOTS"); dir != "" {
				tab.Eval(t, "document.querySelectorAll('details').forEach(e => { e.open = false }) ?? true", new(bool))
				if err := os.WriteFile(filepath.Join(dir, page+"-"+name+".png"), tab.Screenshot(t), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		quiet(t, tab)
	}
	if len(grounds) != 2 {
		t.Errorf("the grounds are %v, want one for light and one for dark", grounds)
	}
}

// The buttons copy what the page shows, change the seed, and add and remove a second
// rule.
func pageButtons(t *testing.T, browser *chromium.Browser, url string) {
	tab := browser.Tab(t, chromium.View{Width: 1000, Height: 800, Scripts: true})
	open(t, tab, url, "#traffic=clients&a=gcra&b=calendar")
	click := func(selector string) {
		t.Helper()
		tab.Eval(t, fmt.Sprintf("(document.querySelector(%q).click(), true)", selector), new(bool))
	}
	// The browser asks a person before it lets a page copy.
	tab.Eval(t, "(navigator.clipboard.writeText = async text => { globalThis.copied = String(text) }, true)", new(bool))
	res := simulate.Run(t.Context(), same(t, tab))
	for selector, want := range map[string]string{
		"#a details:first-child .copy": res.Sides[0].Code, "#a details:last-child .copy": res.Sides[0].File,
		"#b details:first-child .copy": res.Sides[1].Code, "#b details:last-child .copy": res.Sides[1].File,
	} {
		click(selector)
		var got string
		if tab.Eval(t, "copied", &got); got != want || want == "" {
			t.Errorf("%s copies\n%s\nwant\n%s", selector, got, want)
		}
		tab.Until(t, fmt.Sprintf("document.querySelector(%q).textContent === 'Copied'", selector))
	}
	click("#seed")
	click("#b .second")
	s := same(t, tab)
	if s.Seed != 2 || len(s.Sides[1]) != 2 || s.Sides[1][1].Kind != "sliding-log" {
		t.Errorf("after Shuffle and a second rule, the settings are %+v", s)
	}
	click("#link")
	var link string
	tab.Eval(t, "copied", &link)
	tab.Until(t, fmt.Sprintf("location.href === %q", link))
	click("#b .second")
	if s := same(t, tab); len(s.Sides[1]) != 1 {
		t.Errorf("after the second rule was removed, the settings are %+v", s)
	}
	quiet(t, tab)
}

// The Tab key reaches every control, and an arrow key on a slider changes the picture.
func pageKeyboard(t *testing.T, browser *chromium.Browser, url string) {
	tab := browser.Tab(t, chromium.View{Width: 360, Height: 800, Scripts: true})
	open(t, tab, url, "")
	var order []string
	for range 19 {
		tab.Press(t, "Tab")
		var e struct {
			Name string
			Seen bool
		}
		tab.Eval(t, focused, &e)
		if !e.Seen {
			t.Errorf("%q does not show that it has the focus", e.Name)
		}
		order = append(order, e.Name)
		if !strings.HasPrefix(e.Name, "a-") && e.Name != "traffic-size" || e.Name == "a-kind" {
			continue
		}
		var before, after string
		tab.Eval(t, "playground.answers", &before)
		tab.Press(t, "ArrowRight")
		tab.Eval(t, "playground.answers", &after)
		if before == after && e.Name != "a-by" {
			t.Errorf("an arrow key on %s changes nothing", e.Name)
		}
	}
	want := []string{
		"traffic-kind", "traffic-size", "traffic-every", "link",
		"a-kind", "a-capacity", "a-tokens", "a-period", "a-at-once", "a-wait", "a-by", "Add a second rule", "Go code", "Policy file",
		"b-kind", "b-limit", "b-window", "b-aligned", "b-by",
	}
	if !slices.Equal(order, want) {
		t.Errorf("the Tab key leads to\n%q, want\n%q", order, want)
	}
	s := same(t, tab)
	if n := s.Sides[0][0].Numbers; s.Traffic.Numbers["size"] != 21 || n["tokens"] != 11 || n["period"] != 11 || n["capacity"] != 11 || n["wait"] != 1 {
		t.Errorf("the arrow key on each slider leads to %+v", s)
	}
	quiet(t, tab)
}
