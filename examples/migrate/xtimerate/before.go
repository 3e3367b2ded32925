// Package xtimerate moves a program from golang.org/x/time/rate to weir.
package xtimerate

import (
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Before limits each user to a request in 20 seconds and a burst of 3.
func Before(next http.Handler) http.Handler {
	var mu sync.Mutex
	users := make(map[string]*rate.Limiter)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		limiter, ok := users[r.Header.Get("X-User")]
		if !ok {
			limiter = rate.NewLimiter(rate.Every(20*time.Second), 3)
			users[r.Header.Get("X-User")] = limiter
		}
		mu.Unlock()
		if !limiter.Allow() {
			http.Error(w, "slow down", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}
