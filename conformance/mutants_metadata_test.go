package conformance

import (
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A cutter is a view of sets that cuts texts where C does.
type cutter struct{ store.Tx }

func (c cutter) Add(i int, m store.Member) {
	m.Text, _, _ = strings.Cut(m.Text, "\x00")
	c.Tx.Add(i, m)
}

// A careless view takes a set of someone else's for its own.
type careless struct{ store.Tx }

func (c careless) At(i int, rank int64) (store.Member, bool, error) {
	m, ok, err := c.Tx.At(i, rank)
	if !strings.HasPrefix(m.Text, "m1 ") {
		return store.Member{}, false, err
	}
	return m, ok, err
}

var metadataWindowMutants = []mutant{
	{"a window starts aligned", "MetadataWindow/Trace", []string{"MetadataWindow/", "Limiter/Mix", "Hygiene/"}, bad[algorithm.MetadataWindow](badAlgorithm{args: func(args []store.Arg) { args[3] = args[1] }})},
	{"texts end at a zero byte", "MetadataWindow/Entries", nil, onlyFor("fixedwindow+metadatawindow", func(_ *fake, tx store.Tx) store.Tx { return cutter{tx} })},
	{"the first entry is left out", "MetadataWindow/Newest", []string{"MetadataWindow/Entries", "MetadataWindow/Bytes", "MetadataWindow/Foreign"}, bad[algorithm.MetadataWindow](badAlgorithm{entries: func(list []algorithm.Entry) []algorithm.Entry {
		return list[min(1, len(list)):]
	}})},
	{"any metadata is kept", "MetadataWindow/Bytes", nil, bad[algorithm.MetadataWindow](badAlgorithm{anyCost: true})},
	{"a set passes for an empty list", "MetadataWindow/Foreign", nil, onlyFor("metadatawindow+gcra", func(_ *fake, tx store.Tx) store.Tx { return careless{tx} })},
	{"a cost is miscounted", "MetadataWindow/History", []string{"Limiter/Mix"}, bad[algorithm.MetadataWindow](badAlgorithm{verdict: sevens})},
	{"the wait is rounded up", "MetadataWindow/Exact", []string{"MetadataWindow/", "Limiter/Mix"}, bad[algorithm.MetadataWindow](badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if v.RetryAfter != algorithm.Never {
			v.RetryAfter = (v.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond)
		}
		return v
	}})},
	{"reads and writes apart", "MetadataWindow/HotKey", []string{"Hygiene/TTL"}, torn("metadatawindow")},
	{"the clock is fast", "MetadataWindow/Refill", []string{"Hygiene/"}, hasty("metadatawindow")},
	{"the clock never steps back", "MetadataWindow/Backwards", []string{"MetadataWindow/", "Limiter/Mix"}, bad[algorithm.MetadataWindow](badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if v.RetryAfter != algorithm.Never && v.RetryAfter > time.Minute {
			v.RetryAfter += time.Hour
		}
		return v
	}})},
	{"never is an hour", "MetadataWindow/Never", []string{"MetadataWindow/", "Limiter/Mix"}, bad[algorithm.MetadataWindow](badAlgorithm{verdict: mayBeNever})},
	{"large numbers lose digits", "MetadataWindow/Huge", []string{"MetadataWindow/"}, bad[algorithm.MetadataWindow](badAlgorithm{args: func(args []store.Arg) {
		for i, a := range args[:4] {
			if a.Int() > 1e14 {
				args[i] = store.IntArg(a.Int() / 1000 * 1000)
			}
		}
	}})},
}
