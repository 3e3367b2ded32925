package conformance

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

var (
	leadingZeros = regexp.MustCompile(` 0+(\d)`)
	digest       = regexp.MustCompile(`:%id=[0-9a-f]{32}$`) // ends the key of a marker
)

// ofHistories reports whether key is one of the check Limiter/Histories.
func ofHistories(key string) bool {
	return strings.Contains(key, ":suite:{t}:") || strings.Contains(key, ":suite:{t:")
}

// ofLanes reports whether c is a decision of the check Limiter/Lanes.
func ofLanes(c call) bool {
	return len(c.keys) > 0 && strings.Contains(c.keys[0], ":"+suite.Name+":{lanes")
}

// limiterMutants decide over several rules in a wrong way, or settle and refund so.
var limiterMutants = []mutant{
	{"the time of a mix is off", "GCRA/Mix", []string{"Limiter/", "/Mix", "SlidingBuckets/Peek", "MetadataWindow/Same"}, replies(composed, func(_ call, reply []store.Value) {
		reply[1] = store.IntegerValue(reply[1].Int() + 1)
	})},
	{"a denial charges", "GCRA/Mix", []string{"Limiter/", "/Mix", "/Ask"}, mutation{after: func(c call, tx store.Tx, reply []store.Value) {
		if composed(c.s) && !peeks(c.s) && !refunds(c.s) && reply[0].Int() == 0 {
			spend(tx)
		}
	}}},
	{"a rule with a Cost of its own consumes 1", "GCRA/Mix", []string{"/Mix"}, mutation{policy: func(p *weir.Policy) {
		if len(p.Rules) == 1 || p.Name == "" {
			return // it is what the others are compared with, or the limits of With
		}
		p.Rules = slices.Clone(p.Rules)
		for i := range p.Rules {
			p.Rules[i].Cost = min(p.Rules[i].Cost, 1)
		}
	}}},
	{"one more is consumed than granted", "FixedWindow/Mix", []string{"/Mix", "FixedWindow/", "Limiter/"}, puts(with(".upto"), moreOf(windowTag, 1, 1))},
	{"asking charges", "GCRA/Ask", []string{"Limiter/", "/Ask"}, mutation{after: func(c call, tx store.Tx, _ []store.Value) {
		if composed(c.s) && peeks(c.s) {
			spend(tx)
		}
	}}},
	{"a denial writes", "GCRA/Ask", []string{"SlidingBuckets/Peek", "Limiter/", "MetadataWindow/Same", "/Ask", "/Mix"}, mutation{after: func(c call, tx store.Tx, reply []store.Value) {
		if composed(c.s) && reply[0].Int() == 0 {
			if _, ok, err := tx.Get(0); !ok && err == nil {
				tx.Put(0, scripts.Nums(gcraTag, 1), time.Hour)
			}
		}
	}}},
	{"a foreign value passes for missing", "GCRA/Foreign", []string{"SlidingBuckets/", "Limiter/", "/Foreign", "/Layout"}, gets(both(ofLimiters, composed), func(_ int, n *store.Nums, ok *bool, err *error) {
		if *err != nil || n.Tag == scripts.PutTag {
			*n, *ok, *err = store.Nums{}, false, nil
		}
	})},
	{"a set passes for missing", "GCRA/Foreign", []string{"/Foreign", "/Layout"}, gets(both(ofLimiters, composed), func(_ int, _ *store.Nums, _ *bool, err *error) { *err = nil })},
	{"leading zeros are ignored", "GCRA/Layout", []string{"/Layout"}, sends(named("text"), func(c *call) {
		c.args = []store.Arg{store.StringArg(leadingZeros.ReplaceAllString(c.args[0].String(), " $1"))}
	})},
	{"a value with too many integers passes for missing", "GCRA/Layout", []string{"/Layout"}, gets(ofLimiters, func(_ int, n *store.Nums, ok *bool, _ *error) { *ok = *ok && n.Len < 8 })},
	{"a reset deletes foreign values", "GCRA/Layout", []string{"SlidingBuckets/", "MetadataWindow/", "/Foreign", "/Layout"}, gets(both(ofLimiters, with(".reset")), func(_ int, n *store.Nums, ok *bool, err *error) {
		*n, *ok, *err = store.Nums{}, false, nil
	})},
	{"a TTL is a second short", "GCRA/TTL", []string{"/TTL", "/Same"}, puts(ofLimiters, func(_ int, _ *store.Nums, ttl *time.Duration) {
		if *ttl > 3*time.Second {
			*ttl -= 1100 * time.Millisecond
		}
	})},
	{"a caller's clock lengthens nothing", "GCRA/TTL", []string{"GCRA/", "FixedWindow/", "SlidingBuckets/", "SlidingCounter/", "TokenBucket/", "LeakyBucket/", "Limiter/", "/TTL", "/Same"}, shortLived},
	{"a key keeps its TTL whenever it exists", "GCRA/TTL", []string{"/TTL", "/Same"}, kept},
	{"a key keeps its TTL whenever it exists", "SlidingLog/TTL", []string{"/TTL", "/Same", "Concurrency/"}, kept},
	{"a decision writes one key more", "Limiter/Prefix", nil, replies(composed, func(c call, reply []store.Value) {
		if !peeks(c.s) && reply[0].Int() == 1 {
			_, _ = c.f.Store.Eval(c.ctx, scripts.Put, []string{c.keys[0] + ":more"}, []store.Arg{store.IntArg(1000), store.IntArg(1)}, nil)
		}
	})},
	{"a marker stays", "Limiter/Markers", []string{"/Refund", "/Huge", "Limiter/"}, dels(refunds, none)},
	{"many values are off by one", "Limiter/Many", nil, values(func(_ *fake, keys []string, got []store.Value) {
		if len(keys) > 0 && strings.HasSuffix(keys[0], "}:window.f2") {
			copy(got, append(slices.Clone(got[1:]), got[0]))
		}
	})},
	{"a batch answers the wrong caller", "Limiter/Many", []string{"Batch/"}, mutation{batch: wrongCaller}},
	{"a batch decides twice", "Limiter/Many", []string{"Batch/"}, batches(func(c call, e *store.Eval) {
		if composed(c.s) && !peeks(c.s) {
			_, _ = call{c.f, c.ctx, c.s, c.keys, c.args, nil}.right()
		}
		e.Reply, e.Err = c.right()
	})},
	{"nobody is told to wait", "Limiter/Wait", []string{"GCRA/", "Limiter/", "/Mix"}, bad(algorithm.GCRA{}, badReady(func(m contract.Meter, now int64, c contract.Cell, n, wait int64) int64 {
		if wait == 0 {
			return now
		}
		return m.Ready(now, c, n, wait)
	}))},
	{"a denied wait is charged", "Limiter/Refused", []string{"GCRA/", "Limiter/"}, mutation{after: func(c call, tx store.Tx, reply []store.Value) {
		if c.s.Name() == "gcra.mark" && reply[0].Int() == 0 {
			spend(tx)
		}
	}}},
	{"nothing is refunded", "Limiter/Cancel", []string{"GCRA/", "Limiter/"}, bad(algorithm.GCRA{}, flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.refund = func(_ int64, c contract.Cell, _ contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
			return c, note
		}
	}})},
	{"a lane has the limit of the first decision on its key", "Limiter/Lanes", nil, mutation{eval: func(c call) ([]store.Value, error) {
		if ofLanes(c) {
			return stale("fixedwindow").eval(c)
		}
		return c.right()
	}}},
	{"a denied lane consumes a token", "Limiter/Lanes", nil, mutation{after: func(c call, tx store.Tx, reply []store.Value) {
		if ofLanes(c) && c.s.Name() == "gcra" && reply[0].Int() == 0 {
			spend(tx)
		}
	}}},

	{"a reset of several rules does nothing", "Limiter/Histories", []string{"SlidingBuckets/Reset"}, dels(both(composed, with(".reset")), none)},
	{"of many rules none is refunded", "Limiter/Histories", []string{"Limiter/"}, keeps(both(refunds, composed), func(store.Tx, int, store.Nums) {})},
	{"a window of another limit keeps its end", "Limiter/Histories", []string{"FixedWindow/", "/Mix"}, sees(ofLimiters, func(c call, tx store.Tx) view {
		return view{put: func(i int, n *store.Nums, _ *time.Duration) {
			if old, ok, err := tx.Get(i); n.Tag == windowTag && ok && err == nil && old.N[0] > callersTime(c) {
				n.N[0] = old.N[0]
			}
		}}
	})},
	{"a marker is of an ID, not of a key", "Limiter/Histories", nil, mutation{keys: func(key string) string {
		if ofHistories(key) {
			return digest.ReplaceAllString(key, ":%id=one")
		}
		return key
	}}},
	{"a marker is of the limits", "Limiter/Histories", nil, sends(ofLimiters, func(c *call) {
		for i, key := range c.keys {
			if ofHistories(key) && digest.MatchString(key) {
				c.keys[i] += c.args[0].String()
			}
		}
	})},
	{"a refund that returns nothing ends the ID", "Limiter/Histories", []string{"GCRA/", "TokenBucket/", "LeakyBucket/"}, replies(func(s *store.Script) bool {
		return named("gcra.refund")(s) || named("tokenbucket.refund")(s) || named("leakybucket.refund")(s)
	}, func(c call, reply []store.Value) {
		if reply[0].Int() == 0 {
			reply[2], reply[3] = store.IntegerValue(0), store.IntegerValue(0)
			clean(c.f, c.ctx, c.keys[1:]...)
		}
	})},
}

// pauseMutants are mistakes in pauses.
var pauseMutants = []mutant{
	{"a pause shortens itself", "Pause/Until", ofPauses, strangers(with("pause.pause"))},
	{"a pause shortens others", "Pause/Until", ofPauses, bad(algorithm.Pause{}, badWrite(func(tx store.Tx, key int, _ int64, _ contract.Ask) bool {
		tx.Del(key)
		return true
	}))},
	{"the wait is rounded up", "Pause/Until", ofPauses, bad(algorithm.Pause{}, longer(func(wait int64) int64 { return (wait + 999) / 1000 * 1000 }))},
	{"a sleeper ends the extension of another", "Pause/Resume", ofPauses, removes(with("pause", ".resume"), func(tx store.Tx, i int, _ string) {
		last, _, _ := tx.At(i, 0)
		tx.Remove(i, last.Text)
	})},
	{"a Resume leaves an ended pause", "Pause/Resume", ofPauses, removes(with("pause", ".resume"), func(tx store.Tx, i int, text string) {
		if ends, _, _ := tx.Score(i, text); ends > time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC).UnixMicro() {
			tx.Remove(i, text)
		}
	})},
	{"a pause too many is lost", "Pause/Full", ofPauses, bad(algorithm.Pause{}, badWrite(func(tx store.Tx, key int, now int64, _ contract.Ask) bool {
		live, _, _ := tx.Count(key, now)
		return live < algorithm.MaxPauses
	}))},
	{"ended pauses stay", "Pause/Full", ofPauses, trims(with("pause.pause"), func(store.Tx, int64) int64 { return 0 })},
	{"a paused key is not settled", "Pause/Ignored", ofPauses, replies(with("pause", ".settle"), func(_ call, reply []store.Value) {
		reply[0], reply[2] = store.IntegerValue(0), store.IntegerValue(0)
	})},
	{"a request reserves tokens for the time after the pause", "Pause/Wait", ofPauses, bad(algorithm.Pause{}, flaw{step: func(b *badStep, _ []store.Arg) {
		b.room = func(now int64, s contract.State, a contract.Ask) int64 { return b.Step.Room(now+a.Wait, s, a) }
	}})},
	{"a pause is ended twice", "Pause/Many", ofPauses, replies(with(".resume"), func(_ call, reply []store.Value) { reply[0] = store.IntegerValue(1) })},
	{"the clock of pauses is ahead", "Pause/TTL", ofPauses, clocks(with("pause.pause"), func(tx store.Tx) int64 { return tx.Now() + 60*second })},
	{"any member is a pause", "Pause/Foreign", ofPauses, finds(with("pause"), func(m *store.Member, _ *bool) {
		if len(m.Text) < 4 || m.Text[0] != 'l' { // it is not of the log
			m.Text = "p1 a"
		}
	})},
	{"the key expires before the pause ends", "Pause/TTL", ofPauses, adds(with("pause.pause"), func(_ *store.Member, ttl *time.Duration) { *ttl /= 2 })},
}

// ofPauses are the checks that a mutant of pauses can fail.
var ofPauses = []string{"Pause/", "Limiter/Histories"}

// both are the scripts that are of a and of b.
func both(a, b which) which { return func(s *store.Script) bool { return a(s) && b(s) } }

// wrongCaller answers calls of a batch as those before them.
func wrongCaller(f *fake, ctx context.Context, calls []store.Eval) {
	for i := range calls {
		c := f.of(ctx, &calls[i])
		if len(c.keys) > 5 && i > 0 && c.s != scripts.Clean {
			c.keys = calls[i-1].Keys
		}
		calls[i].Reply, calls[i].Err = c.right()
	}
}

// kept keeps the TTL of each key of a limiter.
var kept = mutation{tx: func(c call, tx store.Tx) store.Tx {
	if !ofLimiters(c.s) {
		return tx
	}
	return lasting{tx}
}}

// shortLived does not add an hour to the TTLs of decisions on a caller's clock.
var shortLived = sees(ofLimiters, func(c call, _ store.Tx) view {
	if callersTime(c) == 0 {
		return view{}
	}
	return view{put: func(_ int, _ *store.Nums, ttl *time.Duration) { *ttl -= time.Hour }}
})

// callersTime returns the time of a decision on a caller's clock, or 0.
func callersTime(c call) int64 {
	at := len(c.args) - 1 // the index of the time: last, or before the generation
	switch {
	case strings.Contains(c.s.Name(), ".force"), strings.HasSuffix(c.s.Name(), ".settle"):
		at -= 2
	case strings.HasSuffix(c.s.Name(), ".mark") || refunds(c.s):
		at--
	}
	if at < 0 || c.args[at].Int()/1e15 != 1 {
		return 0
	}
	return c.args[at].Int()
}

// spend consumes from key 0 without being asked to.
func spend(tx store.Tx) {
	n, ok, err := tx.Get(0)
	switch {
	case !ok || err != nil:
		return
	case n.Tag == windowTag:
		n.N[1]++
	case n.Tag == gcraTag:
		n.N[0] += second
	default:
		return
	}
	tx.Put(0, n, time.Hour)
}
