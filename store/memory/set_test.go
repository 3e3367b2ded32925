package memory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weir-go/weir/store"
)

// A set behaves like a sorted list, if the texts have the order of the scores and if not,
// and for sizes around the one from which a set is searched by a map.
func TestSet(t *testing.T) {
	t.Parallel()
	for _, size := range []int{3, scanned / 2, scanned, 5 * scanned} {
		for _, ordered := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d, ordered %v", size, ordered), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(1, uint64(size)))
				var s set
				var list []store.Member
				for i := range 4000 {
					m := store.Member{Score: r.Int64N(40), Text: fmt.Sprint(r.IntN(3 * size))}
					if ordered {
						m = store.Member{Score: int64(i / 3), Text: fmt.Sprintf("%08d", i)}
					}
					c := setChange{set: &s, op: addMember, member: m}
					if r.IntN(2*size) < len(list) {
						c.op, c.n = []setOp{removeMember, trimMembers}[r.IntN(2)], r.Int64N(3)
						if len(list) > 0 && r.IntN(2) == 0 {
							c.member = list[r.IntN(len(list))]
						}
					}
					if i%1000 == 999 {
						c.op, c.n = trimMembers, int64(len(list)+1)
					}
					c.make()
					same := func(m store.Member) bool { return m.Text == c.member.Text }
					switch c.op {
					case addMember:
						list = append(slices.DeleteFunc(list, same), c.member)
						slices.SortFunc(list, compare)
					case removeMember:
						list = slices.DeleteFunc(list, same)
					case trimMembers:
						list = slices.Delete(list, 0, min(int(c.n), len(list)))
					}
					if !slices.Equal(s.members, list) {
						t.Fatalf("step %d, %+v:\ngot  %v\nwant %v", i, c, s.members, list)
					}
					text := fmt.Sprint(r.IntN(3 * size))
					if ordered {
						text = fmt.Sprintf("%08d", i-r.IntN(2*size))
					}
					want := slices.IndexFunc(list, func(m store.Member) bool { return m.Text == text })
					if got, ok := s.find(text); ok != (want >= 0) || ok && got != want {
						t.Fatalf("step %d: %q found at %d, %v, want %d in %v", i, text, got, ok, want, list)
					}
					if ordered && (s.shuffled || s.scores != nil) {
						t.Fatalf("step %d: an ordered set is shuffled or has an index", i)
					}
					if s.scores != nil && (len(s.scores) != len(list) || len(list) <= scanned/2) {
						t.Fatalf("step %d: an index of %d texts for %d members", i, len(s.scores), len(list))
					}
					if len(list) == 0 && s.shuffled {
						t.Fatalf("step %d: an empty set is shuffled", i)
					}
				}
			})
		}
	}
}
