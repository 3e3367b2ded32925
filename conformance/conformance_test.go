package conformance_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

func memoryBackend() conformance.Backend {
	return conformance.Backend{
		New: func(*testing.T) store.Store { return memory.New(nil) },
		Keys: func(_ *testing.T, st store.Store, part string) map[string]time.Duration {
			keys := map[string]time.Duration{}
			for key, ttl := range st.(*memory.Store).All() {
				if strings.Contains(key, part) {
					keys[key] = ttl
				}
			}
			return keys
		},
	}
}

func TestMemory(t *testing.T) {
	b := memoryBackend()
	b.Parallel = 8 // most of the time, checks wait for a token to come back
	conformance.Run(t, b)
}
