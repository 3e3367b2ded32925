// Command llm is a reverse proxy for an API like OpenAI's, with limits of requests, tokens and money:
//
//	OPENAI_API_KEY=... go run ./examples/llm     # with -redis localhost:6379, on a server
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"expvar"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

const model, inputPrice, outputPrice = "gpt-4o-mini", 15, 60 // microcents per token
var users = map[string]weir.Key{"key-of-ann": weir.KeyOf("acme", "ann"), "key-of-bob": weir.KeyOf("acme", "bob")}
var decisions = expvar.NewMap("decisions") // served at /debug/vars

func main() {
	addr := flag.String("redis", "", "`address` of a Redis or Valkey server; if empty, state is kept in memory")
	flag.Parse()
	var st store.Store = memory.New(nil)
	if *addr != "" {
		st = goredis.New(redis.NewClient(&redis.Options{Addr: *addr}))
	}
	g, err := newGateway(st, &url.URL{Scheme: "https", Host: "api.openai.com"}, os.Getenv("OPENAI_API_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	go g.sweep(context.Background(), time.Tick(time.Minute), func(string) (u usage, known bool) { return }) // ask your provider
	http.Handle("POST /v1/chat/completions", g)
	log.Fatal(http.ListenAndServe("localhost:8080", nil))
}

// A gateway limits calls. The map calls stands for a table of your database.
type gateway struct {
	lim     *weir.Limiter
	limited http.Handler
	calls   sync.Map // by ID
}

// A call is a row of the table, and its answer.
type call struct {
	weir.Request
	answer bytes.Buffer
	actual weir.Actual // zero if it is unknown, so that the estimate stays
	ended  atomic.Bool // it is settled
}

type callKey struct{}

func callOf(r *http.Request) *call { return r.Context().Value(callKey{}).(*call) }

type usage struct {
	Input  int64 `json:"prompt_tokens"`
	Output int64 `json:"completion_tokens"`
}

func (u usage) costs() weir.Costs {
	return weir.CostsOf(map[string]int64{"input": u.Input, "output": u.Output, "microcents": u.Input*inputPrice + u.Output*outputPrice})
}

func newGateway(st store.Store, provider *url.URL, secret string) (*gateway, error) {
	team, units, perMinute := []string{"team"}, []string{"input", "output", "microcents"}, algorithm.PerMinute
	lim, err := weir.NewPolicy(st, weir.Policy{Name: "llm", Segments: []string{"team", "user"}, Units: units, Rules: []weir.Rule{
		{Name: "parallel", Algorithm: algorithm.Concurrency{Limit: 4, Lease: time.Minute}, Cost: 1},
		{Name: "requests", Algorithm: algorithm.TokenBucket{Refill: perMinute(60), Capacity: 60}, Cost: 1},
		{Name: "input", By: team, Unit: "input", Algorithm: algorithm.TokenBucket{Refill: perMinute(10_000), Capacity: 10_000}},
		{Name: "output", By: team, Unit: "output", Algorithm: algorithm.TokenBucket{Refill: perMinute(6_000), Capacity: 6_000}},
		{Name: "month", By: team, Unit: "microcents", Algorithm: algorithm.Calendar{Limit: 50_000_000_000, Every: algorithm.Month, Day: 17, Zone: "Europe/Berlin"}},
		{Name: "provider", By: team, Algorithm: algorithm.Pause{}},
	}}, &weir.Options{Settles: true})
	lim, bad := lim.Wrap(observe.Observer(func(_ context.Context, d observe.Decision) {
		decisions.Add(d.Request.Op.String()+" "+d.Result.Rule+" "+string(d.Outcome()), 1)
	}).Wrap)
	g := &gateway{lim: lim}
	proxy := &httputil.ReverseProxy{ModifyResponse: g.modify, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(provider)
		r.Out.Header.Set("Authorization", "Bearer "+secret)
		r.Out.Header.Set("X-Client-Request-Id", callOf(r.In).ID) // for the sweeper
		r.Out.Header.Del("Accept-Encoding")                      // so that the usage can be read
	}, ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
		if op := new(net.OpError); errors.As(err, &op) && op.Op == "dial" { // the provider has not got the call
			callOf(r).actual = weir.ActualRefund()
		}
		log.Print(err)
		http.Error(w, "the provider does not answer", http.StatusBadGateway)
	}}
	request := func(r *http.Request) (weir.Request, error) { return callOf(r).Request, nil }
	limit, failed := weirhttp.New(lim, request, &weirhttp.Options{Timeout: time.Second, OnError: func(r *http.Request, err error) {
		log.Print(err)
		callOf(r).ended.Store(false)
	}})
	if err = errors.Join(err, bad, failed); err != nil {
		return nil, err
	}
	g.limited = limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r)
		ctx, cancel := context.WithTimeout(r.Context(), 50*time.Second) // less than the lease, which nobody renews
		defer cancel()
		c.actual = weir.Actual{}
		defer func() { // also if the client leaves: the proxy then panics
			for _, event := range bytes.Split(c.answer.Bytes(), []byte("\ndata:")) { // or the whole body
				var last struct{ Usage *usage }
				if json.Unmarshal(event, &last) == nil && last.Usage != nil {
					c.actual = weir.ActualCosts(last.Usage.costs())
				}
			}
			c.ended.Store(weirhttp.Settle(ctx, c.actual) == nil && c.actual != weir.Actual{})
		}()
		proxy.ServeHTTP(w, r.WithContext(ctx))
	}))
	return g, nil
}

// ServeHTTP gives the provider each call once, even if the client repeats it.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, found := users[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	body := map[string]any{"max_tokens": 1000.0}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	err = errors.Join(err, json.Unmarshal(text, &body))
	most, _ := body["max_tokens"].(float64)
	if !found || err != nil || most < 1 || most > 6000 {
		http.Error(w, "the API key, the body or its max_tokens is not valid", http.StatusBadRequest)
		return
	}
	// The client chooses the Idempotency-Key, so the ID depends on the user and the body too.
	id := fmt.Appendf(nil, "%q %q %s", key.Segments(), cmp.Or(r.Header.Get("Idempotency-Key"), rand.Text()), text)
	c := &call{Request: weir.Request{Key: key, ID: fmt.Sprintf("%x", sha256.Sum256(id))}, actual: weir.ActualRefund()}
	c.Costs = usage{int64(len(text))/3 + 1, int64(most)}.costs() // a token has about four bytes
	if _, found := g.calls.LoadOrStore(c.ID, c); found {
		http.Error(w, "the provider has got this call: use a new Idempotency-Key", http.StatusConflict)
		return
	}
	defer func() {
		if c.actual == weir.ActualRefund() { // denied or refunded, so the client can repeat it
			g.calls.Delete(c.ID)
		}
	}()
	body["model"], body["max_tokens"], body["max_completion_tokens"], body["n"] = model, int64(most), nil, 1 // what is counted
	if body["stream"] == true {
		body["stream_options"] = map[string]bool{"include_usage": true}
	}
	text, _ = json.Marshal(body)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	g.limited.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
}

// modify keeps the answer. If the provider could do no work, the call costs nothing. A 429 pauses the team.
func (g *gateway) modify(res *http.Response) (err error) {
	c := callOf(res.Request)
	res.Body = io.NopCloser(io.TeeReader(res.Body, &c.answer)) // the end of ctx closes it
	if res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= 500 {
		c.actual = weir.ActualRefund()
	} else if res.StatusCode >= 300 { // the client's fault costs a request
		c.actual = weir.ActualCosts(usage{}.costs())
	}
	if d, _ := time.ParseDuration(res.Header.Get("Retry-After") + "s"); d > 0 && res.StatusCode == http.StatusTooManyRequests {
		_, err = g.lim.Pause(res.Request.Context(), min(d, 10*time.Minute), c.Key.Segments()...)
	}
	return err
}

// sweep settles the calls without an end, for example after a crash, whose usage lookup knows.
func (g *gateway) sweep(ctx context.Context, tick <-chan time.Time, lookup func(id string) (u usage, known bool)) {
	for range tick {
		for _, value := range g.calls.Range {
			c := value.(*call)
			if u, known := lookup(c.ID); known && !c.ended.Load() {
				done, err := g.lim.SettleCosts(ctx, c.Request, u.costs()) // not Finish: a retry can run
				c.ended.Store(err == nil && done.Found)
			}
		}
	}
}
