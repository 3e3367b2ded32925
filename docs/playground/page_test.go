package main

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-go/weir/docs/internal/browser"
	"github.com/weir-go/weir/docs/playground/simulate"
)

// TestFiles checks that the page has its files, of which each is served with its type, and that
// they can be downloaded in a second, because servers compress them.
func TestFiles(t *testing.T) {
	files, err := build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "new")
	if err := errors.Join(write(dir, files), write(dir, files)); err != nil { // the second time, they exist
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.FileServerFS(os.DirFS(dir)))
	defer srv.Close()
	var sum countingWriter
	for path, want := range map[string]string{
		"/": "text/html; charset=utf-8", "/app.js": "text/javascript; charset=utf-8", "/style.css": "text/css; charset=utf-8",
		"/wasm_exec.js": "text/javascript; charset=utf-8", "/playground.wasm": "application/wasm",
	} {
		res, err := http.Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Header.Get("Content-Type"); res.StatusCode != 200 || got != want {
			t.Errorf("%s: got %d with %q, want %q", path, res.StatusCode, got, want)
		}
		w := gzip.NewWriter(&sum)
		_, err = io.Copy(w, res.Body)
		if err := errors.Join(err, w.Close(), res.Body.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if t.Logf("%d bytes, compressed", sum); sum > 3_000_000 {
		t.Errorf("the page has %d bytes, compressed: it must have at most 3,000,000", sum)
	}
}

type countingWriter int

func (n *countingWriter) Write(p []byte) (int, error) {
	*n += countingWriter(len(p))
	return len(p), nil
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
)

// TestPage opens the page in a browser.
func TestPage(t *testing.T) {
	b := browser.Start(t)
	files, err := build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.FileServerFS(files))
	t.Cleanup(srv.Close)
	t.Run("answers", func(t *testing.T) { pageAnswers(t, b, srv.URL) })
	t.Run("looks", func(t *testing.T) { pageLooks(t, b, srv.URL) })
	t.Run("buttons", func(t *testing.T) { pageButtons(t, b, srv.URL) })
	t.Run("keyboard", func(t *testing.T) { pageKeyboard(t, b, srv.URL) })
}

// open opens the page with a link, and waits for its pictures.
func open(t *testing.T, tab *browser.Tab, url, link string) {
	t.Helper()
	tab.Open(t, "about:blank") // otherwise only the part after # changes
	tab.Open(t, url+"/"+link)
	tab.Until(t, ready)
}

// follow follows a link within the page.
func follow(t *testing.T, tab *browser.Tab, link string) {
	t.Helper()
	browser.Eval[bool](t, tab, fmt.Sprintf("new Promise(done => { addEventListener('hashchange', () => done(true), { once: true }); location.hash = %q })", link))
}

func quiet(t *testing.T, tab *browser.Tab) {
	t.Helper()
	for _, problem := range tab.Problems() {
		t.Errorf("the browser logs %s", problem)
	}
}

// same checks that the page has the answers of the library to its settings, and returns
// the settings.
func same(t *testing.T, tab *browser.Tab) simulate.Settings {
	t.Helper()
	page := browser.Eval[struct {
		Settings simulate.Settings
		Answers  string
	}](t, tab, "playground")
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
func pageAnswers(t *testing.T, b browser.Browser, url string) {
	tab := b.Tab(t, browser.View{Width: 1000, Height: 800, Scripts: true})
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
			marks := browser.Eval[[]map[string]int](t, tab, drawn)
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
	link := browser.Eval[string](t, tab, `(() => { for (const e of document.querySelectorAll('input')) { e.value = Number(e.max) - 1; e.dispatchEvent(new Event('input')) } return playground.link })()`)
	answers := browser.Eval[string](t, tab, "playground.answers")
	s := same(t, tab)
	if n := s.Traffic.Numbers; n["clients"] != 29 || n["busy"] != 9 {
		t.Errorf("the sliders set %v", n)
	}
	tab.Until(t, "location.hash === playground.link")
	open(t, tab, url, link)
	if browser.Eval[string](t, tab, "playground.answers") != answers {
		t.Error("the link leads to other answers")
	}
	// A link that is not valid leads to the defaults, and rules that do not go together
	// to an error.
	follow(t, tab, "#traffic=x&a=&a.capacity=1e3&b=gcra&b.burst=61&seed=-1&b2=%3Cscript%3E")
	if s := same(t, tab); s.Seed != 1 || s.Traffic.Kind != "bursts" || s.Sides[0][0].Numbers["capacity"] != 10 || s.Sides[1][0].Numbers["burst"] != 10 || len(s.Sides[1]) != 1 {
		t.Errorf("a link that is not valid leads to %+v", s)
	}
	follow(t, tab, "#a=concurrency&a2=metadata-window")
	if text := browser.Eval[string](t, tab, "document.querySelector('#a .summary').textContent"); !strings.Contains(text, "weir: ") {
		t.Errorf("rules that do not go together: %q", text)
	}
	quiet(t, tab)
}

// The page fits a telephone and a large screen, light and dark, and can be read in each.
// With WEIR_SCREENSHOTS, its pictures are written to that directory.
func pageLooks(t *testing.T, b browser.Browser, url string) {
	grounds := map[string]bool{}
	for name, view := range map[string]browser.View{
		"narrow": {Width: 360, Height: 800, Scripts: true}, "narrow-dark": {Width: 360, Height: 800, Dark: true, Scripts: true},
		"wide": {Width: 1200, Height: 800, Scripts: true}, "wide-dark": {Width: 1200, Height: 800, Dark: true, Scripts: true},
	} {
		tab := b.Tab(t, view)
		open(t, tab, url, "")
		for page, link := range map[string]string{
			"first": "#a=token-bucket", "storm": "#traffic=storm&a=leaky-bucket&b=sliding-counter&b2=calendar", "clients": "#traffic=clients&a=concurrency&a2=token-bucket&b=gcra&b.by=1",
			"error": "#a=concurrency&a2=metadata-window",
		} {
			follow(t, tab, link)
			browser.Eval[bool](t, tab, "document.querySelectorAll('details').forEach(e => { e.open = true }) ?? true")
			if found := browser.Eval[[]string](t, tab, crowded); len(found) > 0 {
				t.Errorf("%s, %s: these texts are crowded: %s", name, page, strings.Join(found, "\n"))
			}
			grounds[tab.Check(t, name+", "+page)] = true
			if dir := os.Getenv("WEIR_SCREENSHOTS"); dir != "" {
				browser.Eval[bool](t, tab, "document.querySelectorAll('details').forEach(e => { e.open = false }) ?? true")
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
func pageButtons(t *testing.T, b browser.Browser, url string) {
	tab := b.Tab(t, browser.View{Width: 1000, Height: 800, Scripts: true})
	open(t, tab, url, "#traffic=clients&a=gcra&b=calendar")
	click := func(selector string) {
		t.Helper()
		browser.Eval[bool](t, tab, fmt.Sprintf("(document.querySelector(%q).click(), true)", selector))
	}
	// The browser asks a person before it lets a page copy.
	browser.Eval[bool](t, tab, "(navigator.clipboard.writeText = async text => { globalThis.copied = String(text) }, true)")
	res := simulate.Run(t.Context(), same(t, tab))
	for selector, want := range map[string]string{
		"#a details:first-child .copy": res.Sides[0].Code, "#a details:last-child .copy": res.Sides[0].File,
		"#b details:first-child .copy": res.Sides[1].Code, "#b details:last-child .copy": res.Sides[1].File,
	} {
		click(selector)
		if got := browser.Eval[string](t, tab, "copied"); got != want || want == "" {
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
	tab.Until(t, fmt.Sprintf("location.href === %q", browser.Eval[string](t, tab, "copied")))
	click("#b .second")
	if s := same(t, tab); len(s.Sides[1]) != 1 {
		t.Errorf("after the second rule was removed, the settings are %+v", s)
	}
	quiet(t, tab)
}

// The Tab key reaches every control, and an arrow key on a slider changes the picture.
func pageKeyboard(t *testing.T, b browser.Browser, url string) {
	tab := b.Tab(t, browser.View{Width: 360, Height: 800, Scripts: true})
	open(t, tab, url, "")
	var order []string
	for range 19 {
		tab.Press(t, browser.Tabulator)
		e := tab.Focus(t)
		if !e.Seen {
			t.Errorf("%+v does not show that it has the focus", e)
		}
		name := cmp.Or(e.ID, e.Text)
		order = append(order, name)
		if !strings.HasPrefix(name, "a-") && name != "traffic-size" || name == "a-kind" {
			continue
		}
		before := browser.Eval[string](t, tab, "playground.answers")
		tab.Press(t, browser.ArrowRight)
		if browser.Eval[string](t, tab, "playground.answers") == before && name != "a-by" {
			t.Errorf("an arrow key on %s changes nothing", name)
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
