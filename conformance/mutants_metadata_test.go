package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

var metadataWindowMutants = []mutant{
	{"a window starts aligned", "MetadataWindow/Same", nil, bad[algorithm.MetadataWindow](flaw{limit: func(l *contract.Limit) { l.Args[2] = l.Args[1] }})},
	{"texts end at a zero byte", "MetadataWindow/Same", nil, onlyFor("metadatawindow", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, add: func(i int, m store.Member, ttl time.Duration) {
			m.Text, _, _ = strings.Cut(m.Text, "\x00")
			tx.Add(i, m, ttl)
		}}
	})},
	{"the first entry is left out", "MetadataWindow/Newest", nil, bad[algorithm.MetadataWindow](flaw{step: func(b *badStep, _ []store.Arg) {
		b.parse = func(texts []string) ([]contract.Entry, error) {
			list, err := b.Step.(contract.Lister).Parse(texts)
			return list[min(1, len(list)):], err
		}
	}})},
	{"long metadata is cut", "MetadataWindow/Same", nil, bad[algorithm.MetadataWindow](flaw{step: func(b *badStep, _ []store.Arg) {
		b.write = func(tx store.Tx, key int, now int64, s contract.State, n int64, a contract.Ask, gen int64, slack time.Duration) error {
			a.Text = a.Text[:min(len(a.Text), 500)]
			return b.Step.Write(tx, key, now, s, n, a, gen, slack)
		}
	}})},
	{"a foreign member passes for an empty list", "MetadataWindow/Layout", nil, onlyFor("gcra+metadatawindow", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, at: func(i int, fromEnd int64) (store.Member, bool, error) {
			m, ok, err := tx.At(i, fromEnd)
			if !strings.HasPrefix(m.Text, "m2 ") {
				return store.Member{}, false, err
			}
			return m, ok, err
		}}
	})},
	{"Entries leaves out a foreign entry", "MetadataWindow/Layout", nil, bad[algorithm.MetadataWindow](flaw{step: func(b *badStep, _ []store.Arg) {
		b.parse = func(texts []string) ([]contract.Entry, error) {
			return b.Step.(contract.Lister).Parse(slices.DeleteFunc(texts, func(text string) bool { return !strings.HasPrefix(text, "m2 ") }))
		}
	}})},
	{"Entries quotes a foreign entry", "MetadataWindow/Layout", nil, bad[algorithm.MetadataWindow](flaw{step: func(b *badStep, _ []store.Arg) {
		b.parse = func(texts []string) ([]contract.Entry, error) {
			list, err := b.Step.(contract.Lister).Parse(texts)
			if err != nil {
				err = fmt.Errorf("%w: %q", store.ErrScript, texts)
			}
			return list, err
		}
	}})},
	{"a cost is miscounted", "MetadataWindow/Same", nil, bad[algorithm.MetadataWindow](miscounts)},
	{"the wait is rounded up", "MetadataWindow/Exact", nil, bad[algorithm.MetadataWindow](wholeMillis)},
	{"reads and writes apart", "MetadataWindow/HotKey", nil, torn("metadatawindow")},
	{"the clock is fast", "MetadataWindow/Refill", nil, hasty("metadatawindow")},
	{"a wait of more than a minute is longer", "MetadataWindow/Backwards", nil, bad[algorithm.MetadataWindow](longer(func(wait int64) int64 {
		if wait > 60_000_000 {
			wait += 3_600_000_000
		}
		return wait
	}))},
	{"large numbers lose digits", "MetadataWindow/Huge", nil, bad[algorithm.MetadataWindow](rounded)},
	{"a very large cost is cut", "MetadataWindow/Never", nil, cutCosts("metadatawindow")},
}
