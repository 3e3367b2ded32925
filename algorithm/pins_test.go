package algorithm_test

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// The scripts are part of what a user runs: a server that has one cached, a
// dashboard that counts by SHA, and two versions of a program that share keys during
// a deployment all see a change. So a change here is on purpose, and CHANGELOG.md
// tells of it, under Unreleased, with what happens to keys that the script before
// it wrote.
func TestPinnedScripts(t *testing.T) {
	t.Parallel()
	gcra := mustLimit(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}).Fragment()
	window := mustLimit(t, algorithm.FixedWindow{Limit: 1, Window: time.Second}).Fragment()
	one, other, both := mustCompose(t, gcra), mustCompose(t, window), mustCompose(t, gcra, window)

	// The frame is what composing adds around two fragments of almost nothing.
	bare := fragment("-- check\nlocal ok, count = true, 0\n-- commit\nredis.call('SET', KEYS[1], ARGV[1], 'PX', 1)\n")
	frame := mustCompose(t, bare, bare)

	for _, tt := range []struct{ name, text, want string }{
		{"gcra fragment", gcra.Lua, "8ce643b01484abdce20d9487e6277b84b14f6c0d"},
		{"gcra decide", one.Decide.Lua(), "2056c2ca5de725680b4b75108d75a8c1b71901e8"},
		{"gcra peek", one.Peek.Lua(), "28c017afe827e89a93ce105f8750cda6fd473ea8"},
		{"gcra reset", one.Reset.Lua(), "c3d6fbf617a225fa39f15166dd01ba86ce8d7fc1"},
		{"fixedwindow fragment", window.Lua, "aa3c2e698d9e6f788ced07651c6113e82c0aa355"},
		{"fixedwindow decide", other.Decide.Lua(), "3cdb3be0ecd49eaee02681be58af0ad7d8835bb0"},
		{"fixedwindow peek", other.Peek.Lua(), "dc36e964ee8e95b525498c0bfa90b9ae0259abd0"},
		{"fixedwindow reset", other.Reset.Lua(), "b773403c8ad7cbefb107327993d4ee5c2ae58d62"},
		{"gcra and fixedwindow decide", both.Decide.Lua(), "72559fdacd9aa239ce9de89381195bf13b49e302"},
		{"frame decide", frame.Decide.Lua(), "0ccd5f75276e349f5c0f8d5cd9f72b7478c12fd4"},
		{"frame peek", frame.Peek.Lua(), "2a93769d75580e684807d3c63651e2394e18b48d"},
		{"frame reset", frame.Reset.Lua(), "2bf05151892f3ad56bb749e30247f17ec3d419bb"},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "/"), func(t *testing.T) {
			t.Parallel()
			sum := sha1.Sum([]byte(tt.text))
			if got := hex.EncodeToString(sum[:]); got != tt.want {
				t.Errorf("{%q, %s}: it was %s; its text is now\n%s", tt.name, got, tt.want, tt.text)
			}
		})
	}
}
