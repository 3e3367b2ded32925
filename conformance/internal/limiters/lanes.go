package limiters

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/internal/model"
)

// lanes are a whole limit and a lane, which keeps tokens of it free.
type lanes struct {
	*decisions.T
	decisions.Kind
	whole, lane *weir.Limiter
	kept        int64
}

// checkLanes uses up whole limits, and then makes random requests. If the backend gives a
// Peer, another process has the lanes.
func checkLanes(t *decisions.T) {
	r, other := t.Rand(), t.Store
	if t.HasPeer() {
		other = t.Peer()
	}
	for h := range t.Times(4) {
		limit := 2 + r.Int64N(8)
		kept := 1 + r.Int64N(limit-1)
		for i, a := range kinds(limit) {
			c, rule, key := decisions.NewClock(), decisions.One(a), "lanes"+strconv.Itoa(h)+"."+strconv.Itoa(i)
			lane := suite.Must[*weir.Limiter](t.T, "With")(t.Reference(other, c, rule).With(decisions.One(kinds(limit - kept)[i])))
			l := &lanes{t, t.KindOf(a), t.Limiter(c, rule), lane, kept}
			t.Leases = l.Kind.Leases
			l.useUp(lane, key+"all", limit-kept)
			l.useUp(l.whole, key+"all", kept)
			for range 24 {
				req := weir.Request{
					Key: weir.KeyOf(key), Cost: 1 + r.Int64N(3), Op: model.Pick(r, weir.Consume, weir.Consume, weir.TakeUpTo),
					MaxWait: model.Pick(r, 0, 0, model.Wait(r, t.Unit(a))),
				}
				wait := l.decide(req, r.IntN(3) == 0) % weir.Never
				c.Advance(model.Pick(r, 0, max(model.Pause(r, t.Unit(a)), 0), wait, max(wait-time.Microsecond, 0)))
			}
			t.StopFailed("the lane keeps %d tokens of %+v", kept, a)
		}
	}
}

// useUp sends requests of many callers to lim, and checks that as many as want are allowed.
func (l *lanes) useUp(lim *weir.Limiter, key string, want int64) {
	var got atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		r := weir.Request{Key: weir.KeyOf(key)}
		if l.Kind.Leases {
			r.ID = l.Lease()
		}
		if l.Queues {
			r.MaxWait = weir.Never
		}
		l.Goes(&wg, func() {
			res, err := lim.Decide(l.Ctx, r, nil)
			if err != nil {
				l.Errorf("Decide %+v: %v", r, err)
			}
			got.Add(res.Granted)
		})
	}
	wg.Wait()
	l.Equal(got.Load(), want, "many callers consumed %d tokens, want %d")
}

// decide decides r with the lane, compares the answer with a Peek of the whole limit at kept
// tokens more, and returns RetryAfter. If past is true, the whole limit decides.
func (l *lanes) decide(r weir.Request, past bool) time.Duration {
	switch {
	case l.Kind.Leases:
		r.Op, r.Cost, r.MaxWait = weir.Consume, 1, 0
	case !l.Reserves:
		r.MaxWait = 0
	case l.Queues || r.MaxWait > 0:
		r.Op = weir.Consume
	}
	if past {
		return l.Do(l.whole, r).RetryAfter
	}
	ask := r
	if ask.Op, ask.Cost = weir.Peek, r.Cost+l.kept; l.Kind.Leases || r.Op == weir.TakeUpTo {
		ask.Cost = 1
	}
	want, granted := l.Do(l.whole, ask), int64(0)
	if ask.Cost == 1 {
		granted = min(r.Cost, max(want.Remaining-l.kept, 0))
	} else if want.Allowed {
		granted = r.Cost
	}
	got := l.Do(l.lane, r)
	if got.Granted != granted || ask.Cost > 1 && got.RetryAfter != want.RetryAfter {
		l.Errorf("%+v: got %+v from a lane that keeps %d, and %+v from the whole limit for %+v", r, got, l.kept, want, ask)
	}
	return got.RetryAfter
}
