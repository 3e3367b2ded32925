package denycache_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
)

// A fixed is a Decider with one answer for all requests. It counts them, and calls
// during, if there is one, before it answers.
type fixed struct {
	res    weir.Result
	err    error
	during func()
	n      int
}

func (f *fixed) Decide(context.Context, weir.Request, []weir.Result) (weir.Result, error) {
	f.n++
	if f.during != nil {
		f.during()
	}
	return f.res, f.err
}

// in returns f in a Cache.
func (f *fixed) in(t *testing.T, o denycache.Options) weir.Decider {
	t.Helper()
	d, err := denycache.New(&o).Wrap(nil, f)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// ask makes the decision r through d, and reports whether it reached f.
func (f *fixed) ask(t *testing.T, d weir.Decider, r weir.Request) bool {
	t.Helper()
	before := f.n
	if res, err := d.Decide(t.Context(), r, nil); err != f.err || res.Allowed {
		t.Fatalf("got %+v, %v", res, err)
	}
	return f.n > before
}

// denied is a denial for an hour.
var denied = weir.Result{Delay: weir.Never, Rule: "r", Limit: 1, Window: time.Hour, RetryAfter: time.Hour, ResetAfter: time.Hour}

// denial returns denied after a change.
func denial(change func(res *weir.Result)) weir.Result {
	res := denied
	change(&res)
	return res
}

// Which denials are remembered, for which requests, and for how long.
func TestRemembers(t *testing.T) {
	t.Parallel()
	u := weir.KeyOf("u")
	same := weir.Request{Key: u}
	of := func(amounts map[string]int64) weir.Request { return weir.Request{Key: u, Costs: weir.CostsOf(amounts)} }
	long := func(n int) weir.Request {
		return weir.Request{Key: weir.KeyOf(strings.Repeat("x", 1000), strings.Repeat("x", n-1000))}
	}
	for name, tt := range map[string]struct {
		first, then weir.Request
		wait        time.Duration // between them
		reached     bool          // the second reaches the store
		took        time.Duration // by each decision of the store
		res         weir.Result   // denied, if it is zero
		err         error
	}{
		"the same request":       {first: same, then: same},
		"just before MaxAge":     {first: same, then: same, wait: time.Second - time.Microsecond},
		"MaxAge":                 {first: same, then: same, wait: time.Second, reached: true},
		"MaxAge from the start":  {first: same, then: same, took: 600 * time.Millisecond, wait: 400 * time.Millisecond, reached: true},
		"just before":            {first: same, then: same, took: 600 * time.Millisecond, wait: 399 * time.Millisecond},
		"the clock went back":    {first: same, then: same, wait: -time.Millisecond, reached: true},
		"TakeUpTo":               {first: weir.Request{Key: u, Op: weir.TakeUpTo}, then: weir.Request{Key: u, Op: weir.TakeUpTo}},
		"another op":             {first: same, then: weir.Request{Key: u, Op: weir.TakeUpTo}, reached: true},
		"Peek":                   {first: weir.Request{Key: u, Op: weir.Peek}, then: weir.Request{Key: u, Op: weir.Peek}, reached: true},
		"Renew":                  {first: weir.Request{Key: u, Op: weir.Renew}, then: weir.Request{Key: u, Op: weir.Renew}, reached: true},
		"the same MaxWait":       {first: weir.Request{Key: u, MaxWait: 1}, then: weir.Request{Key: u, MaxWait: 1}},
		"a longer MaxWait":       {first: same, then: weir.Request{Key: u, MaxWait: weir.Never}, reached: true},
		"a shorter MaxWait":      {first: weir.Request{Key: u, MaxWait: 2}, then: weir.Request{Key: u, MaxWait: 1}, reached: true},
		"another cost":           {first: same, then: weir.Request{Key: u, Cost: 2}, reached: true},
		"a cost of 0 is 1":       {first: same, then: weir.Request{Key: u, Cost: 1}},
		"a negative cost":        {first: same, then: weir.Request{Key: u, Cost: -1}, reached: true},
		"the same Costs":         {first: of(map[string]int64{"a": 1, "b": 2}), then: of(map[string]int64{"b": 2, "a": 1})},
		"a lower amount":         {first: of(map[string]int64{"a": 1, "b": 2}), then: of(map[string]int64{"a": 1, "b": 1}), reached: true},
		"a higher amount":        {first: of(map[string]int64{"a": 1, "b": 2}), then: of(map[string]int64{"a": 1, "b": 3}), reached: true},
		"an amount of 0":         {first: of(map[string]int64{"a": 1}), then: of(map[string]int64{"a": 1, "b": 0}), reached: true},
		"another unit":           {first: of(map[string]int64{"a": 1}), then: of(map[string]int64{"b": 1}), reached: true},
		"no Costs":               {first: of(map[string]int64{"a": 1}), then: same, reached: true},
		"another key":            {first: same, then: weir.Request{Key: weir.KeyOf("v")}, reached: true},
		"more segments":          {first: same, then: weir.Request{Key: weir.KeyOf("u", "")}, reached: true},
		"other segments":         {first: weir.Request{Key: weir.KeyOf("a", "bc")}, then: weir.Request{Key: weir.KeyOf("ab", "c")}, reached: true},
		"another ID":             {first: weir.Request{Key: u, ID: "a", Metadata: "m"}, then: weir.Request{Key: u, ID: "b"}},
		"1,024 bytes":            {first: long(1024), then: long(1024)},
		"1,025 bytes":            {first: long(1025), then: long(1025), reached: true},
		"a concurrency limit":    {res: denial(func(res *weir.Result) { res.Type = weir.LeaseRule }), first: same, then: same, reached: true},
		"a pause":                {res: denial(func(res *weir.Result) { res.Type = weir.PauseRule }), first: same, then: same},
		"a limit with no Window": {res: denial(func(res *weir.Result) { res.Window = 0 }), first: same, then: same},
		"a RetryAfter of 0":      {res: denial(func(res *weir.Result) { res.RetryAfter = 0 }), first: same, then: same, reached: true},
		"a short RetryAfter":     {res: denial(func(res *weir.Result) { res.RetryAfter = 5 }), first: same, then: same, wait: time.Microsecond, reached: true},
		"a short ResetAfter":     {res: denial(func(res *weir.Result) { res.ResetAfter = 5 }), first: same, then: same, wait: time.Microsecond, reached: true},
		"without the store":      {res: denial(func(res *weir.Result) { res.Degraded = store.ErrUnavailable }), first: same, then: same, reached: true},
		"a repeat":               {res: denial(func(res *weir.Result) { res.Replayed = true }), first: same, then: same, reached: true},
		"an error with a denial": {err: errors.New("broken"), first: same, then: same, reached: true},
	} {
		c := weirtest.NewClock()
		f := &fixed{res: tt.res, err: tt.err, during: func() { c.Advance(tt.took) }}
		if f.res == (weir.Result{}) {
			f.res = denied
		}
		d := f.in(t, denycache.Options{MaxKeys: 1, Now: c.Now})
		f.ask(t, d, tt.first)
		if c.Advance(tt.wait); f.ask(t, d, tt.then) != tt.reached {
			t.Errorf("%s: the request reached the store: %v, want %v", name, !tt.reached, tt.reached)
		}
	}
}

// Every other verb of the same key forgets the denial, even one that the store was making
// meanwhile. A Peek does not, nor does another key. So does an error.
func TestForgets(t *testing.T) {
	t.Parallel()
	for op := weir.Peek; op <= weir.Reset; op++ {
		for _, key := range []weir.Key{weir.KeyOf("u"), weir.KeyOf("v")} {
			for _, meanwhile := range []bool{false, key == weir.KeyOf("u")} { // other keys can then forget too
				for _, before := range []bool{false, true} { // whether the cache has held a denial before
					c := weirtest.NewClock()
					f := &fixed{res: denied}
					d := f.in(t, denycache.Options{Now: c.Now})
					r := weir.Request{Key: weir.KeyOf("u")}
					between := func() {
						f.during = nil
						_, _ = d.Decide(t.Context(), weir.Request{Key: key, Op: op, Cost: 2}, nil)
					}
					if before {
						f.ask(t, d, r)
						c.Advance(2 * time.Second)
					}
					if meanwhile {
						f.during = between
					}
					if f.ask(t, d, r); !meanwhile {
						between()
					}
					forgets := op != weir.Peek && op != weir.TakeUpTo && key == r.Key
					if op != weir.TakeUpTo && f.ask(t, d, r) != forgets { // which remembers another denial
						t.Errorf("%v of %v, meanwhile: %v: the next request reached the store: %v", op, key.Segments(), meanwhile, !forgets)
					}
				}
			}
		}
	}
	f := &fixed{res: denied}
	d := f.in(t, denycache.Options{Now: weirtest.NewClock().Now})
	f.ask(t, d, weir.Request{Key: weir.KeyOf("u")})
	f.err = errors.New("broken")
	f.ask(t, d, weir.Request{Key: weir.KeyOf("u"), Cost: 2})
	if f.err = nil; !f.ask(t, d, weir.Request{Key: weir.KeyOf("u")}) {
		t.Error("an error did not forget the denial")
	}
}

// How many denials are remembered: one for each key, if there is a place for it.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ maxKeys, min, max int }{{1, 1, 1}, {3, 1, 4}, {4096, 90, 100}, {0, 90, 100}} {
		f := &fixed{res: denied}
		d := f.in(t, denycache.Options{MaxKeys: tt.maxKeys, Now: weirtest.NewClock().Now})
		key := func(i int) weir.Request { // the first or the last segment differs
			if i%2 == 0 {
				return weir.Request{Key: weir.KeyOf("same", fmt.Sprint(i))}
			}
			return weir.Request{Key: weir.KeyOf(fmt.Sprint(i), "same")}
		}
		for i := range 100 {
			if !f.ask(t, d, key(i)) {
				t.Fatalf("%+v: key %d: answered with the denial of another key", tt, i)
			}
		}
		_, _ = d.Decide(t.Context(), weir.Request{Key: weir.KeyOf("other"), Op: weir.Reset}, nil)
		held := 0
		for i := range 100 {
			if !f.ask(t, d, key(99-i)) {
				held++
			}
		}
		if held < tt.min || held > tt.max {
			t.Errorf("%+v: %d of 100 denials were remembered", tt, held)
		}
	}
}

// A remembered result gets older, but Never stays Never, and a MaxAge of Never is no
// limit. A call whose context has ended gets that error. The cache keeps copies of
// segments, which can be parts of large texts.
func TestRemembered(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	f := &fixed{res: denied}
	d := f.in(t, denycache.Options{MaxAge: weir.Never, Now: c.Now})
	text := []byte("u")
	key := func() weir.Request { return weir.Request{Key: weir.KeyOf(unsafe.String(&text[0], 1))} }
	f.ask(t, d, key())
	f.res.RetryAfter, f.res.ResetAfter = weir.Never, weir.Never
	text[0] = 'v'
	f.ask(t, d, key())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.Decide(ended, weir.Request{Key: weir.KeyOf("u")}, nil)
	wantError(t, err, context.Canceled, "")
	for range 2 {
		c.Advance(20 * time.Minute)
		if got, _ := d.Decide(t.Context(), weir.Request{Key: weir.KeyOf("v")}, nil); got != f.res {
			t.Errorf("got %+v, want %+v", got, f.res)
		}
		denied := denied
		denied.Age(c.Now().Sub(weirtest.Epoch))
		if got, _ := d.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u")}, nil); got != denied || f.n != 2 {
			t.Errorf("got %+v, want %+v", got, denied)
		}
	}
}

// A remembered denial never answers a request that can wait. Without Now, the clock is
// time.Now.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1})
		n := new(int)
		l = weirtest.Wrap(t, l, denycache.New(nil).Wrap, counting(n))
		for i, want := range []int{1, 2, 2, 3} {
			if _, err := l.Allow(t.Context(), "u"); err != nil || *n != want {
				t.Errorf("request %d: %d reached the store, want %d; %v", i, *n, want, err)
			}
			time.Sleep(600 * time.Millisecond)
		}
		if res, err := l.Wait(t.Context(), "u"); err != nil || res.Delay != time.Second {
			t.Errorf("got %+v, %v, want a wait of one second", res, err)
		}
	})
}
