// Api is a small HTTP server with plans for the customers of an API, a limit of log-ins, a
// client of somebody else's service, answers during an outage of Redis, and metrics. For a
// budget that is settled, see examples/llm.
//
//	go run ./examples/api
//	go run ./examples/api -redis localhost:6379
package main

import (
	"cmp"
	"context"
	"errors"
	"expvar"
	"flag"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// processes is how many processes of this server share the limits.
const processes = 2

func main() {
	addr := flag.String("addr", "localhost:8080", "the address to listen on")
	server := flag.String("redis", "", "the address of Redis; empty means that the limits are kept in memory")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("%q is no flag: for example, the address of Redis follows -redis", flag.Arg(0))
	}
	var st store.Store = memory.New(nil)
	if *server != "" {
		rdb := redis.NewClient(&redis.Options{
			Addr: *server, MaxRetries: -1, ContextTimeoutEnabled: true,
			// DialerRetries: 1, // from go-redis v9.15 on: without it, a dead server looks slow
		})
		st = store.Coalesce(goredis.New(rdb))
	}
	handler, err := newHandler(st, http.DefaultTransport)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on http://%s", *addr)
	log.Fatal(http.ListenAndServe(*addr, handler))
}

// plans are the customers' plans by API key: an application has a table of them.
var plans = map[string]string{"key-of-ann": "free", "key-of-bob": "pro"}

// newHandler returns the routes of the server. Its limits are kept in st, and its requests
// to other services go through out.
func newHandler(st store.Store, out http.RoundTripper) (http.Handler, error) {
	api, err1 := newPlans(st)
	login, err2 := newLogin(st)
	rates, err3 := newRates(st, out)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /items", api(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "some items") })))
	mux.Handle("GET /rates", api(rates))
	mux.Handle("POST /login", login)
	mux.Handle("GET /metrics", expvar.Handler())
	return mux, nil
}

// outcomes counts decisions by limiter, rule and outcome.
var outcomes = expvar.NewMap("weir")

// newLimiter returns a limiter that counts its decisions, in the wrappers.
func newLimiter(st store.Store, p weir.Policy, wrappers ...weir.Wrapper) (*weir.Limiter, error) {
	lim, err := weir.NewPolicy(st, p, nil)
	if err != nil {
		return nil, err
	}
	counted := observe.Observer(func(_ context.Context, d observe.Decision) {
		outcomes.Add(fmt.Sprint(p.Name, " ", cmp.Or(d.Result.Rule, "-"), " ", d.Outcome()), 1)
	})
	return lim.Wrap(append([]weir.Wrapper{counted.Wrap}, wrappers...)...)
}

// newPlans returns the middleware that limits each customer by the plan of its API key. If
// the store is away, each process allows its share.
func newPlans(st store.Store) (func(http.Handler) http.Handler, error) {
	rule := func(perMinute int64) weir.Rule {
		return weir.Rule{Algorithm: algorithm.TokenBucket{Capacity: perMinute, Refill: algorithm.PerMinute(perMinute)}}
	}
	out := outage.New(&outage.Options{Fallback: outage.Local, Processes: processes})
	free, err := newLimiter(st, weir.Policy{
		Name: "api", Segments: []string{"key"}, Secret: []string{"key"}, Rules: []weir.Rule{rule(10)},
	}, denycache.New(nil).Wrap, out.Wrap) // remembered denials count too
	if err != nil {
		return nil, err
	}
	pro, err := free.With(rule(1000))
	if err != nil {
		return nil, err
	}
	limiters := map[string]weir.Decider{"free": free, "pro": pro}
	return weirhttp.New(free, weirhttp.By(weirhttp.Header("X-API-Key")), &weirhttp.Options{
		Headers: weirhttp.RateLimitDraft11,
		Plan: func(r *http.Request) (weir.Decider, error) {
			if lim := limiters[plans[r.Header.Get("X-API-Key")]]; lim != nil {
				return lim, nil
			}
			return nil, weirhttp.ErrNoKey
		},
	})
}

// newLogin returns the log-in, limited by address, and by account from all addresses. A log-in
// with the right password clears the attempts at its account, also those of an attacker: see
// docs/guide/log-in.md. If the store is away, nobody logs in. All keys share the segment site,
// because they must have one cluster slot.
func newLogin(st store.Store) (http.Handler, error) {
	lim, err := newLimiter(st, weir.Policy{
		Name:     "login",
		Segments: []string{"site", "address", "account"},
		Rules: []weir.Rule{
			{Name: "address", By: []string{"site", "address"}, Algorithm: algorithm.SlidingLog{Limit: 20, Window: 15 * time.Minute}},
			{Name: "attempts", By: []string{"site", "account"}, Algorithm: algorithm.SlidingLog{Limit: 5, Window: 15 * time.Minute}},
		},
	}, outage.New(nil).Wrap)
	if err != nil {
		return nil, err
	}
	site := weirhttp.Text("api")
	account := func(r *http.Request) (string, error) {
		return strings.ToLower(strings.TrimSpace(r.FormValue("account"))), nil // one spelling
	}
	limit, err := weirhttp.New(lim, weirhttp.By(site, weirhttp.RemoteIP, account), nil)
	if err != nil {
		return nil, err
	}
	attempts, err := lim.Only("attempts")
	if err != nil {
		return nil, err
	}
	return limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "secret" {
			http.Error(w, "wrong account or password", http.StatusUnauthorized)
			return
		}
		name, _ := account(r)
		if err := attempts.Reset(r.Context(), "api", "any", name); err != nil { // the rule ignores the address
			log.Print("the attempts stay: ", err)
		}
		fmt.Fprintln(w, "welcome")
	})), nil
}

// newRates returns a handler that asks a service of somebody else, which allows five
// requests per second: of all processes together, and with a margin for jitter. If the store is
// away, nobody asks.
func newRates(st store.Store, out http.RoundTripper) (http.Handler, error) {
	pace := algorithm.LeakyBucket{Rate: algorithm.Rate{Count: 9, Period: 2 * time.Second}, Queue: 50}
	lim, err := newLimiter(st, weir.Policy{Name: "rates", Rules: []weir.Rule{{Algorithm: pace}}}, outage.New(nil).Wrap)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &weirhttp.Transport{Limiter: lim, Base: out}, Timeout: 5 * time.Second}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ask, err := http.NewRequestWithContext(r.Context(), "GET", "https://rates.example/latest", nil)
		if err != nil {
			http.Error(w, "no rates", http.StatusInternalServerError)
			return
		}
		res, err := client.Do(ask)
		if err != nil {
			log.Print("no rates: ", err)
			http.Error(w, "no rates now", http.StatusServiceUnavailable)
			return
		}
		defer res.Body.Close()
		fmt.Fprintln(w, "rates:", res.Status)
	}), nil
}
