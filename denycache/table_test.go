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
	"github.com/weir-go/weir/internal/test/weirtest"
)

// A fixed is a Decider with one answer for all requests. It counts them.
type fixed struct {
	res weir.Result
	err error
	n   int
}

func (f *fixed) Decide(context.Context, weir.Request, []weir.Result) (weir.Result, error) {
	f.n++
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

// denied is a denial for an hour.
var denied = weir.Result{Delay: weir.Never, Rule: "r", Limit: 1, Window: time.Hour, RetryAfter: time.Hour, ResetAfter: time.Hour}

// ask makes the decision r through d, and reports whether it reached f.
func (f *fixed) ask(t *testing.T, d weir.Decider, r weir.Request) bool {
	t.Helper()
	before := f.n
	if res, err := d.Decide(t.Context(), r, nil); err != f.err || res.Allowed {
		t.Fatalf("got %+v, %v", res, err)
	}
	return f.n > before
}

// How many denials are remembered: one for each key, if there is a place for it.
func TestDenyCachePlaces(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	for _, tt := range []struct {
		cache    denycache.Options
		min, max int
	}{
		{denycache.Options{MaxKeys: 1}, 1, 1},
		{denycache.Options{MaxKeys: 3}, 1, 4},
		{denycache.Options{MaxKeys: 4096}, 90, 100},
		{denycache.Options{}, 90, 100},
	} {
		f := &fixed{res: denied}
		tt.cache.Now = c.Now
		d := f.in(t, tt.cache)
		key := func(i int) weir.Request { // the first or the last segment differs
			if i%2 == 0 {
				return weir.Request{Key: weir.KeyOf("same", fmt.Sprint(i))}
			}
			return weir.Request{Key: weir.KeyOf(fmt.Sprint(i), "same")}
		}
		for i := range 100 {
			if !f.ask(t, d, key(i)) {
				t.Fatalf("%+v: key %d: answered with the denial of another key", tt.cache, i)
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
			t.Errorf("%+v: %d of 100 denials were remembered, want %d to %d", tt.cache, held, tt.min, tt.max)
		}
	}
}

// What is remembered, and for which requests.
func TestDenyCacheRemembers(t *testing.T) {
	t.Parallel()
	u := weir.KeyOf("u")
	of := func(amounts map[string]int64) weir.Request { return weir.Request{Key: u, Costs: weir.CostsOf(amounts)} }
	lease, windowless, now := denied, denied, denied
	lease.Type, windowless.Window, now.RetryAfter = weir.LeaseRule, 0, 0
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		res         weir.Result
		err         error
		first, then weir.Request
		wait        time.Duration
		reached     bool
	}{
		"TakeUpTo":               {res: denied, first: weir.Request{Key: u, Op: weir.TakeUpTo}, then: weir.Request{Key: u, Op: weir.TakeUpTo}},
		"Peek":                   {res: denied, first: weir.Request{Key: u, Op: weir.Peek}, then: weir.Request{Key: u, Op: weir.Peek}, reached: true},
		"Renew":                  {res: denied, first: weir.Request{Key: u, Op: weir.Renew}, then: weir.Request{Key: u, Op: weir.Renew}, reached: true},
		"the same MaxWait":       {res: denied, first: weir.Request{Key: u, MaxWait: 1}, then: weir.Request{Key: u, MaxWait: 1}},
		"a longer MaxWait":       {res: denied, first: weir.Request{Key: u}, then: weir.Request{Key: u, MaxWait: weir.Never}, reached: true},
		"a shorter MaxWait":      {res: denied, first: weir.Request{Key: u, MaxWait: 2}, then: weir.Request{Key: u, MaxWait: 1}, reached: true},
		"the same Costs":         {res: denied, first: of(map[string]int64{"a": 1, "b": 2}), then: of(map[string]int64{"b": 2, "a": 1})},
		"a lower amount":         {res: denied, first: of(map[string]int64{"a": 1, "b": 2}), then: of(map[string]int64{"a": 1, "b": 1}), reached: true},
		"a higher amount":        {res: denied, first: of(map[string]int64{"a": 1, "b": 2}), then: of(map[string]int64{"a": 1, "b": 3}), reached: true},
		"an amount of 0":         {res: denied, first: of(map[string]int64{"a": 1}), then: of(map[string]int64{"a": 1, "b": 0}), reached: true},
		"another unit":           {res: denied, first: of(map[string]int64{"a": 1}), then: of(map[string]int64{"b": 1}), reached: true},
		"no Costs":               {res: denied, first: of(map[string]int64{"a": 1}), then: weir.Request{Key: u}, reached: true},
		"more segments":          {res: denied, first: weir.Request{Key: u}, then: weir.Request{Key: weir.KeyOf("u", "")}, reached: true},
		"other segments":         {res: denied, first: weir.Request{Key: weir.KeyOf("a", "bc")}, then: weir.Request{Key: weir.KeyOf("ab", "c")}, reached: true},
		"another ID":             {res: denied, first: weir.Request{Key: u, ID: "a", Metadata: "m"}, then: weir.Request{Key: u, ID: "b"}},
		"just before MaxAge":     {res: denied, first: weir.Request{Key: u}, then: weir.Request{Key: u}, wait: time.Second - time.Microsecond},
		"MaxAge":                 {res: denied, first: weir.Request{Key: u}, then: weir.Request{Key: u}, wait: time.Second, reached: true},
		"1,024 bytes":            {res: denied, first: weir.Request{Key: weir.KeyOf(strings.Repeat("x", 1000), strings.Repeat("x", 24))}, then: weir.Request{Key: weir.KeyOf(strings.Repeat("x", 1000), strings.Repeat("x", 24))}},
		"1,025 bytes":            {res: denied, first: weir.Request{Key: weir.KeyOf(strings.Repeat("x", 1000), strings.Repeat("x", 25))}, then: weir.Request{Key: weir.KeyOf(strings.Repeat("x", 1000), strings.Repeat("x", 25))}, reached: true},
		"a concurrency limit":    {res: lease, first: weir.Request{Key: u}, then: weir.Request{Key: u}, reached: true},
		"a limit with no Window": {res: windowless, first: weir.Request{Key: u}, then: weir.Request{Key: u}},
		"a RetryAfter of 0":      {res: now, first: weir.Request{Key: u}, then: weir.Request{Key: u}, reached: true},
		"an error with a denial": {res: denied, err: broken, first: weir.Request{Key: u}, then: weir.Request{Key: u}, reached: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := weirtest.NewClock()
			f := &fixed{res: tt.res, err: tt.err}
			d := f.in(t, denycache.Options{MaxKeys: 1, Now: c.Now})
			f.ask(t, d, tt.first)
			c.Advance(tt.wait)
			if reached := f.ask(t, d, tt.then); reached != tt.reached {
				t.Errorf("the request reached the store: %v, want %v", reached, tt.reached)
			}
		})
	}
}

// A remembered result gets older, but Never stays Never.
func TestDenyCacheNever(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	f := &fixed{res: denied}
	f.res.RetryAfter, f.res.ResetAfter = weir.Never, weir.Never
	d := f.in(t, denycache.Options{Now: c.Now})
	f.ask(t, d, weir.Request{Key: weir.KeyOf("u")})
	c.Advance(time.Millisecond)
	if got, _ := d.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u")}, nil); got != f.res || f.n != 1 {
		t.Errorf("got %+v, want %+v", got, f.res)
	}
}

// The slice each can be longer than the rules, and hold anything. If it is too short, the
// limiter says so, even for a key whose denial is remembered.
func TestDenyCacheEach(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l, n := cached(t, weirtest.NewPolicy(t, weirtest.NewStore(c), weirtest.Rules(
		weir.Rule{Name: "a", Algorithm: weirtest.Window(1, time.Minute)},
		weir.Rule{Name: "b", Algorithm: weirtest.Window(2, time.Minute)},
	)), c, denycache.Options{})
	stale := []weir.Result{{Rule: "x"}, {Rule: "y"}, {Rule: "z"}}
	r := weir.Request{Key: weir.KeyOf("u")}
	for i, tt := range []struct{ each, reached int }{
		{0, 1}, {0, 2}, {0, 2}, // allowed, denied, and remembered without results of each rule
		{3, 3}, {3, 3}, {2, 3}, {0, 3}, {4, 3},
		{1, 4}, // an error, which forgets
		{2, 5}, {2, 5},
	} {
		each := append(stale, weir.Result{})[:tt.each]
		_, err := l.Decide(t.Context(), r, each)
		if wrong := tt.each == 1; err != nil != wrong {
			t.Fatalf("step %d: got error %v", i, err)
		}
		if *n != tt.reached {
			t.Fatalf("step %d: %d decisions reached the store, want %d", i, *n, tt.reached)
		}
		if tt.each >= 2 && (each[0].Rule != "a" || each[0].Allowed || each[1].Rule != "b" || !each[1].Allowed) {
			t.Errorf("step %d: got %+v", i, each)
		}
	}
}

// A remembered denial never answers a request that can wait.
func TestDenyCacheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the default clock
		l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1})
		l = weirtest.Wrap(t, l, denycache.New(&denycache.Options{MaxAge: time.Hour}).Wrap)
		for range 3 {
			if _, err := l.Allow(t.Context(), "u"); err != nil {
				t.Fatal(err)
			}
		}
		if res, err := l.Wait(t.Context(), "u"); err != nil || res.Delay != time.Second {
			t.Errorf("got %+v, %v, want a wait of one second", res, err)
		}
	})
}

// Without Now, the clock is time.Now.
func TestDenyCacheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixed{res: denied}
		d := f.in(t, denycache.Options{})
		r := weir.Request{Key: weir.KeyOf("u")}
		for _, want := range []bool{true, false, true} {
			if got := f.ask(t, d, r); got != want {
				t.Errorf("it reached the store: %v, want %v", got, want)
			}
			time.Sleep(600 * time.Millisecond)
		}
	})
}

// The cache keeps copies of segments, which can be parts of large texts.
func TestDenyCacheCopies(t *testing.T) {
	t.Parallel()
	f := &fixed{res: denied}
	d := f.in(t, denycache.Options{Now: weirtest.NewClock().Now})
	text := []byte("u")
	f.ask(t, d, weir.Request{Key: weir.KeyOf(unsafe.String(&text[0], 1))})
	text[0] = 'v'
	if f.ask(t, d, weir.Request{Key: weir.KeyOf("u")}) {
		t.Error("the cache kept the caller's text")
	}
}

// The bounds of the fields are valid.
func TestDenyCacheValid(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.PerSecond)
	for _, cache := range []denycache.Options{{MaxKeys: 1 << 24}, {MaxAge: weir.Never}, {MaxKeys: 1, MaxAge: 1}} {
		weirtest.Allow(t, weirtest.Wrap(t, l, denycache.New(&cache).Wrap), weir.Request{Key: weir.KeyOf("u")})
	}
	for _, cache := range []denycache.Options{{MaxKeys: 1<<24 + 1}, {MaxAge: -1}} {
		if _, err := l.Wrap(denycache.New(&cache).Wrap); err == nil {
			t.Errorf("%+v: got no error", cache)
		}
	}
}
