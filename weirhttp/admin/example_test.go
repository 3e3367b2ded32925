package admin_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp/admin"
)

// The page authenticates nobody, so it is mounted behind the operators' log-in.
func Example() {
	lim, err := weir.New("api", memory.New(nil), algorithm.FixedWindow{Limit: 2, Window: time.Hour}, nil)
	if err != nil {
		panic(err)
	}
	var top observe.TopDenied
	if lim, err = lim.Wrap(top.Wrap); err != nil {
		panic(err)
	}
	page, err := admin.New([]admin.Limiter{{Name: "api", Limiter: lim, Denied: &top}}, nil)
	if err != nil {
		panic(err)
	}
	authenticate := func(next http.Handler) http.Handler { return next } // yours
	mux := http.NewServeMux()
	mux.Handle("/limits", authenticate(page))

	for range 3 {
		_, _ = lim.Allow(context.Background(), "ann")
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/limits?limiter=api&key=ann", nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output: 200 text/html; charset=utf-8
}
