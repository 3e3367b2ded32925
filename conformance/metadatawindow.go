package conformance

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

var metadataWindowRules = []rule{
	{"Trace", "a MetadataWindow starts with its first request", metadataWindowTrace},
	{"Entries", "Entries lists what the current window admitted, byte for byte", metadataWindowEntries},
	{"Newest", "Entries lists the newest 1000 of more", metadataWindowNewest},
	{"Bytes", "metadata has at most 512 bytes, and a rule that keeps it", metadataWindowBytes},
	{"Foreign", "a key of another type or algorithm is an ErrForeign that names it, and is not changed", metadataWindowForeign},
	{"History", "MetadataWindow answers as a plain count does", history(anyMetadataWindow)},
	{"Exact", "MetadataWindow denies 1µs before RetryAfter is over and admits when it is", exact(anyMetadataWindow)},
	{"HotKey", "of many concurrent callers MetadataWindow admits exactly the limit", hotKey(algorithm.MetadataWindow{Limit: 50, Window: time.Hour}, 50)},
	{"Refill", "on the store's clock MetadataWindow lets a denied caller pass after RetryAfter, not before", refill(algorithm.MetadataWindow{Limit: 3, Window: 300 * time.Millisecond})},
	{"Backwards", "a clock that steps back extends no MetadataWindow wait by more than the step, and admits nothing", backwards(algorithm.MetadataWindow{Limit: 3, Window: time.Minute})},
	{"Never", "a cost above Limit is denied by MetadataWindow for ever and changes nothing", neverFits(algorithm.MetadataWindow{Limit: 5, Window: time.Minute})},
	{"Huge", "MetadataWindow is exact at its bounds", huge([]algorithm.Algorithm{
		algorithm.MetadataWindow{Limit: algorithm.MaxLog, Window: algorithm.MaxSpan * time.Microsecond},
	})},
	{"UpTo", "MetadataWindow takes as many tokens as there is room for, and keeps what is less than one", upTo(anyMetadataWindow)},
}

func metadataWindowTrace(t *T) {
	s := time.Second
	t.trace(algorithm.MetadataWindow{Limit: 3, Window: 10 * time.Second}, []step{
		{3 * s, 1, true, 2, 10 * s, 0},
		{4 * s, 3, false, 2, 9 * s, 9 * s},
		{4 * s, 0, true, 2, 9 * s, 0},
		{5 * s, 2, true, 0, 8 * s, 0},
		{13*s - time.Microsecond, 1, false, 0, time.Microsecond, time.Microsecond},
		{13 * s, 1, true, 2, 10 * s, 0},
		{23 * s, 4, false, 3, 0, weir.Never},
		{30 * s, 3, true, 0, 10 * s, 0},
	})
	t.trace(algorithm.MetadataWindow{Limit: 3, Window: 10 * time.Second, Aligned: true}, []step{
		{3 * s, 3, true, 0, 7 * s, 0},
		{9 * s, 1, false, 0, 1 * s, 1 * s},
		{10 * s, 3, true, 0, 10 * s, 0},
	})
}

// entries lists what path's window admitted, and ends the rule when it cannot.
func (t *T) entries(l *weir.Limiter, path ...string) []algorithm.Entry {
	list, err := l.Entries(t.ctx, "", path...)
	if err != nil {
		t.fatalf("Entries: %v", err)
	}
	return list
}

func metadataWindowEntries(t *T) {
	r := t.rand()
	for h := range t.times(16) {
		a := anyMetadataWindow(r).(algorithm.MetadataWindow)
		c := newClock()
		l := t.limiter(c,
			weir.Rule{Name: "rate", Algorithm: algorithm.FixedWindow{Limit: 12, Window: a.Window}},
			weir.Rule{Name: "kept", Algorithm: a})
		path := []string{"entries", strconv.Itoa(h)}
		m := newModel(a).(*counted)
		var admitted []algorithm.Entry
		for s := range 40 {
			c.advance(anyPause(r, unitOf(a)))
			if r.IntN(3) == 0 {
				want := admitted
				if m.used(c.us) == 0 { // the window is over, though the next has not begun
					want = nil
				}
				if got := t.entries(l, path...); !slices.Equal(got, want) {
					t.fatalf("%+v, step %d:\ngot  %q\nwant %q", a, s, got, want)
				}
			}
			req := weir.Request{Path: path, Cost: pick[int64](r, 0, 1, 1, 1, 2, 3), Peek: r.IntN(6) == 0, Metadata: anyMetadata(r)}
			if res := t.do(l, req); res.Granted == 0 {
				continue
			}
			if m.used(c.us) == 0 {
				admitted = nil
			}
			m.take(c.us, req.Cost)
			admitted = append(admitted, algorithm.Entry{Cost: req.Cost, Metadata: req.Metadata})
		}
		if err := l.Reset(t.ctx, path...); err != nil {
			t.errorf("Reset: %v", err)
		}
		if got := t.entries(l, path...); len(got) != 0 {
			t.errorf("after Reset: got %q, want nothing", got)
		}
	}
}

// anyMetadata returns random bytes, or what could be taken for something else.
func anyMetadata(r *rand.Rand) string {
	b := make([]byte, r.IntN(20))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return pick(r, "", " ", "\x00", "a b\r\n", "m1 1 2 ", "7", "%d%s", "\xff\xfe", string(b), strings.Repeat("x", algorithm.MaxMetadata))
}

func metadataWindowNewest(t *T) {
	const n = algorithm.MaxEntries + 3
	c := newClock()
	l := t.limiter(c, one(algorithm.MetadataWindow{Limit: 5000, Window: time.Hour}))
	calls := n
	if t.backend.brief {
		calls = 30
	}
	for i := range calls {
		cost := int64(1 + i%3)
		if res := t.do(l, weir.Request{Path: []string{"many"}, Cost: cost, Metadata: strconv.Itoa(i)}); !res.Allowed {
			t.fatalf("request %d: got %+v", i, res)
		}
		if i+1 != algorithm.MaxEntries && i+1 != algorithm.MaxEntries+1 && i+1 != calls {
			continue
		}
		got := t.entries(l, "many")
		first := max(i+1-algorithm.MaxEntries, 0)
		if len(got) != i+1-first {
			t.fatalf("%d requests: %d entries, want %d", i+1, len(got), i+1-first)
		}
		for j, e := range got {
			if want := (algorithm.Entry{Cost: int64(1 + (first+j)%3), Metadata: strconv.Itoa(first + j)}); e != want {
				t.fatalf("%d requests, entry %d: got %+v, want %+v", i+1, j, e, want)
			}
		}
	}
}

func metadataWindowBytes(t *T) {
	c := newClock()
	l := t.limiter(c, one(algorithm.MetadataWindow{Limit: 5, Window: time.Minute}))
	long := strings.Repeat("\xff", algorithm.MaxMetadata)
	if res := t.do(l, weir.Request{Path: []string{"k"}, Cost: 1, Metadata: long}); !res.Allowed {
		t.errorf("%d bytes: got %+v", len(long), res)
	}
	_, err := l.Do(t.ctx, weir.Request{Path: []string{"k"}, Cost: 1, Metadata: long + "x"})
	if !errors.Is(err, weir.ErrInvalidMetadata) {
		t.errorf("%d bytes: got error %v, want ErrInvalidMetadata", len(long)+1, err)
	}
	if got := t.entries(l, "k"); len(got) != 1 || got[0].Metadata != long {
		t.errorf("got %d entries, want one of %d bytes", len(got), len(long))
	}
	other := t.limiter(c, one(tenPerMinute))
	if _, err := other.Do(t.ctx, weir.Request{Path: []string{"other"}, Cost: 1, Metadata: "x"}); !errors.Is(err, weir.ErrUnsupported) {
		t.errorf("metadata for a GCRA: got error %v, want ErrUnsupported", err)
	}
	if _, err := other.Entries(t.ctx, "", "other"); !errors.Is(err, weir.ErrUnsupported) {
		t.errorf("Entries of a GCRA: got error %v, want ErrUnsupported", err)
	}
}

func metadataWindowForeign(t *T) {
	c := newClock()
	own := algorithm.MetadataWindow{Limit: 5, Window: time.Minute}
	l := t.limiter(c, weir.Rule{Name: "same", Algorithm: own}, weir.Rule{Name: "rate", Algorithm: tenPerMinute})
	spoil := map[string]func(path string){
		"Nums":  func(path string) { t.put(t.key(path, "same"), 1) },
		"a set": func(path string) { t.eval(setScript, []string{t.key(path, "same")}) },
	}
	others := []algorithm.Algorithm{
		algorithm.FixedWindow{Limit: 5, Window: time.Minute},
		algorithm.SlidingLog{Limit: 5, Window: time.Minute},
		tenPerMinute,
	}
	for _, a := range others {
		limit, err := a.NewLimit()
		if err != nil {
			t.fatalf("NewLimit: %v", err)
		}
		spoil[limit.Fragment().Name] = func(path string) {
			t.allow(t.limiter(c, weir.Rule{Name: "same", Algorithm: a}), 1, path)
		}
	}
	for what, make := range spoil {
		key := t.key(what, "same")
		make(what)
		t.refused(l, what, key)
		if _, err := l.Entries(t.ctx, "same", what); !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), key) {
			t.errorf("Entries of %s: got error %v, want an ErrForeign that names %q", what, err, key)
		}
		if v := t.mget(t.key(what, "rate"))[0]; v.Kind() != store.Nil {
			t.errorf("beside %s, the other rule now holds %q", what, v.Str())
		}
	}
	t.allow(l, 1, "list")
	for _, a := range others {
		t.refused(t.limiter(c, weir.Rule{Name: "same", Algorithm: a}), "list", t.key("list", "same"))
	}
	if got := t.entries(l, "list"); len(got) != 1 {
		t.errorf("under other algorithms the list became %q", got)
	}
}

// anyMetadataWindow returns a random MetadataWindow.
func anyMetadataWindow(r *rand.Rand) algorithm.Algorithm {
	return algorithm.MetadataWindow(anyFixedWindow(r).(algorithm.FixedWindow))
}
