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
	fraction := mustLimit(t, algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 1}).Fragment()
	log := mustLimit(t, algorithm.SlidingLog{Limit: 1, Window: time.Second}).Fragment()
	parts, logs := mustCompose(t, fraction), mustCompose(t, log)
	ring := mustLimit(t, algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: time.Second, Limit: 1}, {Window: 3 * time.Second, Limit: 2}}}).Fragment()
	buckets := mustCompose(t, ring)
	kept := mustLimit(t, algorithm.MetadataWindow{Limit: 1, Window: time.Second}).Fragment()
	keeps := mustCompose(t, kept)
	counter := mustLimit(t, algorithm.SlidingCounter{Limit: 1, Window: time.Second}).Fragment()
	counts := mustCompose(t, counter)
	one, other, both := mustCompose(t, gcra), mustCompose(t, window), mustCompose(t, gcra, window)

	// The frame is what composing adds around two fragments of almost nothing.
	bare := fragment("-- check\nlocal ok, count = true, 0\n-- commit\nredis.call('SET', KEYS[1], ARGV[1], 'PX', 1)\n")
	frame := mustCompose(t, bare, bare)

	for _, tt := range []struct{ name, text, want string }{
		{"gcra fragment", gcra.Lua, "230021f73c712da1d7b9eea9266ba109e1262697"},
		{"gcra decide", one.Decide.Lua(), "2c3478b0aa5fedc24d6f3fadfd5230f4791b087f"},
		{"gcra peek", one.Peek.Lua(), "a55f6c00c85251eca3e05e94cc7aa6a4315183fe"},
		{"gcra reset", one.Reset.Lua(), "03901149f108471b60f8340d96189f6db0b3e544"},
		{"gcrafraction fragment", fraction.Lua, "bc7161ae94a8aa27a20c4baf6796166c64114f53"},
		{"gcrafraction decide", parts.Decide.Lua(), "1cdd8d9bb0eb201d0eb4e2cde74eed625933681a"},
		{"gcrafraction peek", parts.Peek.Lua(), "28c017afe827e89a93ce105f8750cda6fd473ea8"},
		{"gcrafraction reset", parts.Reset.Lua(), "c0f71495addede671636ed3c04b1c768a72895e3"},
		{"fixedwindow fragment", window.Lua, "aa3c2e698d9e6f788ced07651c6113e82c0aa355"},
		{"fixedwindow decide", other.Decide.Lua(), "3cdb3be0ecd49eaee02681be58af0ad7d8835bb0"},
		{"fixedwindow peek", other.Peek.Lua(), "dc36e964ee8e95b525498c0bfa90b9ae0259abd0"},
		{"fixedwindow reset", other.Reset.Lua(), "dca7022dfba74ee91d26e532807a553e236393e2"},
		{"metadatawindow fragment", kept.Lua, "8cfcb427458e33ae43c40719abf542f00998a8bf"},
		{"metadatawindow decide", keeps.Decide.Lua(), "cbd90091685b005d5c2ab632ba624b392411a21f"},
		{"metadatawindow peek", keeps.Peek.Lua(), "99aca4d4a6aa09963933014a6c056a4b98234d75"},
		{"metadatawindow reset", keeps.Reset.Lua(), "9285dd7a40dc850ada947076adde78536dd5c171"},
		{"metadatawindow entries", keeps.Entries.Lua(), "e37ea7abd8700888c78b90f2ed7b12d4f370cffc"},
		{"slidingcounter fragment", counter.Lua, "46794046757b3b83700f9b82a50ba216c5eed76f"},
		{"slidingcounter decide", counts.Decide.Lua(), "5a80fc7e6e2e00f74841aff35663eeaec7d42f65"},
		{"slidingcounter peek", counts.Peek.Lua(), "3b0d036ab70767ddd790fe60bfb0d36609e5a8b2"},
		{"slidingcounter reset", counts.Reset.Lua(), "ac2c22378eefe47e5a9bc009935dac16950d7871"},
		{"slidinglog fragment", log.Lua, "6a50a5861590e069be53b8d25632c5f5885e03c4"},
		{"slidinglog decide", logs.Decide.Lua(), "1b73ace2014bd91b9a0fb006ea8dcf4c08da9e90"},
		{"slidinglog peek", logs.Peek.Lua(), "e60b9113f6fdb122085c5a60fe6283cb43283a70"},
		{"slidinglog reset", logs.Reset.Lua(), "8c48def8ca6f55005b2fd6a69d346989191aed9b"},
		{"gcra and fixedwindow decide", both.Decide.Lua(), "cea53024708e7b914e3e45e72b1f4cedd6d408f7"},
		{"frame decide", frame.Decide.Lua(), "0ccd5f75276e349f5c0f8d5cd9f72b7478c12fd4"},
		{"frame peek", frame.Peek.Lua(), "2a93769d75580e684807d3c63651e2394e18b48d"},
		{"frame reset", frame.Reset.Lua(), "6e7373ff98883c3fd94cbb23091eba03bcb7441d"},
		{"slidingbuckets fragment", ring.Lua, "4ef2150a16244aaa77abce85716971a810093eae"},
		{"slidingbuckets decide", buckets.Decide.Lua(), "568233e03be2ba09a466e5a7c7decb3a54d00685"},
		{"slidingbuckets peek", buckets.Peek.Lua(), "2f45e37c6880efbc7834e9b11f48e81fc40a8649"},
		{"slidingbuckets reset", buckets.Reset.Lua(), "e963020716a04d19c145d7c1bfa05ebd9778bfcf"},
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
