package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/conformance/internal/algorithms"
	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/store"
)

// everyMutants are mistakes that an algorithm can have, or a store that runs it, made in each
// built-in algorithm. except names those that need another row, or do not have the check.
func everyMutants() (list []mutant) {
	for _, s := range algorithms.BuiltIn {
		script := strings.ToLower(s.Name)
		zero := s.New(rand.New(rand.NewPCG(1, 1)))
		for _, m := range []struct {
			name, check, except string
			wrong               mutation
		}{
			{"a cost is miscounted", "Same", "", bad(zero, miscounts)},
			{"no more than one at a time", "Same", "Calendar LeakyBucket TokenBucket Concurrency", oneAtATime(script)},
			{"the wait is rounded up", "Exact", "", bad(zero, longer(func(wait int64) int64 { return (wait + 999) / 1000 * 1000 }))},
			{"reads and writes apart", "HotKey", "", torn(script)},
			{"the clock is fast", "Refill", "Calendar", hasty(script)},
			{"a very large cost is cut", "Never", "Concurrency", cutCosts(script)},
			{"large numbers lose digits", "Huge", "SlidingCounter SlidingLog Concurrency", bad(zero, rounded)},
			{"one more is refunded", "Refund", "GCRA MetadataWindow LeakyBucket TokenBucket SlidingLog Concurrency", bad(zero, oneMoreBack)},
		} {
			if !strings.Contains(m.except, s.Name) {
				list = append(list, mutant{m.name, s.Name + "/" + m.check, nil, m.wrong})
			}
		}
	}
	return list
}

var (
	gcraTag, windowTag   = store.Tag{'g', '2'}, store.Tag{'f', '2'}
	ofLeases, ofRings    = with("concurrency"), with("slidingbuckets")
	leasesAlone, release = alone(""), alone(".release")
)

// second and hour are in microseconds.
const second, hour = 1_000_000, 3600 * 1_000_000

// alone are the scripts of leases alone: all of them, or the one whose name ends in part.
func alone(part string) which {
	return func(s *store.Script) bool {
		rest, ok := strings.CutPrefix(s.Name(), "concurrency")
		return ok && !composed(s) && (part == "" || rest == part)
	}
}

var algorithmMutants = []mutant{
	{"a bucket has one token more", "GCRA/Same", []string{"SlidingBuckets/", "MetadataWindow/"}, bad(algorithm.GCRA{}, badRoom(func(m contract.Meter, now, at int64, c contract.Cell) int64 { return m.Room(now, at, c) + 1 }))},
	{"fractions are dropped", "GCRA/Same", nil, bad(algorithm.GCRA{}, badTake(func(c contract.Cell, args []store.Arg) contract.Cell {
		if fractional(args) {
			c.B = 0
		}
		return c
	}))},
	{"a layout of its own", "GCRA/Same", nil, puts(named("gcra"), func(_ int, n *store.Nums, _ *time.Duration) {
		if n.Tag == gcraTag && n.N[2] > 2 {
			n.N[1], n.N[2] = 0, 1
		}
	})},
	{"far times are disbelieved", "GCRA/Backwards", nil, bad(algorithm.GCRA{}, unknownAhead(func(args []store.Arg) int64 {
		if fractional(args) {
			return args[2].Int()/args[1].Int() + args[0].Int()/args[1].Int() + 1
		}
		return args[1].Int() + args[0].Int() + 1
	}))},
	{"a turn is a millisecond late", "GCRA/MaxWait", nil, bad(algorithm.GCRA{}, lateDelays(1000))},
	{"refunds know nothing of each other", "GCRA/Refund", nil, bad(algorithm.GCRA{}, unaware)},
	{"what has come back is refunded again", "GCRA/Refund", nil, bad(algorithm.GCRA{}, refilledAgain)},
	{"a refund knows only the sum of the others", "GCRA/Refund", nil, bad(algorithm.GCRA{}, badRefund(func(_ contract.Cell, ch *contract.Charge, note *contract.Cell) { note.B, ch.Held = 0, 0 }))},
	{"every decision counts as the last", "GCRA/Refund", nil, bad(algorithm.GCRA{}, alwaysLast)},

	{"all come back at once", "TokenBucket/Same", nil, bad(algorithm.TokenBucket{}, limitArgs(func(args []store.Arg) { args[3] = store.ConstArg(0) }))},
	{"none come back at once", "TokenBucket/Same", nil, bad(algorithm.TokenBucket{}, limitArgs(func(args []store.Arg) { args[3] = args[2] }))},
	{"a fraction of a microsecond is rounded up", "TokenBucket/Same", nil, bad(algorithm.TokenBucket{}, limitArgs(func(args []store.Arg) {
		if den := args[2].Int(); args[1].Int()%den > 0 {
			args[1] = store.ConstArg((args[1].Int()/den + 1) * den)
		}
	}))},
	{"a bucket in debt has a token", "TokenBucket/Same", nil, bad(algorithm.TokenBucket{}, overdrawn)},
	{"one more is consumed than granted", "TokenBucket/Same", nil, puts(with("tokenbucket", ".upto"), moreOf(store.Tag{'t', '2'}, 1, 1))},
	{"a period ahead of now is forgotten", "TokenBucket/Backwards", nil, bad(algorithm.TokenBucket{}, unknownAhead(func([]store.Arg) int64 { return 0 }))},
	{"nobody waits", "TokenBucket/MaxWait", nil, bad(algorithm.TokenBucket{}, badRoom(func(m contract.Meter, now, _ int64, c contract.Cell) int64 { return m.Room(now, now, c) }))},
	{"a Delay is a microsecond short", "TokenBucket/MaxWait", nil, bad(algorithm.TokenBucket{}, lateDelays(-1))},
	{"refunds again and again", "TokenBucket/Refund", nil, keptMarkers("tokenbucket.refund")},
	{"refunds know nothing of each other", "TokenBucket/Refund", nil, bad(algorithm.TokenBucket{}, unaware)},

	{"a queue is a bucket", "LeakyBucket/Same", nil, bad(algorithm.LeakyBucket{}, badRoom(func(m contract.Meter, now, at int64, c contract.Cell) int64 { return m.Room(now, max(at, c.A+1), c) }))},
	{"turns are rounded down", "LeakyBucket/Same", nil, bad(algorithm.LeakyBucket{}, badTake(func(c contract.Cell, _ []store.Arg) contract.Cell {
		c.B = 0
		return c
	}))},
	{"a changed limit is not heeded", "LeakyBucket/Same", nil, stale("leakybucket")},
	{"a turn more is consumed than granted", "LeakyBucket/Same", nil, puts(with("leakybucket", ".upto"), moreOf(store.Tag{'q', '2'}, 0, second))},
	{"a denial answers when there is no wait", "LeakyBucket/MaxWait", nil, bad(algorithm.LeakyBucket{}, badReady(func(m contract.Meter, now int64, c contract.Cell, n, _ int64) int64 { return m.Ready(now, c, n, 0) }))},
	{"what has come back is refunded again", "LeakyBucket/Refund", nil, bad(algorithm.LeakyBucket{}, refilledAgain)},

	{"always aligned", "FixedWindow/Same", nil, bad(algorithm.FixedWindow{}, limitArgs(func(args []store.Arg) { args[2] = args[1] }))},
	{"never aligned", "FixedWindow/Same", nil, bad(algorithm.FixedWindow{}, limitArgs(func(args []store.Arg) { args[2] = store.ConstArg(1) }))},
	{"an overdrawn window has a token", "FixedWindow/Same", nil, bad(algorithm.FixedWindow{}, overdrawn)},
	{"a start ahead of now is forgotten", "FixedWindow/Backwards", nil, bad(algorithm.FixedWindow{}, unknownAhead(func(args []store.Arg) int64 { return args[1].Int() }))},
	{"a debt is forgotten", "FixedWindow/Refund", nil, bad(algorithm.FixedWindow{}, badTake(func(c contract.Cell, args []store.Arg) contract.Cell {
		c.B = min(c.B, args[0].Int())
		return c
	}))},
	{"a repeat is charged again", "FixedWindow/Refund", nil, gets(named("fixedwindow.mark"), func(i int, _ *store.Nums, ok *bool, _ *error) { *ok = *ok && i == 0 })},
	{"a Settle charges one token more", "FixedWindow/Refund", nil, puts(named("fixedwindow.settle"), moreOf(windowTag, 1, 1))},
	{"a repeated Settle charges again", "FixedWindow/Refund", nil, markers("fixedwindow.settle", func(n *store.Nums) { n.N[2] = n.N[3] })},

	{"a period ends a microsecond late", "Calendar/Same", nil, bad(algorithm.Calendar{}, nextEdge(func(_, edge int64, _ []store.Arg) int64 { return edge + 1 }))},
	{"a month starts on its first day", "Calendar/Same", nil, bad(algorithm.Calendar{}, limitArgs(func(args []store.Arg) {
		if args[1].Int() <= 12 {
			args[2] = store.ConstArg(0)
		}
	}))},
	{"days are those of UTC", "Calendar/Same", nil, bad(algorithm.Calendar{}, nextEdge(func(now, edge int64, args []store.Arg) int64 {
		if every := args[1].Int(); every > 12 {
			return now + every - (now+args[2].Int())%every
		}
		return edge
	}))},
	{"an overdrawn period has a token", "Calendar/Same", nil, bad(algorithm.Calendar{}, overdrawn)},
	{"what is left is lost", "Calendar/Same", nil, bad(algorithm.Calendar{}, opens(func(_, _ int64, args []store.Arg) int64 { return args[5].Int() }))},
	{"what was consumed carries over", "Calendar/Same", nil, bad(algorithm.Calendar{}, opens(func(_, _ int64, _ []store.Arg) int64 { return 0 }))},
	{"a debt carries over", "Calendar/Same", nil, bad(algorithm.Calendar{}, opens(func(before, count int64, args []store.Arg) int64 {
		if count == args[5].Int() {
			return before - args[0].Int()
		}
		return count
	}))},
	{"a state ends with its period", "Calendar/Same", nil, bad(algorithm.Calendar{}, flaw{meter: func(m *badMeter, _ []store.Arg) { m.ends = func(c contract.Cell) int64 { return c.A } }})},
	{"a cost above the next period waits for it", "Calendar/Exact", nil, bad(algorithm.Calendar{}, badReady(func(_ contract.Meter, _ int64, c contract.Cell, _, _ int64) int64 { return c.A }))},
	{"a refund reaches the next period", "Calendar/Refund", nil, bad(algorithm.Calendar{}, badRefund(func(c contract.Cell, ch *contract.Charge, _ *contract.Cell) { ch.Was.A = c.A }))},
	{"a Settle mixes two periods", "Calendar/Refund", nil, bad(algorithm.Calendar{}, flaw{kind: func(k *contract.MeterKind) { k.Carries = false }})},
	{"an end ahead of now is forgotten", "Calendar/Backwards", nil, bad(algorithm.Calendar{}, unknownAhead(func([]store.Arg) int64 { return hour }))},

	{"the window before weighs nothing", "SlidingCounter/Same", nil, bad(algorithm.SlidingCounter{}, badRoom(func(m contract.Meter, now, at int64, c contract.Cell) int64 {
		c.C = 0
		return m.Room(now, at, c)
	}))},
	{"an overdrawn window has a token", "SlidingCounter/Same", nil, bad(algorithm.SlidingCounter{}, overdrawn)},
	{"a window ahead of now is forgotten", "SlidingCounter/Backwards", nil, bad(algorithm.SlidingCounter{}, unknownAhead(func([]store.Arg) int64 { return 0 }))},
	{"a late refund goes to the current window", "SlidingCounter/Refund", nil, bad(algorithm.SlidingCounter{}, badRefund(func(c contract.Cell, ch *contract.Charge, _ *contract.Cell) { ch.Was.A = c.A }))},
	{"a refund after a Settle returns the first cost", "SlidingCounter/Refund", nil, markers("slidingcounter.refund", func(n *store.Nums) { n.N[1] = n.N[3] })},

	{"no span is named", "SlidingBuckets/Same", nil, bad(algorithm.SlidingBuckets{}, badAnswer(func(ans *contract.Answer, _ contract.State, _ int64, _ contract.Ask) { ans.Window = 0 }))},
	{"the current bucket is left out", "SlidingBuckets/Same", nil, bad(algorithm.SlidingBuckets{}, badRead(func(now int64, args []store.Arg, _ store.Tx) view {
		return view{get: func(_ int, n *store.Nums, ok *bool, _ *error) { *ok = *ok && now-n.N[0] >= args[len(args)-1].Int() }}
	}))},
	{"a bucket ahead of now is forgotten", "SlidingBuckets/Backwards", nil, bad(algorithm.SlidingBuckets{}, badRead(func(now int64, _ []store.Arg, _ store.Tx) view {
		return view{get: func(_ int, n *store.Nums, ok *bool, _ *error) { *ok = *ok && n.N[0] <= now }}
	}))},
	{"a foreign value passes for missing", "SlidingBuckets/Foreign", nil, gets(ofRings, func(_ int, n *store.Nums, ok *bool, _ *error) { *ok = *ok && n.Tag != scripts.PutTag })},
	{"a set passes for missing", "SlidingBuckets/Foreign", nil, gets(ofRings, func(_ int, _ *store.Nums, _ *bool, err *error) { *err = nil })},
	{"a key of a ring is not read", "SlidingBuckets/Peek", nil, values(func(_ *fake, keys []string, got []store.Value) {
		for i, key := range keys {
			if strings.Contains(key, "{peek0}") {
				got[i] = store.Value{}
			}
		}
	})},
	{"a reset deletes the first key alone", "SlidingBuckets/Reset", []string{"Limiter/Histories"}, dels(named("slidingbuckets.reset"), func(i int) bool { return i == 0 })},
	{"two hundred keys are too many", "SlidingBuckets/Mix", []string{"Store/Keys"}, mutation{eval: func(c call) ([]store.Value, error) {
		if len(c.keys) > 200 && c.s != scripts.Look {
			return c.reply, fmt.Errorf("%w: too many keys", store.ErrScript)
		}
		return c.right()
	}}},
	{"a refund goes to the newest bucket", "SlidingBuckets/Refund", nil, bad(algorithm.SlidingBuckets{}, badStepRefund(func(s contract.State, mark *contract.Cell, _ *int64) { mark.A, mark.B = s[4], s[5] }))},

	{"a token leaves late", "SlidingLog/Same", nil, bad(algorithm.SlidingLog{}, limitArgs(func(args []store.Arg) { args[1] = store.ConstArg(args[1].Int() + 1) }))},
	{"decisions of one microsecond are one", "SlidingLog/Same", nil, sees(with("slidinglog"), func(_ call, tx store.Tx) view {
		held := map[int64]bool{}
		return view{add: func(i int, m *store.Member, ttl *time.Duration) {
			if last, ok, _ := tx.At(i, 0); ok && last.Score == m.Score || held[m.Score] {
				*ttl = lost
			}
			held[m.Score] = true
		}}
	})},
	{"nothing is trimmed", "SlidingLog/Same", nil, trims(named("slidinglog"), func(store.Tx, int64) int64 { return 0 })},
	{"a changed limit is not heeded", "SlidingLog/Same", nil, stale("slidinglog")},
	{"a very large limit is cut", "SlidingLog/Huge", nil, bad(algorithm.SlidingLog{}, limitArgs(func(args []store.Arg) { args[0] = store.ConstArg(min(args[0].Int(), 1<<40)) }))},
	{"the newest is disregarded", "SlidingLog/Backwards", nil, bad(algorithm.SlidingLog{}, badRead(func(now int64, _ []store.Arg, _ store.Tx) view {
		return view{at: func(_ int, _ int64, m *store.Member, ok *bool, _ *error) {
			if m.Score > now {
				*m, *ok = store.Member{}, false
			}
		}}
	}))},
	{"a refund goes to the newest entries", "SlidingLog/Refund", nil, bad(algorithm.SlidingLog{}, newestEntries)},

	{"a window starts aligned", "MetadataWindow/Same", nil, bad(algorithm.MetadataWindow{}, limitArgs(func(args []store.Arg) { args[2] = args[1] }))},
	{"texts end at a zero byte", "MetadataWindow/Same", nil, adds(named("metadatawindow"), func(m *store.Member, _ *time.Duration) { m.Text, _, _ = strings.Cut(m.Text, "\x00") })},
	{"long metadata is cut", "MetadataWindow/Same", nil, adds(named("metadatawindow"), func(m *store.Member, _ *time.Duration) { m.Text = m.Text[:min(len(m.Text), 500)] })},
	{"a window of another limit keeps its end", "MetadataWindow/Same", nil, sees(named("metadatawindow"), func(c call, tx store.Tx) view {
		return view{add: func(i int, m *store.Member, _ *time.Duration) {
			var was, edge, count int64
			old, _, _ := tx.At(i, 0)
			if n, _ := fmt.Sscanf(old.Text, "m2 %d", &was); n == 1 && was > callersTime(c) {
				_, _ = fmt.Sscanf(m.Text, "m2 %d %d", &edge, &count)
				m.Text = fmt.Sprintf("m2 %d %d ", was, count)
			}
		}}
	})},
	{"the first entry is left out", "MetadataWindow/Newest", nil, bad(algorithm.MetadataWindow{}, badParse(func(l contract.Lister, texts []string) ([]contract.Entry, error) {
		all, err := l.Parse(texts)
		return all[min(1, len(all)):], err
	}))},
	{"a foreign member passes for an empty list", "MetadataWindow/Layout", nil, finds(named("gcra+metadatawindow"), func(m *store.Member, ok *bool) { *ok = *ok && strings.HasPrefix(m.Text, "m2 ") })},
	{"Entries leaves out a foreign entry", "MetadataWindow/Layout", nil, bad(algorithm.MetadataWindow{}, badParse(func(l contract.Lister, texts []string) ([]contract.Entry, error) {
		return l.Parse(slices.DeleteFunc(texts, func(text string) bool { return !strings.HasPrefix(text, "m2 ") }))
	}))},
	{"Entries quotes a foreign entry", "MetadataWindow/Layout", nil, bad(algorithm.MetadataWindow{}, badParse(func(l contract.Lister, texts []string) ([]contract.Entry, error) {
		all, err := l.Parse(texts)
		if err != nil {
			err = fmt.Errorf("%w: %q", store.ErrScript, texts)
		}
		return all, err
	}))},

	{"a lease expires late", "Concurrency/Same", nil, bad(algorithm.Concurrency{}, limitArgs(func(args []store.Arg) { args[1] = store.ConstArg(args[1].Int() + 1) }))},
	{"a retry takes a second place", "Concurrency/Same", nil, strangers(leasesAlone)},
	{"a renewal lasts no longer", "Concurrency/Same", nil, bad(algorithm.Concurrency{}, badWrite(func(_ store.Tx, _ int, _ int64, a contract.Ask) bool { return !a.Renew }))},
	{"a release does nothing", "Concurrency/Same", nil, removes(release, func(store.Tx, int, string) {})},
	{"a release leaves an expired lease", "Concurrency/Same", nil, removes(release, func(tx store.Tx, i int, text string) {
		if expires, _, _ := tx.Score(i, text); expires > tx.Now() {
			tx.Remove(i, text)
		}
	})},
	{"a crashed holder holds on", "Concurrency/Same", nil, sees(leasesAlone, func(_ call, tx store.Tx) view {
		return view{count: func(i int, _ int64) (above, all int64, err error) { return tx.Count(i, 0) }}
	})},
	{"one expired lease goes at a time", "Concurrency/Same", nil, trims(leasesAlone, func(_ store.Tx, n int64) int64 { return min(n, 1) })},
	{"a changed limit is not heeded", "Concurrency/Same", nil, stale("concurrency")},
	{"never is an hour", "Concurrency/Same", nil, bad(algorithm.Concurrency{}, badAnswer(func(ans *contract.Answer, _ contract.State, _ int64, _ contract.Ask) {
		if ans.RetryAfter == contract.Never {
			ans.RetryAfter = time.Hour
		}
	}))},
	{"any cost is one lease", "Concurrency/Huge", nil, bad(algorithm.Concurrency{}, flaw{limit: func(l *contract.Limit) { l.MaxCost = 0 }})},
	{"any member is a lease", "Concurrency/Layout", nil, finds(leasesAlone, func(m *store.Member, _ *bool) { m.Text = "c2 a" })},
	{"a lease that expires late is not seen", "Concurrency/Backwards", nil, bad(algorithm.Concurrency{}, badRead(func(now int64, args []store.Arg, tx store.Tx) view {
		return view{count: func(i int, after int64) (above, all int64, err error) {
			above, all, err = tx.Count(i, after)
			ahead, _, _ := tx.Count(i, now+args[1].Int())
			return above - ahead, all, err
		}}
	}))},
	{"the key expires before its leases", "Concurrency/TTL", nil, adds(leasesAlone, func(_ *store.Member, ttl *time.Duration) {
		if *ttl > 10*time.Second {
			*ttl -= 2 * time.Second
		}
	})},
	{"beside a rate nobody holds a lease", "Concurrency/Mix", []string{"Limiter/Histories", "/Mix"}, strangers(func(s *store.Script) bool { return ofLeases(s) && composed(s) })},
	{"a release beside a rate finds no lease", "Limiter/Histories", nil, sends(named("concurrency.release"), func(c *call) {
		if ofHistories(c.keys[0]) {
			c.keys = []string{c.keys[0] + ":missing"}
		}
	})},
}

// strangers find no lease by its name.
func strangers(of which) mutation {
	return scores(of, func(_ string, score *int64, ok *bool, err *error) { *score, *ok, *err = 0, false, nil })
}

func removes(of which, remove func(tx store.Tx, i int, text string)) mutation {
	return sees(of, func(_ call, tx store.Tx) view {
		return view{remove: func(i int, text string) { remove(tx, i, text) }}
	})
}

// fractional reports whether args are those of a GCRA whose interval is not a whole
// number of microseconds.
func fractional(args []store.Arg) bool { return len(args) == 3 }

// markTags are the tags of markers.
var markTags = []store.Tag{{'i', '2'}, {'i', '3'}}

// moreOf adds by to number at of the values with this tag that a script writes.
func moreOf(tag store.Tag, at int, by int64) func(i int, n *store.Nums, ttl *time.Duration) {
	return func(_ int, n *store.Nums, _ *time.Duration) {
		if n.Tag == tag {
			n.N[at] += by
		}
	}
}

// markers changes what a script reads from the marker of its only rule.
func markers(name string, change func(n *store.Nums)) mutation {
	return gets(named(name), func(i int, n *store.Nums, ok *bool, _ *error) {
		if i == 1 && *ok {
			change(n)
		}
	})
}

// keptMarkers deletes no marker.
func keptMarkers(name string) mutation { return dels(named(name), func(i int) bool { return i == 0 }) }

// hasty gives scripts whose name begins with name a clock that runs at twice the speed.
func hasty(name string) mutation {
	return sees(named(name), func(c call, tx store.Tx) view {
		c.f.mu.Lock()
		defer c.f.mu.Unlock()
		if c.f.memo == nil {
			c.f.memo = tx.Now()
		}
		start := c.f.memo.(int64)
		return view{now: func() int64 { return start + 2*(tx.Now()-start) }}
	})
}

// cutCosts cuts a very large cost to 1, of requests on a virtual clock to scripts whose
// name is name.
func cutCosts(name string) mutation {
	return sends(func(s *store.Script) bool { return s.Name() == name }, func(c *call) {
		if at := len(c.args) - 3; at >= 0 && c.args[at].Int() >= 1<<40 {
			c.args[at] = store.IntArg(1)
		}
	})
}

// oneAtATime grants TakeUpTo one token at most.
func oneAtATime(name string) mutation {
	return sends(named(name+".upto"), func(c *call) {
		at := len(c.args) - 3 // of the cost, in virtual time
		if strings.HasSuffix(c.s.Name(), ".mark") {
			at--
		}
		c.args[at] = store.IntArg(1)
	})
}

// stale decides, in scripts whose name is name, with the constants that the first decision
// on the same keys had, in virtual time.
func stale(name string) mutation {
	return sends(func(s *store.Script) bool { return s.Name() == name }, func(c *call) {
		consts := len(c.args) - 3 // behind them are the cost, the wait and the time
		if consts <= 0 {
			return
		}
		c.f.mu.Lock()
		defer c.f.mu.Unlock()
		if c.f.memo == nil {
			c.f.memo = map[string][]store.Arg{}
		}
		first := c.f.memo.(map[string][]store.Arg)
		if args, ok := first[c.keys[0]]; ok && len(args) == len(c.args) {
			copy(c.args[:consts], args)
		} else {
			first[strings.Clone(c.keys[0])] = slices.Clone(c.args)
		}
	})
}
