// Package chromium drives a headless Chromium over its DevTools protocol, with the
// standard library alone. A test of a page opens the page, presses keys, and measures
// what it shows:
//
//	browser := chromium.Start(t)
//	tab := browser.Tab(t, chromium.View{Width: 360, Height: 800, Dark: true})
//	tab.Open(t, server.URL)
//	tab.Press(t, "Tab")
package chromium

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// patience is the longest wait for an answer of the browser. It is long, because other
// tests can keep the machine busy.
const patience = time.Minute

// A Browser is a running Chromium.
type Browser struct {
	in io.Writer

	mu      sync.Mutex
	last    int
	waiting map[int]chan message
	tabs    map[string]*Tab // by session
	err     error           // why the browser answers no longer
}

// A message is a command, an answer or an event of the protocol.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Start starts Chromium, and ends it with the test. If it is not installed, the test is
// skipped, or fails if WEIR_REQUIRE_DOCKER or WEIR_REQUIRE_LINT is 1.
func Start(t *testing.T) *Browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	switch {
	case err == nil:
	case os.Getenv("WEIR_REQUIRE_DOCKER") == "1", os.Getenv("WEIR_REQUIRE_LINT") == "1":
		t.Fatalf("chromium is not installed, and WEIR_REQUIRE_DOCKER or WEIR_REQUIRE_LINT is 1: %v", err)
	default:
		t.Skip("chromium is not installed")
	}
	toChild, in := pipe(t)
	out, fromChild := pipe(t)
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--hide-scrollbars", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{toChild, fromChild} // its file descriptors 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = errors.Join(toChild.Close(), fromChild.Close())
	b := &Browser{in: in, waiting: map[int]chan message{}, tabs: map[string]*Tab{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.read(out)
	}()
	t.Cleanup(func() {
		_, _ = b.call("", "Browser.close", nil) // it can end before it answers
		_ = in.Close()
		killer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer killer.Stop()
		_ = cmd.Wait() // its directory can be removed when it has ended
		<-done
	})
	return b
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

// read passes on what the browser sends, until it ends.
func (b *Browser) read(out io.Reader) {
	for r := bufio.NewReader(out); ; {
		text, err := r.ReadBytes(0)
		var m message
		if err == nil {
			err = json.Unmarshal(text[:len(text)-1], &m)
		}
		b.mu.Lock()
		if err != nil {
			b.err = err
			for id, to := range b.waiting {
				delete(b.waiting, id)
				close(to)
			}
			b.mu.Unlock()
			return
		}
		to, tab := b.waiting[m.ID], b.tabs[m.Session]
		delete(b.waiting, m.ID)
		b.mu.Unlock()
		switch {
		case to != nil:
			to <- m
		case tab != nil && m.Method != "":
			tab.event(m)
		}
	}
}

// call sends a command, and returns the answer.
func (b *Browser) call(session, method string, params any) (json.RawMessage, error) {
	text, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.last++
	m := message{ID: b.last, Session: session, Method: method, Params: text}
	if params == nil {
		m.Params = nil
	}
	answer := make(chan message, 1)
	b.waiting[m.ID] = answer
	if text, err = json.Marshal(m); err == nil && b.err == nil {
		_, err = b.in.Write(append(text, 0))
	}
	err = errors.Join(err, b.err)
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return nil, fmt.Errorf("%s: the browser has ended", method)
		case m.Error != nil:
			return nil, fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		return m.Result, nil
	case <-timeout.C:
		return nil, fmt.Errorf("%s: no answer in %v", method, patience)
	}
}
