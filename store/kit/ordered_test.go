package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
)

// consume consumes a token of each caller, and returns whether all were allowed.
func consume(t testing.TB, lim *weir.Limiter, callers ...any) (allowed bool) {
	t.Helper()
	allowed = true
	for _, caller := range callers {
		res, err := lim.Allow(t.Context(), fmt.Sprint(caller))
		if err != nil {
			t.Fatal(err)
		}
		allowed = allowed && res.Allowed
	}
	return allowed
}

// change changes a key.
func change(ctx context.Context, st store.Store, key string, f func(tx store.Tx)) error {
	_, err := st.Eval(ctx, store.NewScript("change", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		f(tx)
		return reply, nil
	}), []string{key}, nil, nil)
	return err
}

// TestLargeSet shows that a decision on a large set reads and writes few entries.
func TestLargeSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		lim := weirtest.New(t, New("table", db), algorithm.SlidingLog{Limit: 2000, Window: time.Hour})
		denied := 0
		for i := range 6000 {
			time.Sleep(time.Second)
			db.ops, db.seen = 0, 0
			if !consume(t, lim, "ann") {
				denied++
			}
			if db.ops+db.seen > 60 {
				t.Fatalf("decision %d used %d entries and read %d", i, db.ops, db.seen)
			}
		}
		if denied < 1000 {
			t.Errorf("%d requests were denied: the set was never full", denied)
		}
	})
}

// TestSweep shows that calls delete what has expired, and that as much as a store has
// live keys is left at most.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		st := New("table", db)
		window := weirtest.New(t, st, algorithm.FixedWindow{Limit: 10, Window: time.Second})
		log := weirtest.New(t, st, algorithm.SlidingLog{Limit: 1000, Window: time.Minute})
		foreign := "foreign"
		db.set(entryText("foreign"), &foreign)
		day := weirtest.New(t, st, algorithm.FixedWindow{Limit: 1e6, Window: 24 * time.Hour})
		for i := range 1000 {
			consume(t, window, i)
		}
		for range 1000 {
			consume(t, log, "ann")
		}
		consume(t, day, "bob")
		time.Sleep(time.Hour)
		consume(t, log, "ann") // replaces a set that has expired
		if err := change(t.Context(), st, "foreign", func(tx store.Tx) { tx.Put(0, store.Nums{}, time.Minute) }); err != nil {
			t.Error(err)
		}
		for range 10_000 { // the keys above are swept, so that eve's is next
			consume(t, day, "bob")
		}
		eve := weirtest.New(t, st, algorithm.SlidingLog{Limit: 1e6, Window: 5 * time.Minute})
		for range 60 { // while a key is in use, it is filed again
			time.Sleep(time.Minute)
			consume(t, eve, "eve")
			for range 20 {
				consume(t, day, "bob")
			}
		}
		if res, err := eve.Peek(t.Context(), "eve"); err != nil || res.Remaining != 1e6-5 {
			t.Errorf("got %+v, %v, want 5 tokens consumed: a key in use was swept", res, err)
		}
		time.Sleep(time.Hour)
		for range 20_000 {
			consume(t, day, "bob")
		}
		if left := db.snapshot(); len(left) != 2 {
			t.Errorf("%d entries are left, want bob's key, and where it is filed", len(left))
		}
		res, err := day.Peek(t.Context(), "bob")
		if err != nil || res.Remaining != 1e6-31_201 {
			t.Errorf("got %+v, %v: a key that had not expired was swept", res, err)
		}
	})
}

// TestFailures lets each step of a call fail. The error must be an outage, nothing may be
// written, and the store must work again.
func TestFailures(t *testing.T) {
	db := newTable()
	st := New("table", db)
	lim := weirtest.New(t, st, algorithm.SlidingLog{Limit: 100, Window: time.Hour})
	consume(t, lim, 1, 2)
	seen := map[string]bool{}
	for _, last := range []string{"begin", "get", "scan", "put", "commit"} {
		for step := range 12 {
			before, n := db.snapshot(), 0
			db.fail = func(op string) error {
				if op != last {
					return nil
				}
				if n++; n-1 == step {
					seen[op] = true
					return fmt.Errorf("the %s failed", op)
				}
				return nil
			}
			res, err := lim.Allow(t.Context(), "1")
			failed := n > step
			db.fail = func(string) error { return nil }
			if !failed {
				break
			}
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "table: eval ") || !strings.Contains(err.Error(), "the "+last+" failed") {
				t.Errorf("%s %d: got %+v, error %v, want ErrUnavailable with the names of the store and of the failure", last, step, res, err)
			}
			if after := db.snapshot(); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("%s %d: the failed call wrote something", last, step)
			}
			consume(t, lim, 2)
		}
	}
	if len(seen) != 5 {
		t.Errorf("only %v failed", seen)
	}
}

// TestClock shows that a call reads its clock after its keys, even if it only reads.
func TestClock(t *testing.T) {
	for _, s := range []*store.Script{look, countAll} {
		synctest.Test(t, func(t *testing.T) {
			db := newTable()
			db.fail = func(op string) error {
				if op == "get" {
					time.Sleep(time.Second)
				}
				return nil
			}
			want := time.Now().Add(2 * time.Second).UnixMicro()
			got, err := eval(t.Context(), New("table", db), s, "{a}1", "{a}2")
			if err != nil || got[len(got)-1].Int() < want {
				t.Errorf("%s: got %v, %v, want the time %d, after both keys were read", s.Name(), got, err, want)
			}
		})
	}
}

// TestIgnored shows that an error of the database fails a call whose form ignores it.
func TestIgnored(t *testing.T) {
	db := newTable()
	st := New("table", db)
	if err := change(t.Context(), st, "k", func(tx store.Tx) { tx.Add(0, store.Member{Score: 1, Text: "a"}, time.Hour) }); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func(tx store.Tx){
		"At":    func(tx store.Tx) { _, _, _ = tx.At(0, 0) },
		"Count": func(tx store.Tx) { _, _, _ = tx.Count(0, 0) },
		"Score": func(tx store.Tx) { _, _, _ = tx.Score(0, "a") },
	} {
		err := change(t.Context(), st, "k", func(tx store.Tx) {
			db.fail = func(string) error { return errors.New("the disk is away") }
			read(tx)
			db.fail = func(string) error { return nil }
		})
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: got error %v, want ErrUnavailable", name, err)
		}
	}
}

// TestContexts shows that a call ends with its context while it waits for another.
func TestContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		st := New("table", db)
		other, err := db.Begin(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		lim := weirtest.New(t, st, algorithm.FixedWindow{Limit: 10, Window: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 { // one waits in Begin, and the others for their turn
			wg.Go(func() {
				if _, err := lim.Allow(ctx, "ann"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable) {
					t.Errorf("got error %v, want context.DeadlineExceeded alone", err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took != time.Second {
			t.Errorf("the calls took %v, want 1s", took)
		}
		if err := other.Rollback(); err != nil {
			t.Fatal(err)
		}
		// A context that ends while the form runs.
		ctx, cancel = context.WithCancel(t.Context())
		err = change(ctx, st, "k", func(tx store.Tx) {
			tx.Put(0, store.Nums{}, time.Hour)
			cancel()
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want Canceled", err)
		}
		if left := db.snapshot(); len(left) > 0 {
			t.Errorf("the cancelled call wrote %q", left)
		}
		consume(t, lim, "ann")
	})
}

// TestDriverTimeout shows that a timeout of the driver is an outage, not the caller's
// deadline.
func TestDriverTimeout(t *testing.T) {
	db := newTable()
	lim := weirtest.New(t, New("table", db), algorithm.FixedWindow{Limit: 10, Window: time.Hour})
	db.fail = func(string) error { return fmt.Errorf("dial: %w", context.DeadlineExceeded) }
	if _, err := lim.Allow(t.Context(), "ann"); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want ErrUnavailable alone", err)
	}
	db.fail = func(string) error { return fmt.Errorf("%w: the password", store.ErrMisconfigured) }
	if _, err := lim.Allow(t.Context(), "ann"); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, store.ErrMisconfigured) {
		t.Errorf("got error %v, want ErrUnavailable and ErrMisconfigured", err)
	}
}

// TestForeign shows that damaged entries are foreign values, and are not overwritten.
func TestForeign(t *testing.T) {
	db := newTable()
	st := New("table", db)
	lim := weirtest.New(t, st, algorithm.SlidingLog{Limit: 100, Window: time.Hour})
	consume(t, lim, "ann", "ann", "ann")
	good := db.snapshot()
	key := ""
	for k := range good {
		if k[0] == prefixKey {
			key = k
		}
	}
	for _, value := range []string{"", "n", "n1", "n1 ", "n1 x g2", "n1 9999999999999999 g2 x", "s1 9999999999999999 ", "m1 9999999999999999 1", "m1 9999999999999999 0 1", "m1 9999999999999999 3 x", "n2 9999999999999999 g2 1", "\x80"} {
		db.set(key, &value)
		if _, err := lim.Allow(t.Context(), "ann"); !errors.Is(err, store.ErrForeign) {
			t.Errorf("%q: got error %v, want ErrForeign", value, err)
		}
		if got := db.snapshot()[key]; got != value {
			t.Errorf("%q was overwritten by %q", value, got)
		}
	}
	value := good[key]
	db.set(key, &value)
	consume(t, lim, "ann")
	for k := range db.snapshot() { // somebody deletes the members
		if k[0] == prefixMember {
			db.set(k, nil)
		}
	}
	if _, err := lim.Allow(t.Context(), "ann"); !errors.Is(err, store.ErrForeign) {
		t.Errorf("got error %v for a set without its members, want ErrForeign", err)
	}
}

func entryText(name string) string { return string(entry(prefixKey, name)) }

// TestList lists more keys than a call reads, each once, but none that has expired or is
// long.
func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New("table", newTable())
		consume(t, weirtest.New(t, st, algorithm.FixedWindow{Limit: 1, Window: time.Second}), "gone")
		time.Sleep(time.Hour)
		lim := weirtest.New(t, st, algorithm.FixedWindow{Limit: 1, Window: time.Hour})
		for i := range 2*listed + 1 {
			consume(t, lim, i)
		}
		long := strings.Repeat("l", longKey)
		if err := change(t.Context(), st, long, func(tx store.Tx) { tx.Put(0, store.Nums{}, time.Hour) }); err != nil {
			t.Fatal(err)
		}
		seen, calls := map[string]int{}, 0
		for cursor, more := "", true; more; more = cursor != "" {
			var keys []string
			var err error
			if keys, cursor, err = st.List(t.Context(), "", cursor, nil); err != nil {
				t.Fatal(err)
			}
			for _, key := range keys {
				if seen[key]++; seen[key] > 1 || strings.Contains(key, "gone") || len(key) >= longKey {
					t.Errorf("%.40q came %d times", key, seen[key])
				}
			}
			calls++
		}
		if len(seen) != 2*listed+1 || calls != 3 {
			t.Errorf("%d calls listed %d keys, want %d", calls, len(seen), 2*listed+1)
		}
	})
}

// FuzzCodec decodes what encode wrote, and any other text.
func FuzzCodec(f *testing.F) {
	f.Add([]byte("g2 1 2"), int64(5), int64(7))
	f.Add([]byte("s1 1767225600000000 \x05\x01a"), int64(1), int64(0))
	f.Fuzz(func(t *testing.T, text []byte, n, expires int64) {
		n, expires = n&(1<<53-1), expires&(1<<53-1)
		member := store.Member{Score: n, Text: string(text[:min(len(text), store.MaxText)])}
		for _, c := range []store.Content{
			{Kind: store.Numbers, Nums: store.Nums{Tag: store.Tag{'a', '1'}, Len: 1, N: [store.MaxNums]int64{n}}},
			{Kind: store.Set, Members: []store.Member{member}},
			{Kind: store.Set, Members: []store.Member{member, {Score: n, Text: member.Text + "b"}}},
		} {
			b := encode(c, expires)
			got, at, err := decode(b, expires-1)
			if err != nil || at != expires || fmt.Sprint(got) != fmt.Sprint(c) {
				if len(member.Text) < store.MaxText {
					t.Errorf("decode(encode(%v)) = %v, %d, %v", c, got, at, err)
				}
			}
			if got, _, err := decode(b, expires); got.Kind != store.Missing || err != nil {
				t.Errorf("at the time at which it expires: %v, %v", got, err)
			}
			for _, cut := range []int{len(b) - 1, len(b) / 2} {
				if got, _, err := decode(b[:cut], -1); c.Kind == store.Set && (err == nil) != (got.Kind == store.Set) {
					t.Errorf("a value that was cut: %v, %v", got, err)
				}
			}
		}
		got, at, err := decode(text, -1)
		switch {
		case err != nil:
			if got.Kind != store.Other {
				t.Errorf("error %v, and kind %d", err, got.Kind)
			}
		case got.Kind != store.Missing:
			if again := encode(got, at); !bytes.Equal(again, text) {
				if more, at2, err := decode(again, -1); err != nil || at2 != at || fmt.Sprint(more) != fmt.Sprint(got) {
					t.Errorf("%q became %q", text, again)
				}
			}
		}
	})
}

func TestShorten(t *testing.T) {
	long := strings.Repeat("a", 3000)
	seen := map[string]string{}
	for _, key := range []string{long, long + "b", long[:longKey], long[:longKey-1], shorten(long, longKey), "a", ""} {
		short := shorten(key, longKey)
		if len(short) > longKey {
			t.Errorf("%d bytes became %d", len(key), len(short))
		}
		if other, ok := seen[short]; ok {
			t.Errorf("%.10q of %d bytes and %.10q of %d bytes became the same", key, len(key), other, len(other))
		}
		seen[short] = key
	}
}
