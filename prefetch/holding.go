package prefetch

import (
	"container/list"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
)

const (
	part = 4 // a prefetch asks for at most a fourth of the remaining tokens
	ways = 4 // the number of places in which a key can be
)

// A holding holds the tokens of a key. Its key and limits do not change.
type holding struct {
	key    weir.Key
	limits limits

	mu      sync.Mutex
	current *fetched      // the tokens that can be used; nil if there are none
	busy    chan struct{} // closed at the end of the prefetch that is under way; nil if there is none
	asked   int64         // what the prefetch under way asks for, without what goroutines wait for
	brought bool          // the last prefetch brought tokens
	resets  uint32        // how often the key was reset
	gone    bool          // another key has its place

	remaining int64         // in the store, as it last answered
	own, all  int64         // tokens that this process used, and that all used, between the last two answers
	spent     int64         // tokens used since the last answer
	size      int64         // how many tokens to ask for
	used      int64         // tokens, since the time since
	since     time.Duration // when size was last changed
	last      time.Duration // when a token was last needed
}

// A fetched is the decision of one prefetch. The mutex of its holding guards held and
// used.
type fetched struct {
	holding *holding
	decider *decider // which made the decision
	id      string   // of the decision
	charged int64    // what the decision consumed in the store; it can be settled
	held    int64    // tokens of the process, used or not
	used    int64

	result weir.Result   // of the prefetch, without Granted
	each   []weir.Result // of its rules

	at    time.Duration // before the prefetch
	until time.Duration // the end of the use of its tokens
	worth time.Duration // after it, unused tokens are no longer in any limit

	place *list.Element // in the list of the owed; nil if it is not there
	ended bool          // nobody can use its tokens
}

// start sets the fields of f that follow from its result res.
func (f *fetched) start(res *weir.Result) {
	d := f.decider
	f.result = *res
	f.result.Granted = 0
	f.result.Remaining += res.Granted - f.charged
	f.until, f.worth = f.at+d.opts.MaxAge, f.at
	for i := range f.each {
		r := &f.each[i]
		r.Granted = 0
		r.Remaining += res.Granted - f.charged
		end := f.at + min(r.ResetAfter, weir.Never/2)
		f.worth = max(f.worth, end)
		if !d.rules[i].Reserves { // a window can end, while a bucket is refilled
			f.until = min(f.until, max(end, f.at+1))
		}
	}
}

// serve uses cost tokens, if there are as many, and sets res and each to the answer.
// Otherwise it returns false.
func (h *holding) serve(now time.Duration, cost int64, res *weir.Result, each []weir.Result) bool {
	h.last = now
	f := h.current
	if f == nil || now < f.at || now >= f.until || f.held-f.used < cost {
		return false
	}
	f.used += cost
	h.use(cost)
	left, age := f.held-f.used, now-f.at
	f.answer(res, &f.result, cost, left, age)
	if len(each) > 0 {
		for i := range f.each {
			f.answer(&each[i], &f.each[i], cost, left, age)
		}
	}
	return true
}

// answer sets res to the answer to a request with that cost, which leaves left tokens of
// f. was is the result of the prefetch, which has that age.
func (f *fetched) answer(res, was *weir.Result, cost, left int64, age time.Duration) {
	*res = *was
	res.Granted = cost
	res.Remaining += left
	res.Age(age)
}

// ask returns how many tokens to prefetch for a request with that cost, which needs them
// now. It returns 0 if the request should consume its own tokens only.
func (h *holding) ask(now time.Duration, cost int64, o *Options) int64 {
	if cost > o.MaxTokens/2 {
		return 0
	}
	h.adapt(now, cost, o)
	high, low := bits.Mul64(uint64(h.remaining/part), uint64(h.own)) // so that all processes ask for one part
	fair, _ := bits.Div64(high, low, uint64(h.all))
	n := min(h.size, int64(fair))
	if n -= n % cost; n < 2*cost {
		return 0
	}
	return n
}

// use notes that n tokens were used.
func (h *holding) use(n int64) {
	h.used += n
	h.spent += n
}

// note notes what remains in the store after it granted a number of tokens.
func (h *holding) note(granted, remaining int64) {
	h.own = max(h.spent, 1)
	h.all = h.own + max(h.remaining-granted-remaining, 0)
	h.remaining, h.spent = max(remaining, 0), 0
}

// adapt sets size to the tokens that the key uses in half of MaxAge, so that they are
// used in time, and at most doubles it.
func (h *holding) adapt(now time.Duration, cost int64, o *Options) {
	half, past := o.MaxAge/2, now-h.since
	if past < 0 {
		h.since, h.used = now, 0
		return
	}
	used := min(h.used, 2*o.MaxTokens)
	want := used * half.Microseconds() / max(past.Microseconds(), 1)
	switch {
	case want > h.size:
		h.size = min(want, 2*max(h.size, cost), o.MaxTokens)
	case past < half:
		return // it is too early to tell
	default:
		h.size = max(want, 1)
	}
	h.since, h.used = now, 0
}

// learn notes the answer to a request that consumed its own tokens, or was denied. h can
// be nil.
func (h *holding) learn(res *weir.Result) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note(res.Granted, res.Remaining)
	h.use(res.Granted)
}

// end ends the use of the tokens of h. The caller holds h.mu.
func (h *holding) end(o *owed) {
	if f := h.current; f != nil {
		h.current, f.held = nil, f.used
		o.end(f)
	}
}

// idle reports whether another key can have the place of h. Its tokens are then too old
// to be used. If h.last is slightly later than now, another goroutine has just used h. If
// it is much later, the clock was set back. The caller holds h.mu.
func (h *holding) idle(now, most time.Duration) bool {
	return h.busy == nil && (now-h.last > most || h.last-now > most)
}

// place returns the first place of a key, or one of those after it.
func (p *Pool) place(hash uint64, after int) *atomic.Pointer[holding] {
	return &p.places[(hash+uint64(after))&uint64(len(p.places)-1)]
}

// find returns the holding of a key, or nil.
func (p *Pool) find(key *weir.Key, l *limits) *holding {
	hash := key.Hash(p.seed)
	for i := range ways {
		if h := p.place(hash, i).Load(); h != nil && h.key.Equal(key) && h.limits == *l {
			return h
		}
	}
	return nil
}

// hold returns the holding of a key, and makes it if there is none. It returns nil if
// busy keys have all its places. The key is used since the time since.
func (p *Pool) hold(key *weir.Key, l *limits, since time.Duration) *holding {
	if key.Size() > maxKeySize {
		return nil
	}
	p.making.Lock()
	defer p.making.Unlock()
	if h := p.find(key, l); h != nil {
		return h
	}
	hash, now := key.Hash(p.seed), p.now()
	for i := range ways {
		place := p.place(hash, i)
		old := place.Load()
		if old != nil {
			old.mu.Lock()
			old.gone = old.idle(now, p.opts.MaxAge)
			gone := old.gone
			old.mu.Unlock()
			if !gone {
				continue
			}
		}
		h := &holding{key: key.Clone(), limits: *l, size: 1, since: since, last: now, own: 1, all: 1}
		place.Store(h)
		return h
	}
	return nil
}

// drop ends the use of all tokens of a key, whatever their limits are.
func (p *Pool) drop(key *weir.Key) {
	hash := key.Hash(p.seed)
	for i := range ways {
		if h := p.place(hash, i).Load(); h != nil && h.key.Equal(key) {
			h.mu.Lock()
			h.resets++
			h.end(&p.owed)
			h.mu.Unlock()
		}
	}
}
