package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/conformance/integration/internal/soak"
	"github.com/weir-go/weir/store"
)

// TestSoakSabotage checks that a soak finds what only a look at the servers and the process can
// find. Package soak has the other sabotages.
func TestSoakSabotage(t *testing.T) {
	notShort(t)
	notLight(t)
	servers.Need(t)
	const some = 40
	for name, tt := range map[string]struct {
		// do is called after each Eval of a store, one at a time, with the number of earlier
		// calls. It can be nil.
		do    func(t *testing.T, k *soaking, call int, e *sabotaged)
		fault func(t *testing.T, k *soaking) *soak.Fault // nil means none
		want  soak.Promise
		alone bool // what it leaves is counted in the whole process
	}{
		"a key has no TTL": {do: func(t *testing.T, k *soaking, call int, e *sabotaged) {
			if call%10 == 0 {
				must(t, k.nodes[0], "PERSIST", e.keys[0])
			}
		}, want: soak.Immortal},
		"a call starts a goroutine that never ends": {do: func(t *testing.T, _ *soaking, call int, _ *sabotaged) {
			if call < soakGoroutines+some {
				go func() { <-t.Context().Done() }()
			}
		}, want: soak.Abandoned, alone: true},
		"a call keeps memory of the process": {do: func(t *testing.T, _ *soaking, call int, _ *sabotaged) {
			if call < some {
				hoard := make([]byte, 1<<20)
				t.Cleanup(func() { hoard[0] = 1 })
			}
		}, want: soak.Growth, alone: true},
		"a call keeps memory of the server": {do: func(t *testing.T, k *soaking, call int, _ *sabotaged) {
			if call < some {
				must(t, k.nodes[0], "SET", fmt.Sprint("foreign ", call), strings.Repeat("x", 1<<20), "EX", "3600")
			}
		}, want: soak.Growth},
		"a script runs twice": {do: func(t *testing.T, _ *soaking, call int, e *sabotaged) {
			if call%20 == 0 {
				_, _ = e.Store.Eval(t.Context(), e.script, e.keys, e.args, nil)
			}
		}, want: soak.Answer},
		"a server forgets confirmed tokens": {fault: func(t *testing.T, k *soaking) *soak.Fault {
			return &soak.Fault{Name: "flush", Begin: func() {}, End: func() {}, Still: func() { must(t, k.nodes[0], "FLUSHALL") }}
		}, want: soak.More},
	} {
		t.Run(name, func(t *testing.T) {
			if !tt.alone {
				t.Parallel()
			}
			progress(t)
			server := servers.NewSingle(t, "redis-8.0")
			var mu sync.Mutex
			var k *soaking
			calls, armed := 0, false
			k = soakOn(t, 1, server.Endpoint, []*redis.Client{server.Nodes[0].Client(t)}, func(st store.Store) store.Store {
				return sabotage{st, func(e *sabotaged) {
					mu.Lock()
					defer mu.Unlock()
					if armed && tt.do != nil {
						tt.do(t, k, calls, e)
						calls++
					}
				}}
			})
			k.patience = time.Second
			k.round(100*time.Millisecond, nil)
			k.rest()
			mu.Lock()
			armed = true
			mu.Unlock()
			for tries := 0; tries < 20 && k.Report.Broken[tt.want] == 0; tries++ {
				var f *soak.Fault
				if tt.fault != nil {
					f = tt.fault(t, k)
				}
				k.round(300*time.Millisecond, f)
				k.rest()
			}
			if k.Report.Broken[tt.want] == 0 {
				t.Errorf("got %v, want that %s", k.Err(), tt.want)
			}
		})
	}
}

// A sabotage is a store that calls a function after each Eval.
type sabotage struct {
	store.Store
	after func(*sabotaged)
}

// A sabotaged is a call of Eval.
type sabotaged struct {
	store.Store
	script *store.Script
	keys   []string
	args   []store.Arg
}

func (s sabotage) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	reply, err := s.Store.Eval(ctx, script, keys, args, reply)
	s.after(&sabotaged{s.Store, script, keys, args})
	return reply, err
}
