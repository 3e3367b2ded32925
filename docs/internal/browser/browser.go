// Package browser opens pages in a headless Chromium, presses keys, and finds what readers
// could not see or reach.
package browser

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience is the longest wait for the browser. It is long, because other tests can keep the
// machine busy.
const patience = time.Minute

// A Browser is a running Chromium.
type Browser struct{ ctx context.Context }

// Start starts Chromium, and ends it with the test. If it is not installed, the test is
// skipped, or fails if WEIR_REQUIRE_DOCKER or WEIR_REQUIRE_LINT is 1.
func Start(t *testing.T) Browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	switch {
	case err == nil:
	case os.Getenv("WEIR_REQUIRE_DOCKER") == "1", os.Getenv("WEIR_REQUIRE_LINT") == "1":
		t.Fatalf("chromium is not installed, and WEIR_REQUIRE_DOCKER or WEIR_REQUIRE_LINT is 1: %v", err)
	default:
		t.Skip("chromium is not installed")
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("hide-scrollbars", true))...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(alloc)
	t.Cleanup(end)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return Browser{ctx}
}

// A View is how a tab shows its pages.
type View struct {
	Width, Height int64 // in CSS pixels
	Dark          bool  // prefers-color-scheme
	Scripts       bool  // the scripts of pages run
}

// A Tab is a tab of a Browser.
type Tab struct {
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

// Tab opens a tab.
func (b Browser) Tab(t *testing.T, view View) *Tab {
	t.Helper()
	ctx, end := chromedp.NewContext(b.ctx)
	t.Cleanup(end)
	tab, scheme := &Tab{ctx: ctx}, "light"
	if view.Dark {
		scheme = "dark"
	}
	if err := errors.Join(chromedp.Do(ctx), chromedp.Listen(ctx, tab.event)); err != nil { // the tab ends with the context of its first call
		t.Fatal(err)
	}
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	run(t, tab, chromedp.Steps(
		call(log.Enable, cdp.Empty{}), call(network.Enable, network.EnableParams{}), call(emulation.SetEmulatedMedia, media),
		call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !view.Scripts}),
		call(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}),
		chromedp.EmulateViewport(view.Width, view.Height),
	))
	return tab
}

func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, command, params)
		return err
	})
}

func run[T any](t *testing.T, tab *Tab, action chromedp.Action[T]) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	result, err := chromedp.Run(ctx, action)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func (tab *Tab) event(event any) {
	switch event.(type) {
	case *log.EventEntryAdded, *runtime.EventExceptionThrown, *runtime.EventConsoleAPICalled, *network.EventLoadingFailed:
		text, err := json.Marshal(event)
		tab.mu.Lock()
		tab.problems = append(tab.problems, fmt.Sprintf("%T %s", event, cmp.Or(string(text), fmt.Sprint(err))))
		tab.mu.Unlock()
	}
}

// Problems returns what the browser and scripts have logged for the pages of the tab, for
// example what a Content-Security-Policy has blocked.
func (tab *Tab) Problems() []string {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return tab.problems
}

// Open opens a page, and waits until it is loaded.
func (tab *Tab) Open(t *testing.T, url string) {
	t.Helper()
	run(t, tab, chromedp.Navigate(url))
}

// Eval computes a JavaScript expression in the page. If the value is a promise, Eval waits
// for it. It works even if the scripts of the page do not run.
func Eval[T any](t *testing.T, tab *Tab, expression string) T {
	t.Helper()
	return run(t, tab, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// Until waits until a JavaScript expression is true. The scripts of the page must run.
func (tab *Tab) Until(t *testing.T, expression string) {
	t.Helper()
	Eval[bool](t, tab, "new Promise(done => { const look = () => ("+expression+") ? done(true) : setTimeout(look, 10); look() })")
}

// The keys of [Tab.Press].
const Tabulator, ArrowRight = kb.Tab, kb.ArrowRight

// Press presses a key.
func (tab *Tab) Press(t *testing.T, key string) {
	t.Helper()
	run(t, tab, chromedp.KeyEvent(key))
}

// Enter presses the key Enter, and waits for the page to which it leads.
func (tab *Tab) Enter(t *testing.T) {
	t.Helper()
	run(t, tab, chromedp.WaitEvent(page.LoadEventFired, nil, chromedp.KeyEvent(kb.Enter)))
}

// Type types a text into the field that has the focus.
func (tab *Tab) Type(t *testing.T, text string) {
	t.Helper()
	run(t, tab, call(input.InsertText, input.InsertTextParams{Text: text}))
}

// Screenshot returns a PNG of the page, in its full height.
func (tab *Tab) Screenshot(t *testing.T) []byte {
	t.Helper()
	return run(t, tab, chromedp.FullScreenshot(100))
}

// A Focus is the element with the focus.
type Focus struct {
	ID, Text string // Text is its label, or else its own
	Seen     bool   // that it has the focus
}

// Focus returns the element with the focus.
func (tab *Tab) Focus(t *testing.T) Focus {
	t.Helper()
	return Eval[Focus](t, tab, `(() => {
	const e = document.activeElement, style = getComputedStyle(e);
	return { ID: e.id, Text: (e.labels && e.labels.length ? e.labels[0] : e).textContent.trim(), Seen: style.outlineStyle === 'solid' && parseFloat(style.outlineWidth) >= 2 };
})()`)
}

// defects are expressions for elements that a reader could not see or understand.
var defects = map[string]string{
	"reach out of the window": `[document.documentElement, ...document.querySelectorAll('body *:not(pre *)')]
	.filter(e => e === document.documentElement && e.scrollWidth > innerWidth || e.getBoundingClientRect().right > innerWidth + .5).map(e => e.outerHTML.slice(0, 80))`,

	// The ratio is that of WCAG 2. For the marks of pictures, it must be 3.
	"have too little contrast": `(() => {
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
		else if ([...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || e.matches('input:not([type=range]), select')) check(e, e.matches('svg *') ? style.fill : style.color, 4.5);
	}
	return found;
})()`,

	// Controls need a label, pictures a name, tables a caption and headers, and IDs must be unique.
	"have no name of their own": `[...[...document.querySelectorAll('input:not([type=hidden]), select')].filter(e => e.labels.length !== 1 || !e.labels[0].textContent.trim()),
	...[...document.querySelectorAll('table')].filter(e => !e.caption || !e.tHead || [...e.tHead.querySelectorAll('*')].some(h => h.tagName === 'TH' && h.scope !== 'col')),
	...[...document.querySelectorAll('svg:not([aria-hidden=true])')].filter(e => !e.getAttribute('aria-label')), ...[...document.querySelectorAll('[id]')].filter(e => document.getElementById(e.id) !== e)].map(e => e.outerHTML.slice(0, 80))`,
}

// Check reports elements of the page that a reader could not see or understand. It returns the
// colour of the background.
func (tab *Tab) Check(t *testing.T, name string) (ground string) {
	t.Helper()
	for what, expression := range defects {
		if found := Eval[[]string](t, tab, expression); len(found) > 0 {
			t.Errorf("%s: these %s: %s", name, what, strings.Join(found, "\n"))
		}
	}
	return Eval[string](t, tab, "getComputedStyle(document.body).backgroundColor")
}
