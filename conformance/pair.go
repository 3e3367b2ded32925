package conformance

import (
	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A pair is two limiters with the same rules: one on the store under test, and one on the
// reference store.
type pair struct {
	*T
	lim, ref  *weir.Limiter
	reference store.Store
}

func (t *T) pair(c *clock, rules ...weir.Rule) pair { return t.pairOn(memory.New(nil), c, rules...) }

func (t *T) pairOn(reference store.Store, c *clock, rules ...weir.Rule) pair {
	return pair{T: t, lim: t.limiter(c, rules...), ref: t.limiterOn(reference, c, rules...), reference: reference}
}

// both makes a request on both stores, and checks that the answers are equal.
func (p pair) both(r weir.Request) weir.Result {
	if p.leases && r.Op == weir.Consume && r.ID == "" {
		r.ID = p.lease()
	}
	got, want := p.do(p.lim, r), p.do(p.ref, r)
	if got != want {
		p.errorf("request %+v:\ngot  %+v\nwant %+v, as on the reference store", r, got, want)
	}
	return got
}

// refund refunds the decision with the ID on both stores, and checks that the answers are
// equal.
func (p pair) refund(id string, key ...string) bool {
	return p.both(weir.Request{Key: weir.KeyOf(key...), Op: weir.Refund, ID: id}).Allowed
}

// same checks that keys hold the same values as on the reference store.
func (p pair) same(what any, keys ...string) {
	want, err := p.reference.MGet(p.ctx, keys, nil)
	if err != nil {
		p.fatalf("the reference store: %v", err)
	}
	for i, v := range p.mget(keys...) {
		if v != want[i] {
			p.errorf("%+v: key %q holds %q, on the reference store %q", what, keys[i], v.Str(), want[i].Str())
		}
	}
}
