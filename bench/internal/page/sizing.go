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
	w.p(`The CPU time of a decision has two parts: the script, and the network. The tables below were
measured in pipelines of 64 decisions, where the network takes little. That is also what ` + "`DoMany`,\n`store.Coalesce` and rueidis send under load.")
	if network, ok := w.minus(series{one, cpu}, series{piped, cpu}); ok {
		w.p("If each decision is sent alone, **add %s µs** for the network, measured with a GCRA\nover go-redis and 32 callers on a loopback address.", network)
	}
	w.rules()
	w.algorithms()
	w.logs()
	w.footprints()
	w.example(one, piped)
	w.clusters()
	w.large()
}

func (w *writer) rules() {
	w.p("### Rules in a decision")
	var counts, labels []named
	for _, n := range []string{"1", "2", "4", "8", "16"} {
		counts = append(counts, named{n, n})
		labels = append(labels, named{n, "rules: " + n})
	}
	const name = "Rules/impl=rules-%s"
	w.table("| Rules, each a GCRA | server's CPU, µs | decisions per second of a core | bytes sent | bytes received |",
		rows(counts, w.capacity(name), w.in(name, "sent-B/op", 1), w.in(name, "received-B/op", 1)))
	w.picture("rules.svg", "A bar for 1, 2, 4, 8 and 16 rules: the CPU time of the server for a decision.",
		"Rules in one decision: microseconds of the server's CPU", name, cpu, labels)
}

// contestants are the algorithms, by their names in the results.
var contestants = []named{
	{"gcra", "GCRA"},
	{"tokenbucket", "TokenBucket"},
	{"tokenbucket-atonce", "TokenBucket, `AtOnce`"},
	{"leakybucket", "LeakyBucket"},
	{"fixedwindow", "FixedWindow"},
	{"calendar", "Calendar, a month"},
	{"metadatawindow", "MetadataWindow"},
	{"slidingcounter", "SlidingCounter"},
	{"slidingbuckets", "SlidingBuckets, 10 buckets"},
	{"slidinglog", "SlidingLog, 100 entries"},
	{"concurrency", "Concurrency, 100 leases"},
}

func (w *writer) algorithms() {
	w.p("### Algorithms")
	const name = "Algorithms/impl=%s/decision="
	w.table("| Algorithm, limit 100 | server's CPU, µs, allowed | decisions per second of a core | server's CPU, µs, denied | instructions of the server relative to redis_rate, allowed |",
		rows(contestants, w.capacity(name+"allowed/limit=100"), w.in(name+"denied/limit=100", cpu, 1), func(name string) string { return w.ratios[name+" allowed"] }))
	w.p("The cost does not grow with the limit. [instructions.txt](../bench/instructions.txt) has the\ninstructions, which vary little from run to run.")
}

func (w *writer) logs() {
	const name = "SlidingLog/decision=%s/live=%%s"
	entries := []named{{"100", "100"}, {"1000", "1,000"}, {"100000", "100,000"}}
	rows := rows(entries, w.capacity(fmt.Sprintf(name, "allowed")), w.in(fmt.Sprintf(name, "denied"), cpu, 1))
	if w.section("Entries of a SlidingLog", "| Live entries of a caller | server's CPU, µs, allowed | decisions per second of a core | server's CPU, µs, denied |", rows, "the cost by the entries of a log") {
		w.p("Up to 128 entries are a listpack on the server, which is smaller and slower than a skip list.")
	}
}

// footprints are states of a caller, by their names in the results.
var footprints = []named{
	{"gcra", "GCRA"},
	{"tokenbucket", "TokenBucket"},
	{"leakybucket", "LeakyBucket"},
	{"fixedwindow", "FixedWindow"},
	{"slidingcounter", "SlidingCounter"},
	{"metadatawindow/entries=3", "MetadataWindow, 3 entries of 11 bytes"},
	{"metadatawindow/entries=10", "MetadataWindow, 10 entries of 11 bytes"},
	{"slidingbuckets/used=1", "SlidingBuckets, one bucket in use"},
	{"slidingbuckets/used=15", "SlidingBuckets, 15 buckets in use"},
	{"slidinglog/entries=3", "SlidingLog, 3 entries"},
	{"slidinglog/entries=20", "SlidingLog, 20 entries"},
	{"concurrency/leases=3", "Concurrency, 3 leases named by 16 bytes"},
	{"concurrency/leases=20", "Concurrency, 20 leases named by 16 bytes"},
}

func (w *writer) footprints() {
	rows := rows(footprints, w.in("Bytes/state=%s", "bytes/key", 1))
	if !w.section("Memory", "| State of a caller | bytes for each caller, or MB for a million callers |", rows, "the memory of each algorithm") {
		return
	}
	w.p(`A decision with several rules has such a state for each rule. The keys are like
` + "`weir:bench:{user-100000}:f2`" + `. Longer names need more memory.`)
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

func (w *writer) clusters() {
	var rows []string
	for masters := 1; masters <= 3; masters++ {
		name := fmt.Sprintf("Cluster/masters=%d", masters)
		if s, ok := w.stat(name, cpu); ok {
			ratio, _ := w.ratio(series{name, cpu}, series{"Cluster/masters=1", cpu})
			rows = append(rows, fmt.Sprintf("| %d | %s | %s |", masters, s, ratio))
		}
	}
	if !w.section("Clusters", "| Masters | CPU of all masters, µs for each decision | ratio to one master |", rows, "clusters") {
		return
	}
	w.p(`32 callers over go-redis, one GCRA, keys spread over the masters. All masters and the callers share
%s cores here, so this shows what a decision costs, and not how fast a cluster is. A master that is
less busy handles fewer requests each time it wakes up, so a decision can cost it more.`, w.config["gomaxprocs"])
}

func (w *writer) large() {
	const name = "Large/impl=weir-gcra/keys=%s"
	rows := rows([]named{{"1000000", "1,000,000"}, {"10000000", "10,000,000"}}, w.in(name, "bytes/key", 1), w.in(name, "ns/op", 1),
		w.in(name, "new-ns/op", 1), w.in(name, "swept-ns/op", 1), w.in(name, "gc-ms", 1), w.in(name, "gc-pause-µs", 1))
	if !w.section("Many keys in memory", "| Keys | bytes for each key | ns, known key | ns, new key | ns, new key that removes expired keys | ms, collection | µs, longest pause of collections |",
		rows, "memory stores with millions of keys (`make bench-large`)") {
		return
	}
	w.p(`One GCRA in the memory store, measured by ` + "`make bench-large`" + ` in a run of its own. The time of a
new key includes the growth of the store. Each call that adds a key removes a few expired ones. The
slots of the store contain no pointers, so a garbage collection does not scan them.`)
}
