package integration

import (
	"math/rand/v2"
	"testing"

	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
)

// TestSlot compares store.Slot with the cluster's own CLUSTER KEYSLOT.
func TestSlot(t *testing.T) {
	for _, server := range servers.All() {
		if server.Kind != servers.Cluster {
			continue
		}
		t.Run(server.Name, func(t *testing.T) {
			server.Start(t)
			c := servers.Client(t, server.Endpoint)
			keys := []string{"", "a", "{}", "{}a", "{a}", "x{a}y", "{a}{b}", "{{a}}", "a{b", "a}b{c}", "\x00\xff\r\n"}
			for range 500 {
				b := make([]byte, rand.IntN(20))
				for i := range b {
					b[i] = "{}abc\x00\xff:"[rand.IntN(8)]
				}
				keys = append(keys, string(b))
			}
			for _, key := range keys {
				want, err := c.ClusterKeySlot(t.Context(), key).Result()
				if err != nil {
					t.Fatal(err)
				}
				if got := store.Slot(key); int64(got) != want {
					t.Errorf("Slot(%q): got %d, want %d", key, got, want)
				}
			}
		})
	}
}
