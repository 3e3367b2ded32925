package integration

import (
	"bytes"
	"testing"

	"github.com/weir-go/weir/examples/patterns"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// TestPatterns runs every published pattern on every store and server. It must print
// what it prints over the memory store, which the examples of package patterns check.
func TestPatterns(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) { runPatterns(t, p.st) })
}

func runPatterns(t *testing.T, st store.Store) {
	for _, p := range patterns.All() {
		t.Run(p.Name, func(t *testing.T) {
			var got, want bytes.Buffer
			if err := p.Run(t.Context(), &want, memory.New(nil)); err != nil {
				t.Fatal("memory:", err)
			}
			if err := p.Run(t.Context(), &got, st); err != nil {
				t.Fatal(err)
			}
			if want.Len() == 0 || got.String() != want.String() {
				t.Errorf("got:\n%s\nthe memory store prints:\n%s", got.String(), want.String())
			}
		})
	}
}
