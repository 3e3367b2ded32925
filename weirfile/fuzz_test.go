package weirfile

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store/memory"
)

// FuzzParse: any text is an error, or a file of which every limiter decides. Its rules
// are read again from their words.
func FuzzParse(f *testing.F) {
	for _, text := range []string{good, shop, tree, string(manyOverrides(2, "{match: {tenant: a, user: b%d}, plan: pro}")), "{}", "policies: &x {a: *x}\n", `{"policies":{"a":{"rules":{"r":{"algorithm":"sliding log","limit":1,"window":"1s"}}}}}`} {
		f.Add([]byte(text))
	}
	f.Add([]byte(strings.Replace(good, "cost: 5", "unit: input", 1)))
	for _, k := range builtin {
		f.Add(one(Describe(k.algorithm, nil)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse("x.yaml", text, nil)
		if err != nil {
			if file != nil || err.Error() == "" {
				t.Errorf("got %v beside the error %v", file, err)
			}
			return
		}
		limits := limitsOver(t, file, memory.New(nil))
		for _, p := range file.Policies() {
			segments := slices.Repeat([]string{"x"}, max(1, len(p.Segments)))
			for _, o := range append(p.Overrides, Override{Key: weir.KeyOf(segments...)}) {
				for _, plan := range append(p.Plans, Plan{}) {
					key := o.Key.Segments()
					for i := range key {
						key[i] = cmp.Or(key[i], "x")
					}
					lim := limiter(t, limits, p.Name, plan.Name, key...)
					weirtest.Decide(t, lim, weir.Request{Key: weir.KeyOf(key...), Op: weir.Peek, Costs: gate.Each(lim, 1)})
				}
			}
			for _, r := range p.Rules {
				again := parse(t, string(one(Describe(r.Algorithm, nil))), nil)
				if got, want := Describe(again.Policies()[0].Rules[0].Algorithm, nil), Describe(r.Algorithm, nil); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}
		}
		if changes := Diff(file, file); changes != nil {
			t.Errorf("a file differs from itself: %v", changes)
		}
	})
}
