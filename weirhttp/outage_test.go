package weirhttp_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// A request that is denied without the store is answered with 503, unless it can never be
// allowed.
func TestDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, err := weir.New("test", down{memory.New(nil)}, algorithm.FixedWindow{Limit: 3, Window: time.Hour}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if lim, err = lim.OnOutage(weir.Outage{Fallback: weir.FailLocal, Processes: 2, Failures: 1}); err != nil {
			t.Fatal(err)
		}
		request := func(r *http.Request) (weir.Request, error) {
			req, err := all(r)
			req.Cost = int64(len(r.Header.Get("Cost")))
			return req, err
		}
		limit, errs := newMiddleware(t, lim, request, weirhttp.Options{})
		next := new(counting)
		for i, want := range []struct {
			status int
			after  string
			body   string
			cost   string
		}{
			{status: 204},
			{status: 503, after: "1", body: "temporary-reduced-capacity"},
			{status: 429, body: "quota-exceeded", cost: "four"},
		} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Cost", want.cost)
			w := serve(limit(next), r)
			if w.Code != want.status || w.Header().Get("Retry-After") != want.after || !strings.Contains(w.Body.String(), want.body) {
				t.Errorf("request %d: got %d, %v and %s, want %+v", i, w.Code, w.Header(), w.Body, want)
			}
		}
		if next.calls != 1 || len(*errs) != 0 {
			t.Errorf("%d calls of the handler and errors %v, want 1 and none", next.calls, *errs)
		}
	})
}
