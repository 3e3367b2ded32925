package chromium

import (
	"encoding/json"
	"sync"
	"testing"
	"time"
)

// A View is how a tab shows its pages.
type View struct {
	Width, Height int  // in CSS pixels
	Dark          bool // prefers-color-scheme
	Scripts       bool // the scripts of pages run
}

// A Tab is a tab of a Browser.
type Tab struct {
	browser *Browser
	session string
	view    View
	loaded  chan struct{} // has an element for each page that was loaded

	mu       sync.Mutex
	problems []string
}

// Tab opens a tab.
func (b *Browser) Tab(t *testing.T, view View) *Tab {
	t.Helper()
	tab := &Tab{browser: b, view: view, loaded: make(chan struct{}, 100)}
	var target struct {
		TargetID string `json:"targetId"`
	}
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	tab.call(t, "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	tab.call(t, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	tab.session = attached.SessionID
	b.mu.Lock()
	b.tabs[tab.session] = tab
	b.mu.Unlock()
	for _, domain := range []string{"Page.enable", "Runtime.enable", "Log.enable", "Network.enable"} {
		tab.call(t, domain, nil, nil)
	}
	scheme := "light"
	if view.Dark {
		scheme = "dark"
	}
	tab.call(t, "Emulation.setDeviceMetricsOverride", map[string]any{"width": view.Width, "height": view.Height, "deviceScaleFactor": 1, "mobile": false}, nil)
	tab.call(t, "Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	tab.call(t, "Emulation.setScriptExecutionDisabled", map[string]any{"value": !view.Scripts}, nil)
	tab.call(t, "Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true}, nil)
	return tab
}

func (tab *Tab) call(t *testing.T, method string, params, result any) {
	t.Helper()
	answer, err := tab.browser.call(tab.session, method, params)
	if err == nil && result != nil {
		err = json.Unmarshal(answer, result)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// event is called for each event of the tab, one after another.
func (tab *Tab) event(m message) {
	switch m.Method {
	case "Page.loadEventFired":
		tab.loaded <- struct{}{}
	case "Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Network.loadingFailed":
		tab.mu.Lock()
		tab.problems = append(tab.problems, m.Method+" "+string(m.Params))
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
	var navigated struct {
		ErrorText string `json:"errorText"`
	}
	tab.call(t, "Page.navigate", map[string]any{"url": url}, &navigated)
	if navigated.ErrorText != "" {
		t.Fatalf("%s: %s", url, navigated.ErrorText)
	}
	tab.Loaded(t)
}

// Loaded waits until the next page is loaded, after a key that leads to it.
func (tab *Tab) Loaded(t *testing.T) {
	t.Helper()
	select {
	case <-tab.loaded:
	case <-time.After(patience):
		t.Fatalf("no page was loaded in %v", patience)
	}
}

// Eval computes a JavaScript expression in the page, and decodes its value to result. If
// the value is a promise, Eval waits for it. It works even if the scripts of the page do
// not run.
func (tab *Tab) Eval(t *testing.T, expression string, result any) {
	t.Helper()
	var answer struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails json.RawMessage `json:"exceptionDetails"`
	}
	tab.call(t, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &answer)
	if answer.ExceptionDetails != nil {
		t.Fatalf("%s: %s", expression, answer.ExceptionDetails)
	}
	if err := json.Unmarshal(answer.Result.Value, result); err != nil {
		t.Fatalf("%s: %v: %s", expression, err, answer.Result.Value)
	}
}

// Until waits until a JavaScript expression is true. The scripts of the page must run.
func (tab *Tab) Until(t *testing.T, expression string) {
	t.Helper()
	var ok bool
	tab.Eval(t, "new Promise(done => { const look = () => ("+expression+") ? done(true) : setTimeout(look, 10); look() })", &ok)
}

// Press presses the key Tab, Enter or ArrowRight.
func (tab *Tab) Press(t *testing.T, key string) {
	t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "ArrowRight": 39}
	press := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
	if key == "Enter" {
		press["text"] = "\r"
	}
	tab.call(t, "Input.dispatchKeyEvent", press, nil)
	tab.call(t, "Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}, nil)
}

// Type types a text into the field that has the focus.
func (tab *Tab) Type(t *testing.T, text string) {
	t.Helper()
	tab.call(t, "Input.insertText", map[string]any{"text": text}, nil)
}

// Screenshot returns a PNG of the page, in its full height.
func (tab *Tab) Screenshot(t *testing.T) []byte {
	t.Helper()
	var height int
	tab.Eval(t, "document.documentElement.scrollHeight", &height)
	var answer struct {
		Data []byte `json:"data"`
	}
	tab.call(t, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": tab.view.Width, "height": max(height, tab.view.Height), "scale": 1}}, &answer)
	return answer.Data
}
