// Command luadump writes the composed scripts of the built-in algorithms to the
// directory that it is given, one .lua file each, for luacheck and luac.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: luadump DIR")
		os.Exit(2)
	}
	if err := dump(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "luadump:", err)
		os.Exit(1)
	}
}

func dump(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	all := []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1},
		algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 1},
		algorithm.FixedWindow{Limit: 1, Window: time.Second},
		algorithm.MetadataWindow{Limit: 1, Window: time.Second},
		algorithm.SlidingLog{Limit: 1, Window: time.Second},
		algorithm.SlidingCounter{Limit: 1, Window: time.Second},
		algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerSecond(1)},
		algorithm.LeakyBucket{Rate: algorithm.PerSecond(1)},
		algorithm.LeakyBucket{Rate: algorithm.PerSecond(3)},
		algorithm.Concurrency{Limit: 1, Lease: time.Second},
		algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: 128 * time.Second, Limit: 2}, {Window: time.Second, Limit: 1}}},
	}
	var mix []*algorithm.Fragment
	for i := range algorithm.MaxRules {
		limit, err := all[i%len(all)].NewLimit()
		if err != nil {
			return err
		}
		mix = append(mix, limit.Fragment())
	}
	lists := [][]*algorithm.Fragment{mix}
	for i := range all {
		lists = append(lists, mix[i:i+1])
	}
	for i, list := range lists {
		p, err := algorithm.Compose(list...)
		if err != nil {
			return err
		}
		scripts := []*store.Script{p.Decide, p.Peek, p.Reset, p.Entries}
		for _, mode := range []algorithm.Mode{{Marked: true}, {UpTo: true}, {UpTo: true, Marked: true}} {
			if s, err := p.Variant(mode); err == nil {
				scripts = append(scripts, s)
			}
		}
		if s, err := p.Refund(); err == nil {
			scripts = append(scripts, s)
		}
		for n, s := range scripts {
			if s == nil {
				continue
			}
			name := fmt.Sprintf("%s-%s", s.Name(), s.SHA()[:8]) // two fragments can share a name
			if i == 0 {
				name = fmt.Sprintf("mix%d-%s", len(list), s.SHA()[:8])
			}
			lua := s.Lua()
			if n > 0 { // it may need a part alone of what the check sets
				lua = "-- luacheck: ignore 211 231 311\n" + lua
			}
			if err := os.WriteFile(filepath.Join(dir, name+".lua"), []byte(lua), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
