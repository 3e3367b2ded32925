package weirhttp

import (
	"bufio"
	"cmp"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/weirhttp/internal/sfv"
)

// A Rejection says why the middleware does not pass a request on.
type Rejection struct {
	// Status is the status of the answer: 429, 400, 503 or 500. See the package
	// documentation.
	Status int

	// Result is the decision, if the request was denied.
	Result weir.Result

	// Violated names the rules that denied the request.
	Violated []string

	// Err is the error. It is nil if the request was denied. Do not show it to the
	// client.
	Err error
}

// A problem is a kind of answer, as RFC 9457 defines it.
type problem struct {
	Type     string   `json:"type,omitempty"` // empty means about:blank
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies,omitempty"`
}

// The types are those of draft-ietf-httpapi-ratelimit-headers-11, section 5.
const types = "https://iana.org/assignments/http-problem-types#"

var (
	quotaExceeded   = problem{Type: types + "quota-exceeded", Title: "Quota Exceeded", Status: http.StatusTooManyRequests}
	reducedCapacity = problem{Type: types + "temporary-reduced-capacity", Title: "Temporary Reduced Capacity", Status: http.StatusServiceUnavailable}
	badRequest      = problem{Title: "Bad Request", Status: http.StatusBadRequest}
	internalError   = problem{Title: "Internal Server Error", Status: http.StatusInternalServerError}
)

// problemOf returns the answer to a denied request.
func problemOf(res *weir.Result) *problem {
	if gate.Unsure(res) {
		return &reducedCapacity
	}
	return &quotaExceeded
}

// deny answers a denied request.
func (m *middleware) deny(w http.ResponseWriter, r *http.Request, res *weir.Result, s *gate.Scratch) {
	rules := s.Rules(res)
	if after := gate.RetryAfter(res, rules, cmp.Or(m.opts.LeaseRetryAfter, time.Second)); after != weir.Never {
		w.Header().Set("Retry-After", strconv.FormatInt(max(seconds(after), 1), 10))
	}
	why := Rejection{Result: *res}
	for _, rule := range rules {
		if !rule.Allowed {
			why.Violated = append(why.Violated, rule.Rule)
		}
	}
	if why.Violated == nil && res.Rule != "" {
		why.Violated = []string{res.Rule}
	}
	m.reject(w, r, problemOf(res), why)
}

// seconds returns d in seconds, rounded up.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// reject writes the answer to a request that is not passed on.
func (m *middleware) reject(w http.ResponseWriter, r *http.Request, p *problem, why Rejection) {
	why.Status = p.Status
	w.Header().Del("Content-Length") // of another answer
	if m.opts.Reject != nil {
		rw := &rejectWriter{ResponseWriter: w, status: p.Status}
		m.opts.Reject(rw, r, why)
		rw.start()
		return
	}
	body := *p
	if m.opts.Headers != NoHeaders {
		for _, rule := range why.Violated {
			body.Violated = append(body.Violated, sfv.Plain(rule))
		}
	}
	text, _ := json.Marshal(body) // a struct of strings has no error
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(text, '\n')) // an error means that the client has gone
}

// A rejectWriter is a ResponseWriter whose default status is not 200.
type rejectWriter struct {
	http.ResponseWriter

	status  int
	started bool
}

func (w *rejectWriter) start() {
	if !w.started {
		w.WriteHeader(w.status)
	}
}

func (w *rejectWriter) WriteHeader(status int) {
	w.started = w.started || status >= http.StatusOK // others are informational
	w.ResponseWriter.WriteHeader(status)
}

func (w *rejectWriter) Write(b []byte) (int, error) {
	w.start()
	return w.ResponseWriter.Write(b)
}

// FlushError is for http.ResponseController.
func (w *rejectWriter) FlushError() error {
	w.start()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack is for http.ResponseController. The connection then has no other answer.
func (w *rejectWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.started = w.started || err == nil
	return conn, buffer, err
}

// Unwrap is for http.ResponseController.
func (w *rejectWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
