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
)

var metadataWindowChecks = []check{
	{"Trace", "a MetadataWindow starts with its first request", metadataWindowTrace},
	{"Entries", "Entries lists the requests that the current window allowed, byte for byte", metadataWindowEntries},
	{"Newest", "Entries lists the newest 1000 requests if there are more", metadataWindowNewest},
	{"Bytes", "metadata of up to 512 bytes is kept, more is ErrInvalidMetadata, and without a rule that keeps it ErrUnsupported", metadataWindowBytes},
}

// metadataWindowMembers are texts that are no entry. The window of most is not over.
var metadataWindowMembers = []string{
	"x", "m2", "m2 1767225660000000 1", "m1 1767225660000000 1 x", "m2  1767225660000000 1 x", "m2 1767225660000000 -1 x", "m2 1.5 1 x",
	"m2 9007199254740992 1 x", "m2 1767225660000000 9007199254740992 x", " m2 1767225660000000 1 x",
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

// entries returns what Entries lists for key.
func (t *T) entries(l *weir.Limiter, key ...string) []weir.Entry {
	list, err := l.Entries(t.ctx, key...)
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
		key := "entries" + strconv.Itoa(h)
		m := newModel(a).(*counted)
		var allowed []weir.Entry
		for s := range 40 {
			c.advance(anyPause(r, unitOf(a)))
			if r.IntN(3) == 0 {
				want := allowed
				if m.used(c.us) == 0 { // the window is over, and the next one has not begun
					want = nil
				}
				if got := t.entries(l, key); !slices.Equal(got, want) {
					t.fatalf("%+v, step %d:\ngot  %q\nwant %q", a, s, got, want)
				}
			}
			req := weir.Request{Key: weir.KeyOf(key), Cost: pick[int64](r, 0, 1, 1, 1, 2, 3), Op: pick(r, weir.Consume, weir.Consume, weir.TakeUpTo, weir.Peek), Metadata: anyMetadata(r)}
			res := t.do(l, req)
			if res.Granted == 0 {
				continue
			}
			if m.used(c.us) == 0 {
				allowed = nil
			}
			m.take(c.us, res.Granted)
			allowed = append(allowed, weir.Entry{Cost: res.Granted, Metadata: req.Metadata})
		}
		t.reset(l, key)
		if got := t.entries(l, key); len(got) != 0 {
			t.errorf("after Reset: got %q, want nothing", got)
		}
	}
}

// anyMetadata returns random bytes, or text that looks like something else.
func anyMetadata(r *rand.Rand) string {
	b := make([]byte, r.IntN(20))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return pick(r, "", " ", "\x00", "a b\r\n", "m2 1 2 ", "7", "%d%s", "\xff\xfe", string(b), strings.Repeat("x", algorithm.MaxMetadata))
}

func metadataWindowNewest(t *T) {
	const n = algorithm.MaxEntries + 3
	c := newClock()
	l := t.limiter(c, one(algorithm.MetadataWindow{Limit: 5000, Window: time.Hour}))
	calls := n
	if t.backend.Brief {
		calls = 30
	}
	for i := range calls {
		cost := int64(1 + i%3)
		if res := t.do(l, weir.Request{Key: weir.KeyOf("many"), Cost: cost, Metadata: strconv.Itoa(i)}); !res.Allowed {
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
			if want := (weir.Entry{Cost: int64(1 + (first+j)%3), Metadata: strconv.Itoa(first + j)}); e != want {
				t.fatalf("%d requests, entry %d: got %+v, want %+v", i+1, j, e, want)
			}
		}
	}
}

func metadataWindowBytes(t *T) {
	c := newClock()
	l := t.limiter(c, one(algorithm.MetadataWindow{Limit: 5, Window: time.Minute}))
	long := strings.Repeat("\xff", algorithm.MaxMetadata)
	if res := t.do(l, weir.Request{Key: weir.KeyOf("k"), Metadata: long}); !res.Allowed {
		t.errorf("%d bytes: got %+v", len(long), res)
	}
	_, err := l.Decide(t.ctx, weir.Request{Key: weir.KeyOf("k"), Metadata: long + "x"}, nil)
	if !errors.Is(err, weir.ErrInvalidMetadata) {
		t.errorf("%d bytes: got error %v, want ErrInvalidMetadata", len(long)+1, err)
	}
	if got := t.entries(l, "k"); len(got) != 1 || got[0].Metadata != long {
		t.errorf("got %d entries, want one of %d bytes", len(got), len(long))
	}
	other := t.limiter(c, one(tenPerMinute))
	if _, err := other.Decide(t.ctx, weir.Request{Key: weir.KeyOf("other"), Metadata: "x"}, nil); !errors.Is(err, weir.ErrUnsupported) {
		t.errorf("metadata for a GCRA: got error %v, want ErrUnsupported", err)
	}
	if _, err := other.Entries(t.ctx, "other"); !errors.Is(err, weir.ErrUnsupported) {
		t.errorf("Entries of a GCRA: got error %v, want ErrUnsupported", err)
	}
}
