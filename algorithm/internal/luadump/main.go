// Command luadump writes the scripts of the built-in algorithms to a directory, for luacheck
// and luac. Its argument is the directory. Each script is one .lua file.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
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
	var mix []compose.Rule
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
	for i := range compose.MaxRules {
		limit, err := all[i%len(all)].NewLimit()
		if err != nil {
			return err
		}
		mix = append(mix, compose.Rule{Limit: limit, Cost: int64(i % 2)})
	}
	lists := [][]compose.Rule{mix}
	for i := range all {
		lists = append(lists, mix[i:i+1], []compose.Rule{{Limit: mix[i].Limit}})
	}
	for i, list := range lists {
		p, err := compose.New(list)
		if err != nil {
			return err
		}
		for _, v := range p.Verbs() {
			s := p.Script(v)
			name := fmt.Sprintf("%s-%s", s.Name(), s.SHA()[:8]) // two kinds can share a name
			if i == 0 {
				name = fmt.Sprintf("mix%d-%s", len(list), s.SHA()[:8])
			}
			if err := os.WriteFile(filepath.Join(dir, name+".lua"), []byte(s.Lua()), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
