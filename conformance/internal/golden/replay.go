package golden

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
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

// Names returns the names of the files in a directory, without .json.
func Names(dir string) ([]string, error) {
	files, err := os.ReadDir(dir)
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = strings.TrimSuffix(file.Name(), ".json")
	}
	return names, err
}

// History returns the requests of f, so that they can be recorded again.
func (f *File) History() (History, error) {
	h := History{Name: f.Name, Source: f.Source}
	if p := f.Policy; p == nil { // a limiter of redis-cell, whose name is in its keys
		h.Policy.Name = strings.Split(f.Steps[0].Calls[0].Keys[0], ":")[1]
	} else {
		h.Policy = weir.Policy{Name: p.Name, Segments: p.Segments, Secret: p.Secret}
		for _, r := range p.Rules {
			a, err := r.algorithm()
			if err != nil {
				return h, fmt.Errorf("%s: rule %q: %w", f.Name, r.Name, err)
			}
			h.Policy.Rules = append(h.Policy.Rules, weir.Rule{Name: r.Name, By: r.By, Algorithm: a, Cost: r.Cost})
		}
	}
	for _, s := range f.Steps {
		a := s.Request.ask()
		a.After, a.Published = time.UnixMicro(s.At).Sub(Start), s.Published
		h.Asks = append(h.Asks, a)
	}
	return h, nil
}

// algorithm returns the algorithm of r.
func (r *Rule) algorithm() (algorithm.Algorithm, error) {
	for _, a := range []algorithm.Algorithm{
		algorithm.GCRA{}, algorithm.TokenBucket{}, algorithm.LeakyBucket{}, algorithm.FixedWindow{}, algorithm.MetadataWindow{},
		algorithm.SlidingCounter{}, algorithm.SlidingLog{}, algorithm.SlidingBuckets{}, algorithm.Concurrency{}, algorithm.Calendar{},
		algorithm.Pause{},
	} {
		if kind := reflect.TypeOf(a); kind.Name() == r.Algorithm {
			v := reflect.New(kind)
			err := json.Unmarshal(r.Limit, v.Interface())
			return v.Elem().Interface().(algorithm.Algorithm), err
		}
	}
	return nil, fmt.Errorf("there is no algorithm %q", r.Algorithm)
}

// ask returns the request of r, or the call of redis-cell.
func (r *Request) ask() Ask {
	const us = time.Microsecond
	if r.Op == throttle {
		return Ask{Cell: &Cell{Key: r.Key[0], MaxBurst: r.MaxBurst, Count: r.Count, Period: time.Duration(r.Period) * us, Quantity: r.Cost}}
	}
	req := weir.Request{Key: weir.KeyOf(r.Key...), Cost: r.Cost, MaxWait: time.Duration(r.MaxWait) * us, For: time.Duration(r.For) * us, ID: r.ID, Metadata: r.Metadata}
	for op, name := range opNames {
		if name == r.Op {
			req.Op = op
		}
	}
	if r.Actual != nil {
		req.Actual = weir.ActualCost(*r.Actual)
	}
	return Ask{Request: req}
}
