package integration

import (
	"bytes"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/examples/patterns"
	"github.com/weir-go/weir/store/memory"
)

// TestPatterns runs every example of the published patterns on every store and
// server, and compares what it prints with what it prints over the memory store,
// which the examples of that package vouch for.
func TestPatterns(t *testing.T) {
	for _, a := range adapters {
		t.Run(a.name+"/miniredis", func(t *testing.T) {
			t.Parallel()
			runPatterns(t, a, servers.Endpoint{Kind: servers.Single, Addrs: []string{miniredis.RunT(t).Addr()}})
		})
		for _, server := range servers.All() {
			t.Run(a.name+"/"+server.Name, func(t *testing.T) {
				t.Parallel()
				if reason := a.lacks[server.Kind]; reason != "" {
					t.Skip(reason)
				}
				server.Start(t)
				runPatterns(t, a, server.Endpoint)
			})
		}
	}
}

func runPatterns(t *testing.T, a adapter, e servers.Endpoint) {
	st := a.store(t, e)
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
