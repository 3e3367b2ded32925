package admin

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/explain"
	"github.com/weir-go/weir/store"
)

var (
	//go:embed page.html
	pageHTML string

	//go:embed style.css
	style string

	templates = template.Must(template.New("page").Parse(pageHTML))

	styleVersion = func() string {
		sum := sha256.Sum256([]byte(style))
		return base64.RawURLEncoding.EncodeToString(sum[:9])
	}()
)

// paramStyle is the parameter of the URL of the stylesheet. Its value changes with the
// text.
const paramStyle = "style"

// policy is the Content-Security-Policy: nothing but the page's own stylesheet and forms.
const policy = "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// A handler is the page.
type handler struct {
	limiters   []*limiter
	byName     map[string]*limiter
	timeout    time.Duration
	seal       seal
	protection http.CrossOriginProtection
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	header.Add("Vary", "Accept")
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodPost:
		h.change(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD, POST")
		h.fail(w, r, nil, &problem{http.StatusMethodNotAllowed, "Unknown method.", "The page answers GET, HEAD and POST."})
	case query.Has(paramStyle):
		header.Set("Cache-Control", "private, max-age=31536000, immutable")
		header.Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write([]byte(style)) // an error means that the client has gone
	default:
		h.show(w, r, query)
	}
}

// A problem is why the page does not show what was asked for.
type problem struct {
	Status      int
	Title, Text string
}

// show answers with all limiters, one limiter, or a key.
func (h *handler) show(w http.ResponseWriter, r *http.Request, query url.Values) {
	if !query.Has(paramLimiter) {
		h.answer(w, r, http.StatusOK, h.overview(), h.list())
		return
	}
	l := h.byName[query.Get(paramLimiter)]
	if l == nil {
		h.fail(w, r, nil, noLimiter(query.Get(paramLimiter)))
		return
	}
	key, err := h.keyOf(l, query)
	switch {
	case err != nil:
		h.fail(w, r, l, &problem{http.StatusBadRequest, "The key cannot be shown.", sentence(err)})
		return
	case key == nil:
		h.answer(w, r, http.StatusOK, h.one(l), l.describe())
		return
	}
	doc, err := within(r.Context(), h.timeout, func(ctx context.Context) (*explain.Document, error) {
		lim, err := l.of(ctx, key)
		if err != nil {
			return nil, err
		}
		return explain.Explain(ctx, lim, key...)
	})
	for i := 0; err == nil && i < len(key); i++ {
		if !doc.Key[i].Hashed { // the page takes no hashes, so nothing looks like one
			doc.Key[i].Value = key[i]
		}
	}
	if err != nil {
		h.failKey(w, r, l, key, problemOf(err, ""))
		return
	}
	h.answer(w, r, http.StatusOK, h.key(l, key, doc, query), doc)
}

func noLimiter(name string) *problem {
	return &problem{http.StatusNotFound, "Unknown limiter.", fmt.Sprintf("The page has no limiter %s.", visible(name, maxCell))}
}

// problemOf returns what to say about an error of the store or of weir. lost says what
// may have happened if no answer came.
func problemOf(err error, lost string) *problem {
	switch {
	case errors.Is(err, weir.ErrInvalidKey):
		return &problem{http.StatusBadRequest, "The key is not valid.", sentence(err)}
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &problem{http.StatusServiceUnavailable, "The store is not available.", sentence(err) + lost}
	case errors.Is(err, weir.ErrUnsupported), errors.Is(err, weir.ErrInvalidRule):
		return &problem{http.StatusBadRequest, "The limiter cannot do this.", sentence(err)}
	}
	return &problem{http.StatusInternalServerError, "The store has answered with an error.", sentence(err)}
}

// sentence returns the text of err as a sentence.
func sentence(err error) string {
	text := strings.ToValidUTF8(strings.TrimPrefix(err.Error(), "weir: "), "\uFFFD")
	return first(text) + "."
}

// first returns text with a capital letter at its beginning.
func first(text string) string {
	r, n := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(r)) + text[n:]
}

// fail answers with a problem, on the page of l or, if l is nil, of all limiters.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, l *limiter, p *problem) {
	h.failKey(w, r, l, nil, p)
}

// failKey is fail on the page of a key.
func (h *handler) failKey(w http.ResponseWriter, r *http.Request, l *limiter, key []string, p *problem) {
	page := h.overview()
	switch {
	case l != nil && key != nil:
		page = h.key(l, key, nil, nil)
	case l != nil:
		page = h.one(l)
	}
	page.Error = p
	h.answer(w, r, p.Status, page, map[string]string{"error": p.Title + " " + p.Text})
}

// answer writes the page, or the document if the client prefers JSON.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, status int, page *page, document any) {
	var body bytes.Buffer
	contentType := "text/html; charset=utf-8"
	var err error
	if wantsJSON(r) {
		contentType = "application/json"
		encoder := json.NewEncoder(&body)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(document)
	} else {
		err = templates.Execute(&body, page)
	}
	if err != nil {
		http.Error(w, "admin: the page cannot be written: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = body.WriteTo(w) // an error means that the client has gone
}

// wantsJSON reports whether the client accepts JSON, and no HTML.
func wantsJSON(r *http.Request) bool {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	names := func(t string) bool {
		return slices.ContainsFunc(strings.Split(accept, ","), func(item string) bool {
			name, params, _ := mime.ParseMediaType(item)
			q, err := strconv.ParseFloat(params["q"], 64)
			return name == t && (err != nil || q > 0)
		})
	}
	return names("application/json") && !names("text/html")
}

// within returns what f returns, or an error when the time is over, even if f ignores its
// context. f then goes on in the background.
func within[T any](ctx context.Context, timeout time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the store did not answer within %v: %w", timeout, context.DeadlineExceeded))
	defer cancel()
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if p := recover(); p != nil { // in this goroutine, a panic would end the process
				o.err = fmt.Errorf("panic: %v", p)
			}
			done <- o
		}()
		o.value, o.err = f(ctx)
	}()
	var o outcome
	select {
	case o = <-done:
	case <-ctx.Done():
		o.err = ctx.Err()
	}
	if o.err != nil && ctx.Err() != nil {
		o.err = context.Cause(ctx)
	}
	return o.value, o.err
}
