package integration

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/script"
)

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
	carries = algorithm.Calendar{Limit: 5, Every: algorithm.Month, Carry: 4}
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
		{"a decision is settled for less behind another, which took exactly the rest", []formCall{
			{limit: whole, verb: script.ConsumeMark, cost: 2, want: 1},
			{limit: whole, cost: 3, want: 1},
			{limit: whole, verb: script.Settle, cost: 1, want: 1},
			{limit: whole, verb: script.Refund, want: 1},
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
		{"a decision is settled in the next period, and then refunded", []formCall{
			{limit: carries, verb: script.ConsumeMark, cost: 8, want: 1},
			{limit: carries, verb: script.Refund, after: 31*24*time.Hour - us, want: 1},
			{limit: carries, verb: script.ConsumeMark, cost: 8, after: 31*24*time.Hour - us, want: 1},
			{limit: carries, verb: script.Refund, after: 31 * 24 * time.Hour},
			{limit: carries, after: 31 * 24 * time.Hour, cost: 2, want: 1},
			{limit: carries, verb: script.Settle, after: 31 * 24 * time.Hour, cost: 9, want: 1},
			{limit: carries, verb: script.Refund, after: 31 * 24 * time.Hour, want: 1},
			{limit: carries, after: 31 * 24 * time.Hour, cost: 5},
			{limit: carries, after: 31 * 24 * time.Hour, cost: 4, want: 1},
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
		{"a lease expires now, and another later", []formCall{
			{limit: algorithm.Concurrency{Limit: 2, Lease: time.Second}, cost: 1, text: "a", want: 1},
			{limit: algorithm.Concurrency{Limit: 2, Lease: time.Second}, after: us, cost: 1, text: "b", want: 1},
			{limit: lease, after: time.Second, cost: 1, text: "a"},
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
	// No script writes these values.
	for _, c := range []formCall{
		{limit: whole, put: []string{"g2 9007199254740992"}}, {limit: whole, put: []string{"g2 01"}}, {limit: algorithm.Pause{}, put: []string{"x"}},
	} {
		c.cost, c.want = 1, foreign
		list = append(list, formCase{"a foreign value", []formCall{c}})
	}
	// A refund of a log changes an earlier entry. If an integer of that entry is above 2^53-1,
	// nothing is refunded.
	big := algorithm.SlidingLog{Limit: 100, Window: time.Second}
	for i, rest := range []string{"5 1 0 0", "9007199254740992 1 0 0", "5 9007199254740992 0 0", "5 1 9007199254740992 0", "5 1 0 9007199254740992"} {
		refund := formCall{limit: big, verb: script.Refund, after: us, want: int64(1 - min(i, 1))}
		for i, tail := range []string{"0 5", "5 " + rest, "10 5 3 0 0", "15 5"} {
			refund.put = append(refund.put, fmt.Sprintf("l3 %016d %07d %s", int64(formEpoch), i+1, tail))
		}
		list = append(list, formCase{"an entry that ends in " + rest, []formCall{
			{limit: big, cost: 5, want: 1}, {limit: big, cost: 5, want: 1}, {limit: big, verb: script.ConsumeMark, cost: 5, want: 1}, {limit: big, cost: 5, want: 1},
			refund,
		}})
	}
	// Of more than 64 pauses, the others share a member.
	full := formCase{name: "many pauses"}
	for i := range int64(70) {
		full.calls = append(full.calls, formCall{
			limit: algorithm.Pause{}, verb: script.Pause, after: time.Duration(i/66) * 20 * time.Second, wait: time.Duration(10+i%66) * time.Second, text: fmt.Sprint("p", i%67), want: 1,
		})
	}
	for _, v := range []script.Verb{script.Peek, script.Resume, script.Resume, script.Consume} {
		full.calls = append(full.calls, formCall{limit: algorithm.Pause{}, verb: v, after: 21 * time.Second, cost: 1, text: "p65", want: anything})
	}
	list = append(list, full)
	// On the server's clock, a key keeps its TTL unless its state lasts longer.
	hourly, window := algorithm.GCRA{Rate: algorithm.Every(time.Hour), Burst: 5}, algorithm.MetadataWindow{Limit: 5, Window: 24 * time.Hour}
	aligned := algorithm.MetadataWindow{Limit: 5, Window: 720 * time.Hour, Aligned: true}
	list = append(list,
		formCase{"a TTL gets longer", []formCall{{limit: hourly, after: serverClock, cost: 1, want: 1}, {limit: hourly, after: serverClock, cost: 2, want: 1}}},
		formCase{"a window gets longer", []formCall{{limit: window, after: serverClock, cost: 1, want: 1}, {limit: aligned, after: serverClock, cost: 1, want: 1}}},
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
