package integration

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
)

// text is the value of a key in words.
func text(h store.Content) string {
	switch h.Kind {
	case store.Numbers:
		return h.Nums.String()
	case store.Set:
		return fmt.Sprint(h.Members)
	}
	return "missing"
}

// bothForms runs s in Lua that mutate returns, and in Go on held, the values of keys, which it
// changes. It returns the replies of both, and the changes of the Go form.
func bothForms(ctx context.Context, st store.Store, s *store.Script, keys []string, args []store.Arg, held []store.Content, mutate func(lua string) string) (lua, inGo []store.Value, changes []store.Change, err error) {
	if lua, err = st.Eval(ctx, store.NewScript(s.Name(), mutate(s.Lua()), nil), keys, args, nil); err != nil {
		return nil, nil, nil, err
	}
	tx := store.NewLoaded(formEpoch, held)
	if inGo, err = s.Run(tx, keys, args, nil); err != nil {
		return nil, nil, nil, fmt.Errorf("the Go form: %w", err)
	}
	changes = tx.Changes()
	for _, change := range changes {
		held[change.Key] = change.Content
	}
	return lua, inGo, changes, nil
}

// onServer is the value and the TTL of a key on a server.
func onServer(ctx context.Context, rdb *redis.Client, key string) string {
	ttl := max(rdb.PTTL(ctx, key).Val(), 0)
	if value, err := rdb.Get(ctx, key).Result(); err == nil {
		return fmt.Sprint(value, ttl)
	}
	var h store.Content
	for _, z := range rdb.ZRangeWithScores(ctx, key, 0, -1).Val() {
		h.Kind, h.Members = store.Set, append(h.Members, store.Member{Score: int64(z.Score), Text: z.Member.(string)})
	}
	return fmt.Sprint(text(h), ttl)
}
