package page

import "fmt"

// locals are the limiters in memory.
var locals = []string{
	"weir-bucket", "weir-gcra", "weir-window", "weir-counter", "weir-four",
	"xtimerate-syncmap", "sethvargo-memorystore", "throttled", "ulule", "httprate",
}

func (w *writer) memory() {
	w.p("## In memory")
	w.p("A decision is for a random known key, such as `user:100042`. An address, a UUID or a path takes as\nlong as any key of its length, and two segments a fifth longer.")
	const name = "Memory/impl=%s/keys="
	w.table("| | ns, one key | ns, 1,000 keys | ns, 100,000 keys | ns, 1,000 keys, all cores | allocations |",
		rows([]named{{"weir-bucket", "TokenBucket"}, {"weir-gcra", "GCRA"}, {"weir-four", "four rules"}}, w.in(name+"1", "ns/op", 1), w.in(name+"1000", "ns/op", 1),
			w.in(name+"100000", "ns/op", 1), w.in("MemoryParallel/impl=%s/keys=1000", "ns/op", 1), w.in(name+"1000", "allocs/op", 1)))
	w.picture("memory.svg", "A bar for each limiter in memory: the time of a decision with 1,000 keys.",
		"In memory, 1,000 keys: nanoseconds for one decision", name+"1000", "ns/op", implNames(locals))
	if four, ok := w.ratio(series{"Memory/impl=weir-four/keys=1000", "ns/op"}, series{"Memory/impl=xtimerate-syncmap/keys=1000", "ns/op"}); ok {
		w.p("A decision of four rules takes %s times as long as four decisions of x/time/rate.", four.times(0.25))
	}
	w.large()
}

func (w *writer) servers() {
	if !w.start("## On Redis", "Redis/impl=weir-gcra/callers=1", "ns/op", "decisions on a server") {
		return
	}
	w.p("A decision is for one of 1,000 known keys. \"Nothing\" is an EVALSHA of `return 1`, and shows what any\nscript costs.")
	var all []string
	for _, c := range clients {
		one, many := c.benchmark+"/impl=%s/callers=1", c.benchmark+"/impl=%s/callers=32"
		all = append(all, rows([]named{{"weir-bucket", "TokenBucket over " + c.name}, {"weir-gcra", "GCRA over " + c.name}, {"floor", "nothing over " + c.name}},
			w.in(one, "ns/op", 1e-3), w.in(many, "ns/op", 1e-3), w.in(many, cpu, 1), w.in(one, "allocs/op", 1), w.in(one, "wire-B/op", 1))...)
	}
	w.table("| | µs, one caller | µs, 32 callers | server's CPU, µs, 32 callers | allocations | bytes on the wire |", all)
	w.picture("server.svg", "A bar for each limiter over go-redis: the CPU time of the server for a decision, with 32 callers.",
		"Over go-redis, 32 callers: microseconds of the server's CPU for one decision",
		"Redis/impl=%s/callers=32", cpu, implNames([]string{"weir-bucket", "weir-gcra", "weir-window", "redis_rate", "throttled", "ulule", "floor"}))
}

// many writes what helps many callers, in the ratios of each round.
func (w *writer) many() {
	const alone, coalesced, threads, unit = "Coalesce/impl=alone/callers=64", "Coalesce/impl=coalesced/callers=64", "Threads/impl=weir-gcra/threads=", "ns/op"
	if s, ok := w.ratio(series{alone, unit}, series{coalesced, unit}); ok {
		c, _ := w.ratio(series{coalesced, cpu}, series{alone, cpu})
		w.p("`store.Coalesce` over go-redis makes %s times as many decisions for 64 callers,\nwith %s times the CPU time of the server for each.", s, c)
		if most, ok := w.ratio(series{"Redis/impl=weir-gcra/callers=32", cpu}, series{"Server/impl=weir-gcra", cpu}); ok {
			w.p("More than %s times is not possible on a busy server: that is the CPU time of a\ndecision sent alone, divided by that of the script in a long pipeline.", most)
		}
	} else {
		w.missing = append(w.missing, "many callers")
	}
	if s, ok := w.ratio(series{"Prefetch/impl=each/callers=1", unit}, series{"Prefetch/impl=prefetch/callers=1", unit}); ok {
		w.p("Package prefetch, with 1,000 tokens in a round trip, makes %s times as many decisions\nfor one caller and one key.", s)
	}
	if s, ok := w.ratio(series{threads + "2", cpu}, series{threads + "1", cpu}); ok {
		w.p("With `io-threads 2`, the main thread of Redis 8.6 takes %s times the CPU time for\n64 callers. Here the other thread takes a core from the callers.", s)
	}
}

func (w *writer) postgres() {
	if !w.start("## On PostgreSQL", "Postgres/impl=weir-gcra/callers=1/keys=1000", "ns/op", "decisions on PostgreSQL") {
		return
	}
	w.p(`A decision takes two round trips. The server does not wait for its disk (` + "`fsync=off`" + `). There
are 1,000 keys, except in the last column.`)
	const name = "Postgres/impl=%s/callers="
	all := rows([]named{
		{"floor", "two round trips that do nothing"},
		{"weir-gcra", "GCRA"},
		{"weir-coalesce", "GCRA with `store.Coalesce`"},
		{"weir-four", "four rules of GCRA"},
		{"weir-denied", "a denial of one key"},
	}, w.in(name+"1/keys=1000", "ns/op", 1e-3), w.in(name+"16/keys=1000", "ns/op", 1e-3), w.in(name+"16/keys=1", "ns/op", 1e-3))
	batches := rows([]named{{"keys=100", "one of 100 decisions of `DoMany`"}}, w.in("PostgresMany/%s", "ns/decision", 1e-3))
	logs := rows([]named{{"1000", "SlidingLog, 1,000 entries"}}, w.in("PostgresLog/entries=%s", "ns/op", 1e-3))
	for _, row := range append(batches, logs...) {
		all = append(all, row+" – | – |")
	}
	w.table("| One decision | µs, one caller | µs, 16 callers | µs, 16 callers, one key |", all)
	w.p("Callers of one key wait for each other from the lock to the commit, unless `store.Coalesce` puts\ntheir decisions into one transaction.")
	if four, ok := w.stat(fmt.Sprintf(name, "weir-four")+"1/keys=1000", "wal-B/op"); ok {
		one, _ := w.stat(fmt.Sprintf(name, "weir-gcra")+"1/keys=1000", "wal-B/op")
		w.p("A GCRA writes %s bytes to the log (WAL), and four rules %s.", number(one.median), number(four.median))
	}
}

func (w *writer) sqlite() {
	if !w.start("## On SQLite", "SQLite/impl=weir-gcra/callers=1/keys=1000", "ns/op", "decisions on SQLite") {
		return
	}
	w.p(`There are 1,000 keys in a file with a WAL and ` + "`synchronous(NORMAL)`" + `, so a loss of power can lose
the last decisions.`)
	const name = "SQLite/impl=%s/callers="
	w.table("| One decision | µs, one caller | µs, 16 callers |", rows([]named{
		{"floor", "an unprepared transaction that reads and writes a row"},
		{"weir-gcra", "GCRA"},
		{"weir-coalesce", "GCRA with `store.Coalesce`"},
		{"weir-denied", "a denial of one key"},
	}, w.in(name+"1/keys=1000", "ns/op", 1e-3), w.in(name+"16/keys=1000", "ns/op", 1e-3)))
}

func (w *writer) nats() {
	if !w.start("## On NATS", "NATS/impl=nats-memory/keys=1000/callers=1", "ns/op", "decisions on NATS") {
		return
	}
	w.p("A decision takes two round trips, and more if other processes decide for the same key. The server\nruns in the process of its callers.")
	const name = "NATS/impl=%s/keys="
	w.table("| One decision | µs, one caller | µs, 16 callers | µs, 16 callers, one key |", rows([]named{
		{"nats-memory", "a stream in memory"},
		{"nats-file", "a stream in a file"},
		{"nats-coalesce", "in memory, with `store.Coalesce`"},
		{"nats-apart", "in memory, each caller with a store of its own"},
		{"nats-two-rules", "in memory, two rules"},
	}, w.in(name+"1000/callers=1", "ns/op", 1e-3), w.in(name+"1000/callers=16", "ns/op", 1e-3), w.in(name+"1/callers=16", "ns/op", 1e-3)))
}

func (w *writer) around() {
	if !w.start("## Around a decision", "Around/what=denycache", "ns/op", "what surrounds a decision") {
		return
	}
	const name = "Around/what=%s"
	w.table("| One call, with a limiter in memory | ns |", rows([]named{
		{"denycache", "a denial that package denycache remembers"},
		{"prefetch", "tokens that package prefetch holds"},
		{"failopen", "`outage.Breaker` during an outage"},
		{"middleware", "a handler with the middleware of `weirhttp`"},
	}, w.in(name, "ns/op", 1)))
}

// differences says what peers do less. It has no measured figures.
func (w *writer) differences() {
	w.p("## What the peers do differently")
	w.p(`All limiters allow one request per second and a burst of a billion, so all requests are allowed.
The ratios compare ulule and rueidislimiter with FixedWindow, httprate with SlidingCounter, and the
others with TokenBucket. None of these peers decides over several rules at once.`)
	w.table("| Peer | Algorithm, and what it does less |", []string{
		"| [x/time/rate](https://pkg.go.dev/golang.org/x/time/rate) in a `sync.Map` | token bucket in floats; removes no key, so memory grows with every key |",
		"| [go-limiter](https://github.com/sethvargo/go-limiter) | fixed interval; its burst is the limit of a whole interval; a goroutine removes keys |",
		"| [throttled](https://github.com/throttled/throttled) in memory | GCRA; removes no key from its map |",
		"| [ulule/limiter](https://github.com/ulule/limiter) | fixed window; counts denied requests; in memory, a goroutine removes keys |",
		"| [httprate](https://github.com/go-chi/httprate) | estimate from two windows in floats; keeps 64-bit hashes, so two keys can share a limit; one lock for all keys |",
		"| [redis_rate](https://github.com/go-redis/redis_rate) | GCRA in floats |",
		"| throttled over go-redis | GCRA; at least two round trips; sends the text of its script each time; a new key and its expiry are two steps |",
		"| [go-redisstore](https://github.com/sethvargo/go-redisstore) | token bucket on the caller's clock; its `New` connects for each decision |",
		"| [rueidislimiter](https://github.com/redis/rueidis/tree/main/rueidislimiter) | fixed window on the caller's clock; counts denied requests; two keys for each caller |",
	})
}
