package page

import (
	"fmt"
	"slices"
)

// locals are the limiters in memory, in the order of the table.
var locals = []string{
	"weir-gcra", "weir-window", "weir-counter", "weir-four",
	"xtimerate-syncmap", "sethvargo-memorystore", "throttled", "ulule", "httprate",
}

func (w *writer) memory() {
	w.p("## In memory")
	w.p(`A decision for a random key that the limiter knows. All limiters allow one request per second and a
burst of a billion, so that every request is allowed. The parallel calls come from as many
goroutines as there are cores, with 1,000 keys.`)
	const name = "Memory/impl=%s/keys="
	w.table("| Limiter | ns, one key | ns, 1,000 keys | ns, 100,000 keys | ns, parallel | allocations |",
		rows(implNames(locals), w.in(name+"1", "ns/op", 1), w.in(name+"1000", "ns/op", 1), w.in(name+"100000", "ns/op", 1),
			w.in("MemoryParallel/impl=%s/keys=1000", "ns/op", 1), w.in(name+"1000", "allocs/op", 1)))
	w.picture("memory.svg", "A bar for each limiter in memory: the time of a decision with 1,000 keys.",
		"In memory, 1,000 keys: nanoseconds for one decision", name+"1000", "ns/op", implNames(locals))
	w.likes("Memory/impl=%s/keys=1000", "ns/op", likes)
	if four, ok := w.ratio(series{"Memory/impl=weir-four/keys=1000", "ns/op"}, series{"Memory/impl=xtimerate-syncmap/keys=1000", "ns/op"}); ok {
		w.p("A decision of four rules takes %s times as long as four decisions of x/time/rate.", four.times(0.25))
	}
}

// likes writes the ratios of weir to peers. name has a verb for the implementation.
func (w *writer) likes(name, unit string, likes []like) {
	head := "| Ratio of times, 1,000 keys | |"
	if unit == cpu {
		head = "| Ratio of CPU times of the server, 32 callers | |"
	}
	var rows []string
	for _, l := range likes {
		a, b := fmt.Sprintf(name, l.weir), fmt.Sprintf(name, l.peer)
		if ratio, ok := w.ratio(series{a, unit}, series{b, unit}); ok {
			rows = append(rows, fmt.Sprintf("| %s / %s | %s |", implName(l.weir), implName(l.peer), ratio))
		}
	}
	w.table(head, rows)
}

func (w *writer) servers() {
	if !w.start("## On a server", "Redis/impl=weir-gcra/callers=1", "ns/op", "decisions on a server") {
		return
	}
	w.p(`A decision for one of 1,000 keys that exist. A caller sends the next request when it has the answer.
The script that does nothing is an EVALSHA of ` + "`return 1`" + `: what any script costs with this client.`)
	for _, c := range clients {
		w.client(c)
	}
	w.picture("server.svg", "A bar for each limiter over go-redis: the CPU time of the server for a decision, with 32 callers.",
		"Over go-redis, 32 callers: microseconds of the server's CPU for one decision",
		"Redis/impl=%s/callers=32", cpu, implNames(clients[0].impls))
}

// client writes the table of a client.
func (w *writer) client(c client) {
	if !w.start("### Over "+c.name, c.benchmark+"/impl=weir-gcra/callers=1", "ns/op", "decisions over "+c.name) {
		return
	}
	one, many := c.benchmark+"/impl=%s/callers=1", c.benchmark+"/impl=%s/callers=32"
	w.table("| Limiter | µs, one caller | µs, 32 callers | server's CPU, µs, 32 callers | allocations | bytes sent | bytes received |",
		rows(implNames(c.impls), w.in(one, "ns/op", 1e-3), w.in(many, "ns/op", 1e-3), w.in(many, cpu, 1),
			w.in(one, "allocs/op", 1), w.in(one, "sent-B/op", 1), w.in(one, "received-B/op", 1)))
	w.likes(c.benchmark+"/impl=%s/callers=32", cpu, c.likes)
}

// many writes what helps many callers, in the ratios of each round.
func (w *writer) many() {
	const name, unit = "Coalesce/impl=%s/callers=64", "ns/op"
	if !w.start("### Many callers", fmt.Sprintf(name, "alone"), unit, "many callers") {
		return
	}
	if s, ok := w.ratio(series{"Coalesce/impl=alone/callers=64", unit}, series{"Coalesce/impl=coalesced/callers=64", unit}); ok {
		c, _ := w.ratio(series{"Coalesce/impl=coalesced/callers=64", cpu}, series{"Coalesce/impl=alone/callers=64", cpu})
		w.p("`store.Coalesce` over go-redis makes %s times as many decisions for 64 callers,\nwith %s times the CPU time of the server for each.", s, c)
	}
	if s, ok := w.ratio(series{"Prefetch/impl=each/callers=1", unit}, series{"Prefetch/impl=prefetch/callers=1", unit}); ok {
		w.p("Package prefetch, with 1,000 tokens in a round trip, makes %s times as many decisions\nfor one caller and one key.", s)
	}
	w.table("| 64 callers over go-redis | µs | CPU of the server's main thread, µs |", slices.Concat(
		rows([]named{{"alone", "weir, GCRA"}, {"coalesced", "the same with `store.Coalesce`"}}, w.in(name, unit, 1e-3), w.in(name, cpu, 1)),
		rows([]named{
			{"impl=weir-gcra/threads=1", "weir, GCRA, Redis 8.6"},
			{"impl=weir-gcra/threads=2", "the same with `io-threads 2`"},
			{"impl=redis_rate/threads=1", "redis_rate, Redis 8.6"},
			{"impl=redis_rate/threads=2", "the same with `io-threads 2`"},
			{"impl=floor/threads=1", "a script that does nothing, Redis 8.6"},
			{"impl=floor/threads=2", "the same with `io-threads 2`"},
		}, w.in("Threads/%s", unit, 1e-3), w.in("Threads/%s", cpu, 1)),
	))
	w.p("An I/O thread takes the network from the main thread, which runs the scripts. Here it also takes a\ncore from the callers.")
}

func (w *writer) postgres() {
	if !w.start("## On PostgreSQL", "Postgres/impl=weir-gcra/callers=1/keys=1000", "ns/op", "decisions on PostgreSQL") {
		return
	}
	w.p(`A decision takes two round trips, with one of 1,000 known keys or always the same key. A caller
sends the next request when it has the answer. The server does not wait for its disk (` + "`fsync=off`" + `),
and writes these bytes to its log (WAL).`)
	const name = "Postgres/impl=%s/callers="
	all := rows([]named{
		{"floor", "two round trips that do nothing"},
		{"weir-gcra", "GCRA"},
		{"weir-coalesce", "GCRA with `store.Coalesce`"},
		{"weir-four", "four rules of GCRA"},
		{"weir-denied", "a denial, always of the same key"},
	}, w.in(name+"1/keys=1000", "ns/op", 1e-3), w.in(name+"16/keys=1000", "ns/op", 1e-3), w.in(name+"16/keys=1", "ns/op", 1e-3), w.in(name+"1/keys=1000", "wal-B/op", 1))
	batches := rows([]named{
		{"keys=100", "one of 100 decisions of `DoMany`, 100 keys"},
		{"keys=1", "one of 100 decisions of `DoMany`, the same key"},
	}, w.in("PostgresMany/%s", "ns/decision", 1e-3))
	logs := rows([]named{{"10", "SlidingLog, 10 entries"}, {"100", "SlidingLog, 100 entries"}, {"1000", "SlidingLog, 1,000 entries"}}, w.in("PostgresLog/entries=%s", "ns/op", 1e-3))
	for _, row := range append(batches, logs...) {
		all = append(all, row+" | | |")
	}
	w.table("| One decision | µs, one caller | µs, 16 callers | µs, 16 callers, one key | bytes of WAL |", all)
	const same = "Postgres/impl=weir-gcra/callers=%d/keys=1"
	if s, ok := w.ratio(series{fmt.Sprintf(same, 16), "ns/op"}, series{fmt.Sprintf(same, 1), "ns/op"}); ok {
		w.p("Callers of one key wait for each other from the lock to the commit, so 16 of them take %s times\nas long for each decision as one. `store.Coalesce` puts their decisions into one transaction.", s)
	}
}

func (w *writer) sqlite() {
	if !w.start("## On SQLite", "SQLite/impl=weir-gcra/callers=1/keys=1000", "ns/op", "decisions on SQLite") {
		return
	}
	w.p(`A decision for one of 1,000 known keys in a file, by goroutines of one process. The journal is a WAL
with ` + "`synchronous(NORMAL)`" + `, so a loss of power can lose the last decisions.`)
	const name = "SQLite/impl=%s/callers="
	all := rows([]named{
		{"floor", "a transaction that reads and writes a row, with statements that are not prepared"},
		{"weir-gcra", "GCRA"},
		{"weir-coalesce", "GCRA with `store.Coalesce`"},
		{"weir-denied", "a denial, always of the same key"},
	}, w.in(name+"1/keys=1000", "ns/op", 1e-3), w.in(name+"16/keys=1000", "ns/op", 1e-3))
	for _, row := range rows([]named{{"10", "SlidingLog, 10 entries"}, {"100", "SlidingLog, 100 entries"}, {"1000", "SlidingLog, 1,000 entries"}}, w.in("SQLiteLog/entries=%s", "ns/op", 1e-3)) {
		all = append(all, row+" – |")
	}
	w.table("| One decision | µs, one caller | µs, 16 callers |", all)
}

func (w *writer) nats() {
	if !w.start("## On NATS", "NATS/impl=nats-memory/keys=1000/callers=1", "ns/op", "decisions on NATS") {
		return
	}
	w.p("A decision of a GCRA takes two round trips, and more if other processes decide for the same key.\nThe server runs in the process of its callers. Redis, over go-redis, is for comparison.")
	const name = "NATS/impl=%s/keys="
	w.table("| One decision | µs, one caller | µs, 16 callers | µs, 16 callers, one key |", rows([]named{
		{"nats-memory", "a stream in memory"},
		{"nats-file", "a stream in a file"},
		{"nats-coalesce", "in memory, with `store.Coalesce`"},
		{"nats-apart", "in memory, each caller with a store of its own"},
		{"nats-two-rules", "in memory, two rules"},
		{"redis", "Redis"},
	}, w.in(name+"1000/callers=1", "ns/op", 1e-3), w.in(name+"1000/callers=16", "ns/op", 1e-3), w.in(name+"1/callers=16", "ns/op", 1e-3)))
}

func (w *writer) bytes() {
	if !w.start("## Memory of the server", "PeerBytes/impl=weir-gcra", "bytes/key", "the memory of a server for each caller") {
		return
	}
	impls := []string{"weir-gcra", "redis_rate", "throttled", "ulule", "redisstore", "rueidislimiter"}
	w.table("| Limiter | bytes for each caller, or MB for a million callers |", rows(implNames(impls), w.in("PeerBytes/impl=%s", "bytes/key", 1)))
	w.p("The keys of all limiters have about the same length. [Sizing](#sizing) has the other algorithms.")
}

func (w *writer) around() {
	if !w.start("## Around a decision", "Around/what=plain", "ns/op", "what surrounds a decision") {
		return
	}
	const name = "Around/what=%s"
	w.table("| One call | ns | allocations |", rows([]named{
		{"plain", "a decision in memory, one key"},
		{"denycache", "a denial that package denycache remembers"},
		{"prefetch", "an answer from tokens that package prefetch holds"},
		{"failopen", "an answer of an `outage.Breaker` during an outage"},
		{"faillocal", "the same with a local share of the limit"},
		{"middleware", "a handler with the middleware of `weirhttp` and a limiter in memory, without header fields"},
	}, w.in(name, "ns/op", 1), w.in(name, "allocs/op", 1)))
}

// differences says what peers do less. It has no measured figures.
func (w *writer) differences() {
	w.p("## What the peers do differently")
	w.p(`All limiters have the same limit where they can. None of these peers decides over several rules at
once.`)
	w.table("| Peer | Algorithm | Less than weir | Compared with |", []string{
		"| [x/time/rate](https://pkg.go.dev/golang.org/x/time/rate) in a `sync.Map` | token bucket, in floats | removes no key, so memory grows with every key that is ever seen | GCRA |",
		"| [go-limiter](https://github.com/sethvargo/go-limiter), memorystore | fixed interval | a burst is the limit of a whole interval; a goroutine removes keys | GCRA |",
		"| [throttled](https://github.com/throttled/throttled), memstore | GCRA | a map without a bound removes no key | GCRA |",
		"| [ulule/limiter](https://github.com/ulule/limiter), memory | fixed window | counts denied requests; a goroutine removes keys | FixedWindow |",
		"| [httprate](https://github.com/go-chi/httprate) | estimate from two windows, in floats | keeps a 64-bit hash in place of a key, so two keys can share a limit; one lock for all keys; formats header fields even if they are off | SlidingCounter |",
		"| [redis_rate](https://github.com/go-redis/redis_rate) | GCRA | computes in floats | GCRA |",
		"| throttled over go-redis | GCRA | two round trips, and more if another caller was faster; sends the text of its script each time; a new key and its expiry are two steps | GCRA |",
		"| ulule/limiter over go-redis | fixed window | counts denied requests | FixedWindow |",
		"| [go-redisstore](https://github.com/sethvargo/go-redisstore) | token bucket | uses the caller's clock; `New` makes a connection for each decision | GCRA |",
		"| [rueidislimiter](https://github.com/redis/rueidis/tree/main/rueidislimiter) | fixed window | uses the caller's clock; counts denied requests; two keys for each caller | FixedWindow |",
	})
}
