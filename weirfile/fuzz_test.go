package weirfile

import (
	"strings"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/unit"
	"github.com/weir-go/weir/store/memory"
)

// FuzzParse: any text is an error, or a file of which every limiter decides. Its rules
// are read again from their words.
func FuzzParse(f *testing.F) {
	for _, text := range []string{good, shop, string(manyOverrides(2, "{key: [a, b%d], plan: pro}")), "{}", "policies: &x {a: *x}\n", `{"policies":{"a":{"rules":{"r":{"algorithm":"sliding log","limit":1,"window":"1s"}}}}}`} {
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
		limits, err := file.Limits(memory.New(nil))
		if err != nil {
			t.Fatalf("a valid file has no limits: %v", err)
		}
		for _, p := range file.Policies() {
			segments := make([]string, max(1, len(p.Segments)))
			for i := range segments {
				segments[i] = "x"
			}
			keys := []weir.Key{weir.KeyOf(segments...)}
			for _, o := range p.Overrides {
				keys = append(keys, o.Key)
			}
			plans := []string{""}
			for _, plan := range p.Plans {
				plans = append(plans, plan.Name)
			}
			for _, key := range keys {
				for _, plan := range plans {
					lim, err := limits.For(t.Context(), p.Name, plan, key)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := lim.Decide(t.Context(), weir.Request{Key: key, Op: weir.Peek, Costs: unit.Each(lim, 1)}, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, r := range p.Rules {
				again, err := Parse("x.yaml", one(Describe(r.Algorithm, nil)), nil)
				if err != nil {
					t.Fatalf("%s: %v", Describe(r.Algorithm, nil), err)
				}
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
