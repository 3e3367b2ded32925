package algorithm_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// A MetadataWindow decides like a FixedWindow with the same fields, even in debt.
func TestMetadataWindowDecides(t *testing.T) {
	t.Parallel()
	list := []algorithm.FixedWindow{{Limit: 7, Window: 10 * time.Second}, {Limit: 3, Window: 10 * time.Second}, {Limit: 20, Window: 7 * time.Second}}
	for _, aligned := range []bool{false, true} {
		for i := range list {
			list[i].Aligned = aligned
		}
		r := rand.New(rand.NewPCG(8, 2))
		b, want := newBench(t, algorithm.MetadataWindow(list[0])), newBench(t, list[0])
		now := int64(epoch)
		for step := range 5000 {
			if now += r.Int64N(2_000_000); r.IntN(10) == 0 {
				now -= r.Int64N(8_000_000)
			}
			if r.IntN(20) == 0 {
				a := list[r.IntN(len(list))]
				b.change(algorithm.MetadataWindow(a))
				want.change(a)
			}
			if r.IntN(8) == 0 {
				cost := 1 + r.Int64N(30)
				n1, _ := b.force(now, cost)
				n2, _ := want.force(now, cost)
				if n1 != cost || n2 != cost {
					t.Fatalf("step %d: a force of %d consumed %d and %d", step, cost, n1, n2)
				}
			}
			v := []script.Verb{script.Consume, script.Peek, script.UpTo}[r.IntN(3)]
			c := compose.Call{Cost: 1 + r.Int64N(5), Text: "x"}
			n1, v1 := b.do(v, now, c)
			n2, v2 := want.do(v, now, c)
			if n1 != n2 || v1 != v2 {
				t.Fatalf("step %d, verb %d, cost %d at %d:\ngot  %d %+v\nwant %d %+v", step, v, c.Cost, now-epoch, n1, v1, n2, v2)
			}
			b.checkPossible(v1)
		}
	}
}

func metadataEntries(b *bench, now int64) []algorithm.Entry {
	b.t.Helper()
	b.state.now = now
	reply, err := b.program.Script(script.Entries).GoForm()(b.state, b.program.AppendArgs(nil, script.Entries, &compose.Call{Cost: 1}), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	list, err := b.program.Entries(reply)
	if err != nil {
		b.t.Fatal(err)
	}
	return list
}

// Entries lists the allowed requests of the current window, at most the newest
// MaxEntries.
func TestMetadataWindowEntries(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.MetadataWindow{Limit: 5000, Window: time.Second})
	if got := metadataEntries(b, epoch); len(got) != 0 {
		t.Errorf("a missing key lists %v", got)
	}
	longest := strings.Repeat("\xff", algorithm.MaxMetadata)
	for i := range int64(1100) {
		text := fmt.Sprint("who ", i)
		if i == 1099 {
			text = longest
		}
		b.do(script.Consume, epoch+i, compose.Call{Cost: 1 + i%3, Text: text})
		if i == 2 {
			want := []algorithm.Entry{{Cost: 1, Metadata: "who 0"}, {Cost: 2, Metadata: "who 1"}, {Cost: 3, Metadata: "who 2"}}
			if got := metadataEntries(b, epoch+i); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
	}
	got := metadataEntries(b, epoch+1100)
	if len(got) != algorithm.MaxEntries {
		t.Fatalf("got %d entries, want %d", len(got), algorithm.MaxEntries)
	}
	for i, e := range got {
		if n := int64(i) + 100; e.Cost != 1+n%3 || n < 1099 && e.Metadata != fmt.Sprint("who ", n) || n == 1099 && e.Metadata != longest {
			t.Fatalf("entry %d is %.20v", i, e)
		}
	}
	if got := metadataEntries(b, epoch+1_000_000); len(got) != 0 {
		t.Errorf("after the window %d entries are listed", len(got))
	}
}

// An entry that no decision writes is foreign.
func TestMetadataWindowForeign(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "m2", "m2 1 1", "m1 1 1 x", "m2 x 1 y", "m2 1 x y", "m2 -1 1 x", "m2 9007199254740992 1 x", "m2 1 99999999999999999999999999 x"} {
		for _, v := range []script.Verb{script.Consume, script.Peek, script.UpTo, script.Reset, script.Entries} {
			b := newBench(t, algorithm.MetadataWindow{Limit: 3, Window: time.Second})
			b.state.keys[0] = value{held: true, expires: 1 << 60, set: []store.Member{{Score: 1, Text: text}}}
			args := b.program.AppendArgs(nil, v, &compose.Call{Cost: 1})
			if _, err := b.program.Script(v).GoForm()(b.state, args, nil); !errors.Is(err, store.ErrForeign) || b.state.writes > 0 {
				t.Errorf("%s over %q: error %v, %d writes, want ErrForeign and none", b.program.Script(v).Name(), text, err, b.state.writes)
			}
		}
	}
}

// If an entry is foreign, or if the counts of a list do not grow, Entries returns an
// error that does not quote the entry: no panic and no negative cost.
func TestMetadataWindowNonsense(t *testing.T) {
	t.Parallel()
	p := mustProgram(t, mustLimit(t, algorithm.MetadataWindow{Limit: 3, Window: time.Second}))
	for _, texts := range [][]string{{"x"}, {"x private", "m2 5 2 b"}, {"m2 5 2 a", "m2 5 2 b"}, {"m2 5 2 a", "m2 5 1 b"}, {"m2 5 0 a"}} {
		var reply []store.Value
		for _, text := range texts {
			reply = append(reply, store.BulkValue(text))
		}
		if list, err := p.Entries(reply); !errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrScript) || strings.Contains(err.Error(), "private") {
			t.Errorf("%q: %v, %v, want ErrForeign", texts, list, err)
		}
	}
}
