package algorithms

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
)

func checkHuge(t *T) {
	r := t.Rand()
	list := slices.Clone(t.subject.Huge)
	for range t.Times(16) {
		list = append(list, t.Draw(r))
	}
	for i, a := range list {
		t.Leases = t.KindOf(a).Leases
		for j, at := range []int64{decisions.NewClock().Micros, 1<<52 - 1} {
			if t.Brief && i%2 != j { // each algorithm at one of the times
				continue
			}
			t.hugeNumbers(a, &decisions.Clock{Micros: at}, "huge"+strconv.Itoa(i)+"."+strconv.Itoa(j))
		}
	}
}

// hugeNumbers makes requests for large parts of the limit, and compares the answers with
// those on the memory store.
func (t *T) hugeNumbers(a algorithm.Algorithm, c *decisions.Clock, key string) {
	p := t.Pair(c, decisions.One(a))
	refunds := t.refundable(a)
	ask := weir.Request{Key: weir.KeyOf(key), Op: weir.Peek}
	peek := func() weir.Result { return p.Both(ask) }
	fresh := peek()
	limit := fresh.Limit
	if fresh.Remaining != limit {
		t.Errorf("%+v: a fresh key has fewer tokens than the limit: %+v", a, fresh)
	}
	list := []weir.Request{{}, {Cost: limit / 3}, {Cost: 1}, {Cost: limit / 2}, {Cost: limit}, {Op: weir.TakeUpTo, Cost: hugeCost}}
	if longest := t.LongestWait(a); longest > 0 {
		for _, cost := range []int64{limit, limit/3 + 1, 1, limit} {
			list = append(list, weir.Request{Cost: cost, MaxWait: longest})
		}
		list = append(list, weir.Request{}, weir.Request{Cost: limit, MaxWait: weir.Never}, weir.Request{Cost: limit/2 + 1, MaxWait: weir.Never}, weir.Request{MaxWait: weir.Never})
	}
	for s, req := range list {
		if t.Leases && req.Op == weir.TakeUpTo {
			continue
		}
		if c.Micros < 1<<52-1 {
			c.Advance(7 * time.Microsecond)
		}
		before := t.Do(p.Ref, ask)
		if req.Key = weir.KeyOf(key); req.Op == weir.Consume {
			req.Cost = t.Fitting(a, max(req.Cost, 1))
		}
		if refunds && s%2 == 0 {
			req.ID = strconv.Itoa(s)
		}
		got := p.Both(req)
		if req.MaxWait > 0 {
			continue
		}
		fits := max(req.Cost, 1) <= before.Remaining || req.Op == weir.TakeUpTo && before.Remaining > 0
		if left := before.Remaining - got.Granted; got.Allowed != fits || got.Remaining != left && got.Window == before.Window && !t.queues(a, p.Lim, got, left, key) {
			t.Errorf("%+v, step %d, %+v, with %d tokens left: got %+v", a, s, req, before.Remaining, got)
		}
	}
	if refunds {
		for _, s := range []int{0, 4, 2, 12, 8, 6, 10} {
			p.Refund(strconv.Itoa(s), key)
			peek()
		}
	}
	if most := t.LimitOf(a).MaxCost; most > 0 {
		req := weir.Request{Key: weir.KeyOf(key), Cost: most + 1}
		if t.Leases {
			req.ID = t.Lease()
		}
		if _, err := p.Lim.Decide(t.Ctx, req, nil); !errors.Is(err, weir.ErrInvalidCost) {
			t.Errorf("%+v: a request for %d tokens: got error %v, want ErrInvalidCost", a, req.Cost, err)
		}
	}
	p.Same(a, t.KeysOf(key, "one", a)...)
	if refunds {
		t.hugeDebt(p, a, ask.Key)
	}
	p.Both(weir.Request{Key: ask.Key, Op: weir.Reset})
	t.Equal(peek(), fresh, "%+v: after Reset got %+v, want %+v", a)
}

// hugeDebt goes into debt as far as a can, refunds parts of it, and compares the answers with
// those on the memory store.
func (t *T) hugeDebt(p decisions.Pair, a algorithm.Algorithm, key weir.Key) {
	limit := t.LimitOf(a)
	if limit.MaxDebt == 0 || limit.MaxCost > 0 {
		return
	}
	request := func(op weir.Op, id int) weir.Request {
		return weir.Request{Key: key, Op: op, ID: "debt" + strconv.Itoa(id)}
	}
	for id, cost := range []int64{limit.MaxDebt / 3, 1, limit.MaxDebt / 2, limit.MaxDebt + limit.Capacity} {
		force := request(weir.Force, id)
		force.Cost = max(cost, 1)
		p.Both(force)
	}
	settle := request(weir.Settle, 2)
	settle.Actual = weir.ActualCost(limit.MaxDebt / 9)
	p.Both(settle)
	for _, id := range []int{1, 0, 3, 2} {
		p.Both(request(weir.Refund, id))
		p.Both(weir.Request{Key: key, Op: weir.Peek})
	}
	p.Same(a, t.KeysOf(key.Segments()[0], "one", a)...)
}
