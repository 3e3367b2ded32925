package page

import "fmt"

// cpu is the unit of the CPU time of a server.
const cpu = "server-cpu-µs/op"

// sizing writes what a deployment needs.
func (w *writer) sizing() {
	const one, piped = "Redis/impl=weir-gcra/callers=32", "Server/impl=weir-gcra"
	if !w.start("## Sizing", piped, cpu, "what a deployment needs") {
		return
	}
	w.p(`**Plan for half of what a core can do**, because a server whose core is always busy answers late. A
Redis server runs scripts on one core, so a shard makes 1,000,000 / (CPU time in µs) decisions per
second. Each further shard makes as many again, because all keys of a decision are on one shard.`)
	if network, ok := w.minus(series{one, cpu}, series{piped, cpu}); ok {
		w.p(`The tables below were measured in pipelines of 64 decisions, as `+"`DoMany`, `store.Coalesce` and\n"+`rueidis send them under load. If each decision is sent alone, **add %s µs** for the network.`, number(network.median))
	}
	w.rules()
	w.algorithms()
	w.footprints()
	w.example(one, piped)
}

func (w *writer) rules() {
	w.p("### Rules in a decision")
	var counts []named
	for _, n := range []string{"1", "2", "4", "8", "16"} {
		counts = append(counts, named{n, n})
	}
	const name = "Rules/impl=rules-%s"
	w.table("| Rules, each a GCRA | server's CPU, µs |",
		rows(counts, w.in(name, cpu, 1)))
	if ratio, ok := w.ratio(series{"Cluster/masters=3", cpu}, series{"Cluster/masters=1", cpu}); ok {
		w.p(`On a cluster of 3 masters, a decision takes %s times the CPU time, because a master
that is less busy handles fewer requests each time it wakes up.`, ratio)
	}
}

// contestants are the algorithms, by their names in the results.
var contestants = []named{
	{"gcra", "GCRA"},
	{"tokenbucket", "TokenBucket"},
	{"leakybucket", "LeakyBucket"},
	{"fixedwindow", "FixedWindow"},
	{"metadatawindow", "MetadataWindow"},
	{"slidingcounter", "SlidingCounter"},
	{"slidingbuckets", "SlidingBuckets, 10 buckets"},
	{"slidinglog", "SlidingLog, 100 entries"},
	{"concurrency", "Concurrency, 100 leases"},
}

func (w *writer) algorithms() {
	w.p("### Algorithms")
	const name = "Algorithms/impl=%s/decision="
	w.table("| Algorithm, limit 100 | server's CPU, µs, allowed | denied |",
		rows(contestants, w.in(name+"allowed/limit=100", cpu, 1), w.in(name+"denied/limit=100", cpu, 1)))
	const log = "SlidingLog/decision=allowed/live="
	few, _ := w.stat(log+"1000", cpu)
	if many, ok := w.stat(log+"100000", cpu); ok {
		w.p("The cost does not grow with the limit: a SlidingLog takes %s µs with 1,000 live entries, and\n%s µs with 100,000. [Instructions](../bench/instructions.txt) vary less.", number(few.median), number(many.median))
	}
}

// footprints writes the memory of callers.
func (w *writer) footprints() {
	gcra, _ := w.stat("Bytes/state=gcra", "bytes/key")
	few, _ := w.stat("Bytes/state=slidinglog/entries=3", "bytes/key")
	many, ok := w.stat("Bytes/state=slidinglog/entries=20", "bytes/key")
	if !ok {
		w.missing = append(w.missing, "the memory of each algorithm")
		return
	}
	w.p("### Memory")
	w.p(`For each rule, a caller takes %s bytes on Redis with a GCRA, %s with a SlidingLog of 3
entries, and %s with one of 20. [Algorithms](reference/algorithms.md) has the others.
Longer names than `+"`weir:bench:{user:100000}:f2`"+` take more.`, number(gcra.median), number(few.median), number(many.median))
}

// example sizes a deployment from the measured figures.
func (w *writer) example(one, piped string) {
	const decisions, callers, rules = 20_000, 2_000_000, 4
	script, ok := w.stat(fmt.Sprintf("Rules/impl=rules-%d", rules), cpu)
	network, okNetwork := w.minus(series{one, cpu}, series{piped, cpu})
	bytes, okBytes := w.stat("Bytes/state=gcra", "bytes/key")
	if !ok || !okNetwork || !okBytes {
		return
	}
	each := rounded(rounded(script.median) + rounded(network.median)) // the reader adds what is printed
	cores := each * decisions / 1e6
	shards := 1
	for float64(shards) < 2*cores {
		shards++
	}
	w.p("### An example")
	w.p("A service makes %s decisions per second, each with %d rules, for %s callers, and sends\neach decision alone:",
		number(decisions), rules, number(callers))
	w.p(`- CPU: %s + %s = %s µs for each decision, so %s × %[3]s µs = %[5]s cores, or %[6]d shards at
  half load.
- Memory: %[7]s × %[8]d rules × %[9]s bytes = %[10]s MB for all shards.`,
		number(script.median), number(network.median), number(each), number(decisions), number(cores), shards,
		number(callers), rules, number(bytes.median), number(callers*rules*bytes.median/1e6))
}

// large writes what make bench-large measured.
func (w *writer) large() {
	const name = "Large/impl=weir-gcra/keys=10000000"
	bytes, _ := w.stat(name, "bytes/key")
	known, _ := w.stat(name, "ns/op")
	pause, ok := w.stat(name, "gc-pause-µs")
	if !ok {
		w.missing = append(w.missing, "memory stores with millions of keys (`make bench-large`)")
		return
	}
	const million = "Large/impl=%s/keys=1000000"
	w.table("| With 1,000,000 keys of 20 bytes | bytes for each | longest pause of a garbage collection, µs |",
		rows(implNames([]string{"weir-gcra", "xtimerate-syncmap", "sethvargo-memorystore", "throttled"}), w.in(million, "bytes/key", 1), w.in(million, "gc-pause-µs", 1)))
	w.p("With 10 million keys, the store takes %s bytes for each, and a decision %s ns. The longest\npause of a garbage collection is %s µs.",
		number(bytes.median), number(known.median), number(pause.median))
}
