package main

import (
	"context"
	"strings"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A fake is a server in the memory of the test, with the defects that it is told to have.
type fake struct {
	store.Store
	memory *memory.Store

	twice    bool  // each script runs twice
	keepsAll bool  // keys lose their TTLs
	hides    bool  // keys cannot be listed
	fails    error // of every script
	many     int64
}

func (f *fake) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if f.fails != nil {
		return reply, f.fails
	}
	if f.twice {
		_, _ = f.Store.Eval(ctx, s, keys, args, nil)
	}
	return f.Store.Eval(ctx, s, keys, args, reply)
}

func (f *fake) keys(_ context.Context, part string) (map[string]time.Duration, error) {
	found := map[string]time.Duration{}
	for key, ttl := range f.memory.All() {
		if f.keepsAll {
			ttl = -1
		}
		if strings.Contains(key, part) {
			found[key] = ttl
		}
	}
	if f.hides && len(found) > 0 { // SCAN is allowed, and PTTL is not
		return nil, store.ErrUnavailable
	}
	return found, nil
}

// dial returns f as the tool takes it.
func (f *fake) dial() (*server, error) {
	f.memory = memory.New(nil)
	f.Store = f.memory
	return &server{
		store:   f,
		open:    func(context.Context) (store.Store, func(), error) { return f, func() {}, nil },
		product: func(context.Context) string { return "Fake 1" },
		count:   func(context.Context) (int64, error) { return f.many, nil },
		keys:    f.keys,
		close:   func() {},
	}, nil
}
