package memory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weir-go/weir/store"
)

// A set does what a sorted list does, below the size from which it is searched by
// an index and above it, and while it crosses that.
func TestSet(t *testing.T) {
	t.Parallel()
	for _, size := range []int{3, scanned / 2, scanned, 5 * scanned} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, uint64(size)))
			var s set
			var list []store.Member
			for i := range 4000 {
				c := setChange{set: &s, add: store.Member{Score: r.Int64N(40), Text: fmt.Sprint(i)}}
				if r.IntN(2*size) < len(list) {
					c.rank, c.remove = r.Int64N(int64(len(list)+2)), 1+r.Int64N(2)
				}
				if i%1000 == 999 {
					c.rank, c.remove = 0, int64(len(list)+1)
				}
				c.make()
				if c.remove > 0 {
					from := min(int(c.rank), len(list))
					list = slices.Delete(list, from, min(from+int(c.remove), len(list)))
				} else {
					list = append(list, c.add)
					slices.SortFunc(list, compare)
				}
				if !slices.Equal(s.members, list) {
					t.Fatalf("step %d, %+v:\ngot  %v\nwant %v", i, c, s.members, list)
				}
				text := fmt.Sprint(i - r.IntN(2*size))
				want := slices.IndexFunc(list, func(m store.Member) bool { return m.Text == text })
				if got, ok := s.find(text); got != want || ok != (want >= 0) {
					t.Fatalf("step %d: %q found at %d, %v, want %d in %v", i, text, got, ok, want, list)
				}
				if s.scores != nil && (len(s.scores) != len(list) || len(list) <= scanned/2) {
					t.Fatalf("step %d: an index of %d for %d members", i, len(s.scores), len(list))
				}
			}
		})
	}
}

// A search takes no longer in a set a thousand times as large: it is no scan.
func BenchmarkFind(b *testing.B) {
	for _, size := range []int{scanned, 100, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var s set
			for i := range size {
				s.insert(store.Member{Score: int64(i), Text: fmt.Sprint("c1 ", i)})
			}
			text := fmt.Sprint("c1 ", size/2)
			s.find(text)
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := s.find(text); !ok {
					b.Fatal("not found")
				}
			}
		})
	}
}
