package algorithm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

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
