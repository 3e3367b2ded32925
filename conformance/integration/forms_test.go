package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
)

// formEpoch is the time at which the calls of a formCase begin.
const formEpoch = 1767225600000000

// A formCase is a list of calls on both sides of a boundary, which random histories meet
// seldom. Both forms of the scripts run the same calls.
type formCase struct {
	name  string
	calls []formCall
}

// A formCall is a call under a limit, at a time after formEpoch. A refund is of the last
// decision with a marker.
type formCall struct {
	limit algorithm.Algorithm
	verb  script.Verb
	after time.Duration
	cost  int64
	wait  time.Duration
	text  string
	want  int64 // what the script replies
}

var (
	whole   = algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}
	third   = algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}
	seventh = algorithm.GCRA{Rate: algorithm.PerSecond(7), Burst: 5}
	fine    = algorithm.GCRA{Rate: algorithm.PerDay(1_000_003), Burst: 100_000} // the debt of 104,250 tokens is too deep to be exact
	queue   = algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 4}
	double  = algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 5}
	slow    = algorithm.TokenBucket{Refill: algorithm.PerSecond(1), Capacity: 5}
	fast    = algorithm.TokenBucket{Refill: algorithm.PerSecond(10), Capacity: 5}
	lease   = algorithm.Concurrency{Limit: 1, Lease: time.Second}
)

// formCases are the boundaries.
var formCases = func() []formCase {
	const us = time.Microsecond
	list := []formCase{
		{"a fraction stands in the key, and a whole refund gives nothing", []formCall{
			{limit: whole, verb: script.ConsumeMark, cost: 1, want: 1},
			{limit: third, verb: script.Force, cost: 14, want: 14},
			{limit: whole, verb: script.Refund},
		}},
		{"a fraction stands in the key, and a whole refund gives a microsecond", []formCall{
			{limit: whole, verb: script.ConsumeMark, cost: 1, want: 1},
			{limit: third, cost: 1, want: 1},
			{limit: whole, verb: script.Refund, after: time.Second - us, want: 1},
		}},
		{"a fraction stands in the key, and later reservations keep the whole refund", []formCall{
			{limit: whole, verb: script.ConsumeMark, cost: 1, want: 1},
			{limit: third, cost: 5, wait: time.Minute, want: 1},
			{limit: third, cost: 5, wait: time.Minute, want: 1},
			{limit: third, cost: 4, wait: time.Minute, want: 1},
			{limit: whole, verb: script.Refund},
		}},
		{"a fraction stands in the key, and later reservations take exactly the whole refund", []formCall{
			{limit: whole, verb: script.ConsumeMark, cost: 4, want: 1},
			{limit: algorithm.GCRA{Rate: algorithm.Rate{Count: 2, Period: 7_999_999 * us}, Burst: 5}, verb: script.Force, cost: 1, want: 1},
			{limit: whole, verb: script.Refund},
		}},
		{"a decision is settled when nothing has changed", []formCall{
			{limit: whole, verb: script.ConsumeMark, cost: 2, want: 1},
			{limit: whole, verb: script.Settle, after: us, cost: 9, want: 1},
			{limit: whole, verb: script.Settle, after: 2 * us, cost: 9, want: 1},
			{limit: whole, verb: script.Settle, after: 2 * us, cost: 0, want: 1},
			{limit: whole, verb: script.Refund, after: 3 * us},
		}},
		{"a decision is settled behind another", []formCall{
			{limit: third, verb: script.ConsumeMark, cost: 2, want: 1},
			{limit: third, cost: 1, want: 1},
			{limit: third, verb: script.Settle, after: us, cost: 1, want: 1},
			{limit: third, verb: script.Settle, after: us, cost: 4, want: 1},
			{limit: third, verb: script.ConsumeMark, after: us, cost: 2, want: 4},
			{limit: third, verb: script.Refund, after: us, want: 1},
		}},
		{"a decision that ends now is not settled", []formCall{
			{limit: whole, verb: script.ConsumeMark, cost: 2, want: 1},
			{limit: whole, verb: script.Settle, after: 2*time.Second - us, cost: 3, want: 1},
			{limit: whole, verb: script.Settle, after: 3 * time.Second, cost: 1},
		}},
		{"another rate cannot settle a decision for less", []formCall{
			{limit: whole, verb: script.ConsumeMark, cost: 3, want: 1},
			{limit: double, verb: script.Settle, after: us, cost: 1, want: 1},
			{limit: double, verb: script.Refund, after: us},
			{limit: double, verb: script.ConsumeMark, after: us, cost: 3, want: 3},
			{limit: double, verb: script.Settle, after: us, cost: 4, want: 1},
			{limit: double, verb: script.Settle, after: us, cost: 0, want: 1},
			{limit: whole, verb: script.Settle, after: 2 * us, cost: 2, want: 1},
			{limit: double, verb: script.Refund, after: 2 * us},
			{limit: whole, verb: script.Refund, after: 2 * us, want: 1},
		}},
		{"another rate settles a decision, and nothing else has changed", []formCall{
			{limit: whole, verb: script.ConsumeMark, cost: 3, want: 1},
			{limit: double, verb: script.Settle, cost: 5, want: 1},
			{limit: double, verb: script.Refund, want: 1},
		}},
		{"another burst settles a decision", []formCall{
			{limit: whole, verb: script.ConsumeMark, cost: 3, want: 1},
			{limit: algorithm.GCRA{Rate: whole.Rate, Burst: 9}, verb: script.Settle, cost: 5, want: 1},
			{limit: whole, verb: script.Settle, cost: 1, want: 1},
			{limit: algorithm.GCRA{Rate: whole.Rate, Burst: 2}, verb: script.Refund, want: 1},
		}},
		{"a decision lasts under a faster limit", []formCall{
			{limit: slow, verb: script.ConsumeMark, cost: 3, want: 1},
			{limit: fast, verb: script.Consume, after: 2 * time.Second, cost: 1, want: 1},
			{limit: fast, verb: script.ConsumeMark, after: 3*time.Second - us, cost: 3, want: 3},
			{limit: fast, verb: script.Settle, after: 3*time.Second - us, cost: 3, want: 1},
			{limit: slow, verb: script.Settle, after: 3*time.Second - us, cost: 2, want: 1},
			{limit: slow, verb: script.Settle, after: 3 * time.Second, cost: 3},
		}},
		{"a Force leaves a debt", []formCall{
			{limit: whole, verb: script.ForceMark, cost: 9, want: 9},
			{limit: whole, cost: 1},
			{limit: whole, verb: script.Settle, cost: 3, want: 1},
			{limit: whole, cost: 2, want: 1},
		}},
		{"a deep debt is refunded", []formCall{
			{limit: fine, cost: 7, want: 1},
			{limit: fine, verb: script.ForceMark, cost: 104_249, want: 104_249}, // exact
			{limit: fine, verb: script.Settle, cost: 104_260, want: 1},
			{limit: fine, verb: script.Force, cost: 4_000_001, want: 4_000_001},
			{limit: fine, verb: script.Force, after: us, cost: 5, want: 5},
			{limit: fine, verb: script.Settle, after: 2 * us, cost: 4_500_000, want: 1},
			{limit: fine, verb: script.Settle, after: 2 * us, cost: 300_000, want: 1},
			{limit: fine, verb: script.Refund, after: time.Hour, want: 1},
			{limit: fine, verb: script.ForceMark, after: time.Hour, cost: 300_000, want: 300_000},
			{limit: fine, verb: script.Refund, after: time.Hour + us, want: 1},
		}},
		{"a deep debt is refunded behind another", []formCall{
			{limit: fine, verb: script.ForceMark, cost: 300_000, want: 300_000},
			{limit: fine, verb: script.Force, cost: 5, want: 5},
			{limit: fine, verb: script.Refund, after: us, want: 1},
			{limit: fine, verb: script.Force, after: us, cost: algorithm.MaxTokens, want: 10_099_989},
		}},
		{"a deep debt comes to its bound", []formCall{
			{limit: fine, verb: script.Force, cost: 9_876_543, want: 9_876_543},
			{limit: fine, verb: script.Force, after: us, cost: algorithm.MaxTokens, want: 223_456},
		}},
		{"another fraction stands in the key", []formCall{
			{limit: third, verb: script.ConsumeMark, cost: 1, want: 1},
			{limit: seventh, cost: 1, want: 1},
			{limit: third, verb: script.Refund, want: 1},
		}},
		{"another fraction without a remainder stands in the key", []formCall{
			{limit: third, verb: script.ConsumeMark, cost: 1, want: 1},
			{limit: algorithm.GCRA{Rate: algorithm.Rate{Count: 2, Period: us}, Burst: 8}, cost: 2, wait: time.Minute, want: 1},
			{limit: third, verb: script.Refund, want: 1},
		}},
		{"a refund with a lower cost is refused", []formCall{
			{limit: whole, verb: script.ConsumeMark, cost: 3, want: 1},
			{limit: whole, verb: script.Refund, cost: 2, want: 2},
			{limit: whole, verb: script.Refund, cost: 3, want: 1},
		}},
		{"a full queue denies even the next turn", []formCall{
			{limit: queue, cost: 5, want: 1},
			{limit: queue, cost: 1, wait: 5 * time.Second},
			{limit: queue, after: time.Second - us, cost: 1, wait: 5 * time.Second},
			{limit: queue, after: time.Second, cost: 1, wait: 4*time.Second - us},
			{limit: queue, after: time.Second, cost: 1, wait: 4 * time.Second, want: 1},
		}},
		{"a held lease does not pay for two", []formCall{
			{limit: lease, cost: 1, text: "a", want: 1},
			{limit: lease, after: us, cost: 2, text: "a"},
			{limit: lease, after: us, cost: 1, text: "a", want: 1},
			{limit: lease, after: us, cost: 1, text: "b"},
		}},
	}
	// A Force consumes up to the largest debt, and then nothing.
	for _, a := range []algorithm.Algorithm{
		whole, third, fine, algorithm.LeakyBucket{Rate: fine.Rate, Queue: 99_999},
		algorithm.GCRA{Rate: algorithm.Rate{Count: contract.MaxSpan / 1000, Period: 1}, Burst: 1}, queue, algorithm.LeakyBucket{Rate: algorithm.PerSecond(3)},
		algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1_500_000_000)}, algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerDay(7), AtOnce: true},
		algorithm.FixedWindow{Limit: 5, Window: time.Second}, algorithm.SlidingCounter{Limit: 5, Window: time.Second},
		algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: time.Second, Limit: 5}}},
		algorithm.SlidingLog{Limit: 5, Window: time.Second}, algorithm.SlidingLog{Limit: 1000, Window: time.Second},
	} {
		limit, err := a.NewLimit()
		if err != nil {
			panic(err)
		}
		all := limit.Capacity + limit.MaxDebt
		list = append(list, formCase{fmt.Sprintf("%+v: the largest debt", a), []formCall{
			{limit: a, verb: script.ForceMark, cost: all, want: all},
			{limit: a, verb: script.Force, cost: 1},
			{limit: a, verb: script.Settle, cost: all + 1, want: 1},
			{limit: a, verb: script.Peek, cost: 1},
			{limit: a, verb: script.Force, after: us, cost: algorithm.MaxTokens, want: refilled(a)},
		}})
	}
	counter := algorithm.SlidingCounter{Limit: algorithm.MaxCounter, Window: time.Second}
	log := algorithm.SlidingLog{Limit: 5, Window: time.Second}
	longLog := log
	longLog.Window *= 10
	list = append(list,
		formCase{"a shorter window of a log has ended, and the decision has not", []formCall{
			{limit: longLog, verb: script.ConsumeMark, cost: 1, want: 1},
			{limit: log, after: time.Second / 2, cost: 1, want: 1},
			{limit: log, verb: script.Refund, after: time.Second},
		}},
		formCase{"a decision of a log that ends now is not settled", []formCall{
			{limit: log, verb: script.ConsumeMark, cost: 1, want: 1},
			{limit: log, verb: script.Settle, after: time.Second - us, cost: 1, want: 1},
			{limit: log, verb: script.Settle, after: time.Second, cost: 1},
		}},
		formCase{"a refund under a shorter window of a log leaves the older entries", []formCall{
			{limit: longLog, cost: 2, want: 1},
			{limit: longLog, verb: script.ConsumeMark, after: 5 * time.Second, cost: 3, want: 1},
			{limit: log, verb: script.Refund, after: 5*time.Second + us, want: 1},
			{limit: longLog, verb: script.Peek, after: 5*time.Second + us, cost: 4},
			{limit: longLog, verb: script.Peek, after: 5*time.Second + us, cost: 3, want: 1},
		}},
		formCase{"entries of a log that are exactly a window old", []formCall{
			{limit: log, cost: 3, want: 1},
			{limit: log, after: time.Second / 2, cost: 2, want: 1},
			{limit: log, verb: script.Peek, after: time.Second - us, cost: 1},
			{limit: log, verb: script.Peek, after: time.Second, cost: 3, want: 1},
			{limit: log, verb: script.Peek, after: 3*time.Second/2 - us, cost: 4},
			{limit: log, verb: script.Peek, after: 3 * time.Second / 2, cost: 5, want: 1},
		}},
		formCase{"another decision in the same microsecond, after a reset", []formCall{
			{limit: log, verb: script.ConsumeMark, cost: 2, want: 1},
			{limit: log, verb: script.Reset, cost: 1, want: 1},
			{limit: log, cost: 2, want: 1},
			{limit: log, verb: script.Refund},
		}},
		formCase{"half of the largest previous count", []formCall{
			{limit: counter, verb: script.Force, cost: algorithm.MaxTokens, want: 1<<33 - 1},
			{limit: counter, verb: script.Force, after: 1500 * time.Millisecond, cost: algorithm.MaxTokens, want: 1<<32 - 1},
		}},
		formCase{"expired entries of a debt", []formCall{
			{limit: log, verb: script.Force, cost: 20, want: 20},
			{limit: log, verb: script.Force, after: time.Second / 2, cost: 20, want: 20},
			{limit: log, verb: script.Force, after: time.Second, cost: 1, want: 1},
		}},
	)
	// While somebody waits, what was reserved behind a decision is not refunded. Nobody
	// waits if the tokens consumed are at most the capacity.
	for _, w := range []struct {
		limit         algorithm.Algorithm
		first, behind int64
		after         time.Duration
		none          bool
	}{
		{whole, 2, 3, 0, false}, {whole, 2, 4, 0, true}, {whole, 3, 3, time.Second - us, true}, {whole, 3, 3, time.Second, false},
		{third, 2, 3, 0, false}, {third, 2, 4, 0, true}, {third, 3, 3, 333_333 * us, true}, {third, 3, 3, 333_334 * us, false},
		{queue, 2, 1, 0, true},
		{algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 4}, 2, 1, 0, true},
		{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}, 2, 3, 0, false},
		{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}, 2, 4, 0, true},
		{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3), AtOnce: true}, 4, 4, time.Second - us, true},
		{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3), AtOnce: true}, 4, 4, time.Second, false},
	} {
		want := int64(1)
		if w.none {
			want = 0
		}
		list = append(list, formCase{fmt.Sprintf("%T: %d behind %d, %v later", w.limit, w.behind, w.first, w.after), []formCall{
			{limit: w.limit, verb: script.ConsumeMark, cost: w.first, wait: time.Minute, want: 1},
			{limit: w.limit, cost: w.behind, wait: time.Minute, want: 1},
			{limit: w.limit, verb: script.Refund, after: w.after, want: want},
		}})
	}
	return list
}()

// refilled returns the tokens that a refills in a microsecond.
func refilled(a algorithm.Algorithm) int64 {
	switch a := a.(type) {
	case algorithm.GCRA:
		return a.Rate.Count * 1000 / a.Rate.Period.Nanoseconds()
	case algorithm.TokenBucket:
		if !a.AtOnce {
			return a.Refill.Count * 1000 / a.Refill.Period.Nanoseconds()
		}
	}
	return 0
}

// TestForms checks that the Lua form does what the Go form does at boundaries: the reply,
// the values and the TTLs are equal.
func TestForms(t *testing.T) {
	inLua(t)
	t.Parallel()
	for _, c := range formCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := c.run(t, func(lua string) string { return lua }); err != nil {
				t.Error(err)
			}
		})
	}
}

// formMutants are errors in the Lua, which formCases must find. They are texts of composed
// scripts of one rule.
var formMutants = []struct{ old, wrong string }{
	{"and m[1][4] > n then", "and m[1][4] > n + 1 then"},
	{"and m[1][4] > n then", "and m[1][4] >= n then"},
	{"elseif rem1 > 0 then\ntat1 = tat1 - 1\nend", "end"},
	{"tat1 = tat1 - 1\nend", "tat1 = tat1 - 2\nend"},
	{"if rem > 0 then tat = tat + 1 end", ""},
	{"if rem > 0 then tat = tat + 1 end", "tat = tat + 1"},
	{"value, 'KEEPTTL')\nend\nelse", "value, 'PX', '99999999')\nend\nelse"},
	{"value, 'KEEPTTL')\nend\nelse", "value, 'PX', '1')\nend\nelse"},
	{"if back > 0 and moved1 + back", "if back >= 0 and moved1 + back"},
	{"if lack > (ARGV[1]+0) then", "if lack >= (ARGV[1]+0) then"},
	{"behind > 0 and ahead > total", "behind > 0 and ahead >= total"},
	{"if n == 1 and ARGV[3] ~= '' then", "if ARGV[3] ~= '' then"},
	{"tat1 - now > (ARGV[2]+0)", "tat1 - now >= (ARGV[2]+0)"},
	{"if behind > 0 then back = 0 end", ""},
	{"then held = held + m[1][2] end", "then held = held end"},
	{" and moved1 == m[1][9] then", " then"},
	{"if n > 0 and (was[5] - ARGV[6]) % 8589934592 == 0 then", "if n > 0 then"},
	{"if kept > 0 and some == 0 then return", "if kept > 99 and some == 0 then return"},
	{"total = math.min(total, spent + math.max(room + debt, 0))", ""},
	{"if keeps[1] then kept = kept + 1 end", ""},
	{"if not some and (kept > 0 or not ended) then total, change = first[3], false end", ""},
	{"if not some and (kept > 0 or not ended) then total, change = first[3], false end", "if not some and (kept > 0 or not ended) then change = false end"},
	{"if m[1] and (m[1][5] - ARGV[7]) % 8589934592 == 0 and tail1", "if m[1] and tail1"},
	{"m[1] and (m[1][5] - ARGV[7]) % 8589934592 == 0 and tail1", "false and tail1"},
	{"if m[1][9] <= now then m[1] = nil end", "if m[1][9] < now then m[1] = nil end"},
	{"if (m[1][5] - ARGV[9]) % 8589934592 == 0 then\nlocal anchor1", "do\nlocal anchor1"},
	{"lack % 1 - lack - 1", "-lack - 1"},
	{"lack % 1 - lack - 1", "lack % 1 - lack - 9"},
	{"(time - time % 1) + 3", "(time - time % 1) + 2"},
	{"if sum >= 9007199254740992 then", "if false then"},
	{"if cost > most * parts then", "if false then"},
	{"if rem > rest then late = late - 1 end", ""},
	{"local some = n % parts\ncost =", "local some = 0\ncost ="},
	{"(n - some) / parts * num + math", "n / parts * num + math"},
	{"some * num / parts), most) - 2", "some * num / parts), most)"},
	{"rem + kept", "rem"},
	{"if ends <= now then m[1] = nil end", ""},
	{"if ends <= now then m[1] = nil end", "if ends < now then m[1] = nil end"},
	{"(m[1] and m[1][3] or fresh)", "0"},
	{"was[2] = was[2] - n", ""},
	{"m[1][3] = total", ""},
	{"local at = now\nlocal left", "local left"},
	{"if waits and room > 0 then room = 0 end", "if waits then room = 0 end"},
	{"8589934591", "4294967296"},
	{"and place < size - dead1 then", "and place <= size - dead1 then"},
	{"<= n and dead1 == 0 then", "<= n then"},
	{"if time <= after then", "if time < after then"},
	{"after + 1), nil, nil", "after), nil, nil"},
	{"if owner ~= string.format('%d', gen) or", "if"},
}

// TestFormMutants checks that formCases find every mutant.
func TestFormMutants(t *testing.T) {
	inLua(t)
	t.Parallel()
	for _, m := range formMutants {
		t.Run(m.old+" → "+m.wrong, func(t *testing.T) {
			t.Parallel()
			found, mutated := false, false
			for _, c := range formCases {
				err := c.run(t, func(lua string) string {
					mutated = mutated || strings.Contains(lua, m.old)
					return strings.ReplaceAll(lua, m.old, m.wrong)
				})
				found = found || err != nil
			}
			if !found || !mutated {
				t.Errorf("found: %v; a script has the text: %v", found, mutated)
			}
		})
	}
}

// run makes the calls of c, with the Lua that mutate returns on a miniredis whose keys do
// not expire, and with the Go form. The error says how they differ.
func (c formCase) run(t *testing.T, mutate func(lua string) string) error {
	ctx, rdb := context.Background(), redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer func() { _ = rdb.Close() }()
	st := goredis.New(rdb)
	keys := []string{"{x}:key", "{x}:marker"}
	held, ttls := make([]store.Content, len(keys)), make([]time.Duration, len(keys))
	for i, call := range c.calls {
		limit, err := call.limit.NewLimit()
		if err != nil {
			return err
		}
		p, err := compose.New([]compose.Rule{{Limit: limit}})
		if err != nil {
			return err
		}
		s := p.Script(call.verb)
		args := p.AppendArgs(nil, call.verb, &compose.Call{
			Cost: call.cost, Wait: call.wait.Microseconds(), Now: formEpoch + call.after.Microseconds(), Text: call.text, Gen: int64(i + 1),
		})
		n := 1
		if p.Marked(0) {
			n = 2
		}

		lua, reply, changes, err := bothForms(ctx, st, s, keys[:n], args, held, mutate)
		if err != nil {
			return err
		}
		o, err := p.Parse(call.verb, lua, nil)
		if err != nil {
			return err
		}
		for _, change := range changes {
			if change.TTL > 0 || change.Deleted {
				ttls[change.Key] = change.TTL
			}
		}
		want, err := p.Parse(call.verb, reply, nil)
		if err != nil {
			return err
		}
		if call.verb.Adjusts() && (o.Granted != want.Granted || o.Kept != want.Kept) {
			return fmt.Errorf("call %d: the Lua replied %+v, and the Go form %+v", i, o, want)
		}
		if got := reply[0].Int(); o.Head() != call.want || got != call.want {
			return fmt.Errorf("call %d: the Lua replied %d, and the Go form %d: want %d", i, o.Head(), got, call.want)
		}
		for k, h := range held {
			want := fmt.Sprint(text(h), ttls[k])
			if got := onServer(ctx, rdb, keys[k]); got != want {
				return fmt.Errorf("call %d: %s is %s, and of the Go form %s", i, keys[k], got, want)
			}
		}
	}
	return nil
}

// The newest lease has a score from 0 to 2^53-1 without a fraction. A member with another
// score is foreign.
func TestFormScores(t *testing.T) {
	inLua(t)
	t.Parallel()
	const highest = 1<<53 - 1
	limit, err := algorithm.Concurrency{Limit: 2, Lease: time.Second}.NewLimit()
	if err != nil {
		t.Fatal(err)
	}
	p, err := compose.New([]compose.Rule{{Limit: limit}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, rdb := context.Background(), redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer func() { _ = rdb.Close() }()
	st := goredis.New(rdb)
	for _, tt := range []struct {
		score   float64
		foreign bool
	}{{-1, true}, {0, false}, {formEpoch - 0.5, true}, {formEpoch + 0.5, true}, {highest, false}, {highest + 1, true}} {
		for _, v := range p.Verbs() {
			must(t, rdb, "FLUSHALL")
			if err := rdb.ZAdd(ctx, "key", redis.Z{Score: tt.score, Member: "c2 other"}).Err(); err != nil {
				t.Fatal(err)
			}
			args := p.AppendArgs(nil, v, &compose.Call{Cost: 1, Now: formEpoch, Text: "a"})
			if _, err := st.Eval(ctx, p.Script(v), []string{"key"}, args, nil); errors.Is(err, store.ErrForeign) != tt.foreign || err != nil && !tt.foreign {
				t.Errorf("%s, a score of %.1f: %v; want ErrForeign: %v", p.Script(v).Name(), tt.score, err, tt.foreign)
			}
			if keys := rdb.Keys(ctx, "*").Val(); tt.foreign && !slices.Equal(keys, []string{"key"}) {
				t.Errorf("%s, a score of %.1f: the keys are %q", p.Script(v).Name(), tt.score, keys)
			}
		}
	}
}
