package prefetch

import (
	"github.com/weir-go/weir"
)

// Held returns the number of tokens of a key that p holds and lim can use. It is 0 if p
// is nil.
func (p *Pool) Held(lim *weir.Limiter, key ...string) int64 {
	if p == nil {
		return 0
	}
	k, l := weir.KeyOf(key...), limits(lim.Digest())
	h := p.find(&k, &l)
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.current; f != nil && p.now() < f.until {
		return f.held - f.used
	}
	return 0
}
