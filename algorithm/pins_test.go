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
	ring := mustLimit(t, algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: time.Second, Limit: 1}, {Window: 3 * time.Second, Limit: 2}}}).Fragment()
	buckets := mustCompose(t, ring)
	one, other, both := mustCompose(t, gcra), mustCompose(t, window), mustCompose(t, gcra, window)

	// The frame is what composing adds around two fragments of almost nothing.
	bare := fragment("-- check\nlocal ok, count = true, 0\n-- commit\nredis.call('SET', KEYS[1], ARGV[1], 'PX', 1)\n")
	frame := mustCompose(t, bare, bare)

	for _, tt := range []struct{ name, text, want string }{
		{"gcra fragment", gcra.Lua, "8ce643b01484abdce20d9487e6277b84b14f6c0d"},
		{"gcra decide", one.Decide.Lua(), "4c9e22511c95f28ad41766413e4fee4ef5c18045"},
		{"gcra peek", one.Peek.Lua(), "75176f09ea91b860c6b84e5e44467a81f578d68e"},
		{"gcra reset", one.Reset.Lua(), "6699b0bd482bd757717ed04e5203566fba8c4533"},
		{"fixedwindow fragment", window.Lua, "aa3c2e698d9e6f788ced07651c6113e82c0aa355"},
		{"fixedwindow decide", other.Decide.Lua(), "37ab1d22a0eb32a4fc98efbe1404eb300fe3dfd1"},
		{"fixedwindow peek", other.Peek.Lua(), "d4ae52e1e05e2318a61b1aad5e2b3cec6e0394a3"},
		{"fixedwindow reset", other.Reset.Lua(), "535ee139fc668f3a7500a711371c8627ba5ba5fa"},
		{"slidingbuckets fragment", ring.Lua, "4ef2150a16244aaa77abce85716971a810093eae"},
		{"slidingbuckets decide", buckets.Decide.Lua(), "6bbea9a7fd8976bc19f0e8e32ecf1feaacf62f55"},
		{"slidingbuckets peek", buckets.Peek.Lua(), "a49160cf53c25029df51266944ebe0291443fa60"},
		{"slidingbuckets reset", buckets.Reset.Lua(), "13a7d40eeb67683fa63aea0e25382cabb6847414"},
		{"gcra and fixedwindow decide", both.Decide.Lua(), "aa99a6860c65af12cfc790599c70de67b546eb3b"},
		{"frame decide", frame.Decide.Lua(), "c545f04d985a45d33fb0efb35d559c1a94fcb7e0"},
		{"frame peek", frame.Peek.Lua(), "e799ec21acb3618f9611a91add77791c5104dfda"},
		{"frame reset", frame.Reset.Lua(), "a151c959ec0450a0aecc2969bf914f43c05354b8"},
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
