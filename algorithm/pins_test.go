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
	tokens := mustLimit(t, algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerSecond(1)}).Fragment()
	bucket := mustCompose(t, tokens)
	turns := mustLimit(t, algorithm.LeakyBucket{Rate: algorithm.PerSecond(1)}).Fragment()
	turnParts := mustLimit(t, algorithm.LeakyBucket{Rate: algorithm.PerSecond(3)}).Fragment()
	queue, queueParts := mustCompose(t, turns), mustCompose(t, turnParts)
	held := mustLimit(t, algorithm.Concurrency{Limit: 1, Lease: time.Second}).Fragment()
	holds := mustCompose(t, held)
	one, other, both := mustCompose(t, gcra), mustCompose(t, window), mustCompose(t, gcra, window)

	// The frame is what composing adds around two fragments of almost nothing.
	bare := fragment("-- check\nlocal ok, count = true, 0\n-- commit\nredis.call('SET', KEYS[1], ARGV[1], 'PX', 1)\n")
	frame := mustCompose(t, bare, bare)

	for _, tt := range []struct{ name, text, want string }{
		{"gcra fragment", gcra.Lua, "acc2c052d2f947a2d4c9340a99dd7d6938c27bdb"},
		{"gcra decide", one.Decide.Lua(), "39d31963079de0c33f65113731c33962d9cde425"},
		{"gcra peek", one.Peek.Lua(), "ad847289f592ce1396eaddbea1c51992e4f4931f"},
		{"gcra reset", one.Reset.Lua(), "a5c15510c8e7d5b818718ea6ddf27932b8ed06f9"},
		{"gcrafraction fragment", fraction.Lua, "92a85adde58d0eb009bdfcdc3bf0024660be10f2"},
		{"gcrafraction decide", parts.Decide.Lua(), "8be88df95314239e2a20dfe65a1f5a5db22cbe22"},
		{"gcrafraction peek", parts.Peek.Lua(), "58c22c21dbe54e399150f9d032a2084bc4050665"},
		{"gcrafraction reset", parts.Reset.Lua(), "cacfe2e04978745926b113e504fdef0881faab32"},
		{"fixedwindow fragment", window.Lua, "30fbcce8b535b7e150d94859541bd1fbe77baba6"},
		{"fixedwindow decide", other.Decide.Lua(), "34da6565834effda6ab6471b470b41e42fe3e81e"},
		{"fixedwindow peek", other.Peek.Lua(), "54611f87db2eb6e06a1ab8eec3f49746b8e08cbc"},
		{"fixedwindow reset", other.Reset.Lua(), "6188b73b635f311dfe7ce03a46b1cc51d529a367"},
		{"metadatawindow fragment", kept.Lua, "ba8a4be69e2d8f47861ce862b405d8345f192f34"},
		{"metadatawindow decide", keeps.Decide.Lua(), "72b218118a62b08573648a9e35e31d0eb869c591"},
		{"metadatawindow peek", keeps.Peek.Lua(), "5d66389bc0cb0ad99287d02565813226c9f8847e"},
		{"metadatawindow reset", keeps.Reset.Lua(), "decf07870075050fc14e4f62ea36379d65ec3481"},
		{"metadatawindow entries", keeps.Entries.Lua(), "e017f2ecaf065f0a926521ad9289265688557a12"},
		{"slidingcounter fragment", counter.Lua, "3c868ba8f31bc440ac42d43b6f63f839e0eb3c0a"},
		{"slidingcounter decide", counts.Decide.Lua(), "484ade746251dd82e161b69d6935f6e8f45a70ba"},
		{"slidingcounter peek", counts.Peek.Lua(), "f2478f2692ceccd1c28855b2a697761bc8393140"},
		{"slidingcounter reset", counts.Reset.Lua(), "2c6ed6eefe52ed633f296d50a06b6a6c967431ca"},
		{"concurrency fragment", held.Lua, "0b6440fbadb7bdb787c42e07c93051bacd7770d6"},
		{"concurrency decide", holds.Decide.Lua(), "33cea89649ce2f0d718367a2d67b49ed0d83893e"},
		{"concurrency peek", holds.Peek.Lua(), "e117cb3d6c4d06123b9a3a4c7b17ab82f694e35e"},
		{"concurrency reset", holds.Reset.Lua(), "ed52be9044ae70a8ce37b468834ff1e4db02927d"},
		{"slidinglog fragment", log.Lua, "1a7f9980db1bcca44780847894a60a8610bf74e3"},
		{"slidinglog decide", logs.Decide.Lua(), "71be0fcc5c64764fffefe85e2eee35fbf14fd4e0"},
		{"slidinglog peek", logs.Peek.Lua(), "06c70be56199ff4f31a9d6bc8a481219529f2db1"},
		{"slidinglog reset", logs.Reset.Lua(), "f1e78bfa0d4808a2766730693958a0af5251d129"},
		{"tokenbucket fragment", tokens.Lua, "96f9905c7c007a4e415365b877335e2d3ddf95b5"},
		{"tokenbucket decide", bucket.Decide.Lua(), "41626676a79a2eb4a98df5412c7e59c639f8c46b"},
		{"tokenbucket peek", bucket.Peek.Lua(), "9700a38990f8aaf4d27ab579211932575178251a"},
		{"tokenbucket reset", bucket.Reset.Lua(), "a3574afe9ba337714c0d8ae2bb16a54ebe9a3f1f"},
		{"leakybucket fragment", turns.Lua, "77e88e63d3ee490679fd7440a7fad43ce26c52c0"},
		{"leakybucket decide", queue.Decide.Lua(), "7d952978f5d432fe17dff2b7cec690ca05652fc5"},
		{"leakybucket peek", queue.Peek.Lua(), "0d699a56a82b69be8efdc86b623decb44c24dbde"},
		{"leakybucket reset", queue.Reset.Lua(), "739a4bea49c12b0997a8277d196bffcde39d520a"},
		{"leakybucket fraction fragment", turnParts.Lua, "14e8e599a8887c5a87d4272e4d195aa0a451c9f8"},
		{"leakybucket fraction decide", queueParts.Decide.Lua(), "f48ae014906d5665453dca292d97db87075c1e5f"},
		{"leakybucket fraction peek", queueParts.Peek.Lua(), "228ea092a83caf6f2ebaa5c1738e2f8ccecf181e"},
		{"leakybucket fraction reset", queueParts.Reset.Lua(), "576fdcdb66b2f9ebb34a01ad9828455416d13a04"},
		{"gcra and fixedwindow decide", both.Decide.Lua(), "4b51e46b32e702e00e00a9f4eccee83cedfb10d6"},
		{"frame decide", frame.Decide.Lua(), "0ccd5f75276e349f5c0f8d5cd9f72b7478c12fd4"},
		{"frame peek", frame.Peek.Lua(), "2a93769d75580e684807d3c63651e2394e18b48d"},
		{"frame reset", frame.Reset.Lua(), "6e7373ff98883c3fd94cbb23091eba03bcb7441d"},
		{"slidingbuckets fragment", ring.Lua, "2d85e17fa9a05e2f17d932563eaaaf3b45567c33"},
		{"slidingbuckets decide", buckets.Decide.Lua(), "f0a1be85bf3e74e3d575f41f1bbb92202180f38f"},
		{"slidingbuckets peek", buckets.Peek.Lua(), "b38f327584ab62f5e61fc520324a08700f035e52"},
		{"slidingbuckets reset", buckets.Reset.Lua(), "eeccf4befae733aeaef13e7db3a7083c02b34630"},
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
