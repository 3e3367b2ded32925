package golden

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// OnMemory records h on a memory store whose clock stands still. So no key expires, as on a
// server, where all requests of a history come within a minute.
func OnMemory(ctx context.Context, h History) (*File, error) {
	st := memory.New(&memory.Options{Now: func() time.Time { return Start }})
	return Record(ctx, h, st, look(ctx, st))
}

// look returns what keys of a memory store hold. The list of a MetadataWindow is a sorted
// set there.
func look(ctx context.Context, st *memory.Store) func(keys []string) (map[string]Content, error) {
	return func(keys []string) (map[string]Content, error) {
		found := map[string]Content{}
		for key, ttl := range st.All() {
			if !slices.Contains(keys, key) {
				return nil, fmt.Errorf("%q is a key that no script had", key)
			}
			c := Content{TTL: ttl.Milliseconds()}
			script := store.NewReadOnlyScript("look", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
				if n, ok, err := tx.Get(0); err == nil && ok {
					c.Text = n.String()
					return reply, nil
				}
				_, all, err := tx.Count(0, 0)
				for i := all - 1; i >= 0 && err == nil; i-- {
					var m store.Member
					if m, _, err = tx.At(0, i); strings.HasPrefix(m.Text, "m") {
						c.List = append(c.List, m.Text)
					} else {
						c.Set = append(c.Set, Member{m.Text, m.Score})
					}
				}
				return reply, err
			})
			if _, err := st.Eval(ctx, script, []string{key}, nil, nil); err != nil {
				return nil, err
			}
			found[key] = c
		}
		return found, nil
	}
}
