package weirfile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store/memory"
)

// manyOverrides returns a file with n overrides of the given form, which has a %d.
func manyOverrides(n int, form string) []byte {
	var b strings.Builder
	b.WriteString(`policies:
  api:
    segments: [tenant, user]
    rules:
      tenant: {by: [tenant], algorithm: gcra, rate: 100 per second, burst: 200}
      user: {algorithm: fixed window, limit: 1000, window: 1h}
    plans:
      pro:
        user: {limit: 5000}
    overrides:
`)
	for i := range n {
		fmt.Fprintf(&b, "      - "+form+"\n", i+1)
	}
	return []byte(b.String())
}

// BenchmarkLoad reads a file with 10,000 overrides, and makes their limiters.
func BenchmarkLoad(b *testing.B) {
	for name, form := range map[string]string{
		"plans":  "{key: [acme, user-%d], plan: pro}",
		"equal":  "{key: [acme, user-%d], rules: {user: {limit: 7000}}}",
		"limits": "{key: [acme, user-%[1]d], rules: {user: {limit: %[1]d}}}",
	} {
		data := manyOverrides(10_000, form)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f, err := Parse("limits.yaml", data, nil)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := f.Limits(memory.New(nil)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFor looks up the limiter of a key with an override, and of a key without.
func BenchmarkFor(b *testing.B) {
	f, err := Parse("limits.yaml", manyOverrides(10_000, "{key: [acme, user-%d], plan: pro}"), nil)
	if err != nil {
		b.Fatal(err)
	}
	limits, err := f.Limits(memory.New(nil))
	if err != nil {
		b.Fatal(err)
	}
	for name, key := range map[string]weir.Key{"override": weir.KeyOf("acme", "user-77"), "plan": weir.KeyOf("acme", "other")} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := limits.For(b.Context(), "api", "pro", key); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
