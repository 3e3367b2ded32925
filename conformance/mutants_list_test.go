package conformance

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/store"
)

type listFunc = func(f *fake, ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error)

// lists returns a mutation whose List is a correct one, of which it keeps the keys for
// which keep returns true.
func lists(keep func(f *fake, prefix, key string) bool) mutation {
	return mutation{list: func(f *fake, ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
		list, next, err := f.Store.List(ctx, prefix, cursor, slices.Clone(keys))
		return slices.DeleteFunc(list, func(key string) bool { return !slices.Contains(keys, key) && !keep(f, prefix, key) }), next, err
	}}
}

// matching returns a List of the keys whose beginning matches prefix, in which one
// character stands for any.
func matching(wild byte) listFunc {
	return func(f *fake, ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
		head, _, _ := strings.Cut(prefix, string(wild))
		list, next, err := f.Store.List(ctx, head, cursor, nil)
		for _, key := range list {
			if len(key) >= len(prefix) && !slices.ContainsFunc(slices.Collect(each(len(prefix))), func(i int) bool { return prefix[i] != wild && prefix[i] != key[i] }) {
				keys = append(keys, key)
			}
		}
		return keys, next, err
	}
}

func each(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

var listMutants = []mutant{
	{"an underscore in the prefix stands for any character", "List/Prefix", nil, mutation{list: matching('_')}},
	{"a question mark in the prefix stands for any character", "List/Prefix", nil, mutation{list: matching('?')}},
	{"sorted sets are not listed", "List/Prefix", nil, lists(func(f *fake, _, key string) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return !f.sets[key]
	})},
	{"the key that is the prefix is not listed", "List/Prefix", nil, lists(func(_ *fake, prefix, key string) bool { return key != prefix })},
	{"the earlier keys are lost", "List/Prefix", []string{"List/"}, mutation{list: func(f *fake, ctx context.Context, prefix, cursor string, _ []string) ([]string, string, error) {
		return f.Store.List(ctx, prefix, cursor, nil)
	}}},
	{"a cursor is a number of keys", "List/Meanwhile", []string{"List/Misuse"}, mutation{list: func(f *fake, ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
		if err := ctx.Err(); err != nil {
			return keys, "", err
		}
		var all []string
		for key := range f.All() {
			if strings.HasPrefix(key, prefix) {
				all = append(all, key)
			}
		}
		slices.Sort(all)
		n, _ := strconv.Atoi(cursor)
		n = min(n, len(all))
		end := min(n+1000, len(all))
		if keys = append(keys, all[n:end]...); end == len(all) {
			return keys, "", nil
		}
		return keys, strconv.Itoa(end), nil
	}}},
	{"a listing ends with its first call", "List/Meanwhile", []string{"List/"}, mutation{list: func(f *fake, ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
		list, _, err := f.Store.List(ctx, prefix, cursor, keys)
		return list, "", err
	}}},
	{"an unknown cursor begins again", "List/Misuse", nil, mutation{list: func(f *fake, ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
		list, next, err := f.Store.List(ctx, prefix, cursor, keys)
		if err != nil && ctx.Err() == nil {
			return f.Store.List(ctx, prefix, "", keys)
		}
		return list, next, err
	}}},
	{"the error of a context that is done is ErrUnavailable", "List/Misuse", nil, mutation{list: func(f *fake, ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
		if ctx.Err() != nil {
			return keys, "", store.ErrUnavailable
		}
		return f.Store.List(ctx, prefix, cursor, keys)
	}}},
}
