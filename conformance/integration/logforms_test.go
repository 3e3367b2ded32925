package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
)

// TestLogForms checks that the Lua of a SlidingLog does what its Go form does in random
// histories with refunds of parts, debts, changed limits, a clock that steps back, and numbers
// that start again at 0: the answers and the
// entries are equal.
func TestLogForms(t *testing.T) {
	inLua(t)
	t.Parallel()
	histories := 120
	if testing.Short() {
		histories = 30
	}
	addr := miniredis.RunT(t).Addr()
	for seed := range histories {
		if err := logForms(t, addr, uint64(seed), func(lua string) string { return lua }); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// logForms runs one history, with the Lua that mutate returns. The keys do not expire.
func logForms(t *testing.T, addr string, seed uint64, mutate func(lua string) string) error {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 21))
	ctx, rdb := context.Background(), redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	if err := rdb.FlushAll(ctx).Err(); err != nil {
		return err
	}
	st := goredis.New(rdb)
	log := algorithm.SlidingLog{Limit: anyOf[int64](r, 1, 3, 5, 6, 40, 100_000, algorithm.MaxLogTokens), Window: time.Millisecond}
	rules := []algorithm.SlidingLog{log, {Limit: log.Limit/2 + 1, Window: log.Window}, {Limit: log.Limit, Window: log.Window / 2}}
	most := max(log.Limit/anyOf[int64](r, 1, 3, 40), 2)
	key, held := "{x}:key", make([]store.Content, 2)
	if r.IntN(3) == 0 {
		score, entry := int64(formEpoch), fmt.Sprintf("l3 %d %d %d 1", int64(formEpoch), 1<<23-1-r.IntN(30), algorithm.MaxLogTokens-r.Int64N(min(10*most, 1<<50)))
		rdb.ZAdd(ctx, key, redis.Z{Score: float64(score), Member: entry})
		held[0] = store.Content{Kind: store.Set, Members: []store.Member{{Score: score, Text: entry}}}
	}
	var markers []string // of decisions, by their number; empty if it was denied or refunded
	states := map[string]store.Content{}
	now, times := time.Duration(0), []time.Duration{0}
	for i := range 150 {
		switch r.IntN(8) {
		case 0:
			now = max(now-time.Duration(r.Int64N(1500))*time.Microsecond, 0)
		case 1:
			now += time.Duration(r.Int64N(1500)) * time.Microsecond
		case 2, 3, 4, 5:
			now += time.Duration(r.Int64N(60)) * time.Microsecond
		}
		if r.IntN(12) == 0 { // an entry leaves at this time
			now = max(now, anyOf(r, times...)+log.Window)
		}
		times = append(times, now)[max(0, len(times)-15):]
		verb := anyOf(r, script.Consume, script.ConsumeMark, script.ConsumeMark, script.UpToMark, script.Force, script.ForceMark, script.Peek, script.Refund, script.Refund, script.Settle, script.Settle)
		if r.IntN(60) == 0 {
			verb = script.Reset
		}
		marker := fmt.Sprintf("{x}:marker%d", i)
		if verb.Adjusts() && len(markers) > 0 {
			marker = markers[max(0, len(markers)-1-r.IntN(12))]
		}
		a := rules[0]
		if r.IntN(8) == 0 {
			a = anyOf(r, rules...)
		}
		limit, err := a.NewLimit()
		if err != nil {
			return err
		}
		p, err := compose.New([]compose.Rule{{Limit: limit}})
		if err != nil {
			return err
		}
		s := p.Script(verb)
		cost := 1 + r.Int64N(most)
		if verb == script.Refund {
			cost = 0
		}
		args := p.AppendArgs(nil, verb, &compose.Call{Cost: cost, Now: formEpoch + now.Microseconds(), Gen: int64(i + 1)})
		keys := []string{key, marker}
		held[1] = states[marker]
		lua, reply, _, err := bothForms(ctx, st, s, keys, args, held, mutate)
		if err != nil {
			return fmt.Errorf("step %d %+v cost %d now %v: %w %s", i, a, cost, now, err, onServer(ctx, rdb, key))
		}
		answer := func(reply []store.Value) (string, error) {
			o, err := p.Parse(verb, reply, nil)
			switch {
			case err != nil:
				return "", err
			case verb > script.Renew:
				return fmt.Sprint(o.Head()), nil
			}
			return fmt.Sprintf("%d %+v", o.Head(), p.Result(0, verb, &o, &compose.Call{Cost: max(cost, 1)})), nil
		}
		got, err := answer(lua)
		if err != nil {
			return err
		}
		if want, err := answer(reply); err != nil || got != want {
			return fmt.Errorf("step %d, %s of %d at %v: the Lua answers %s, and the Go form %s, %w", i, s.Name(), cost, now, got, want, err)
		}
		if states[marker] = held[1]; verb == script.ConsumeMark || verb == script.UpToMark || verb == script.ForceMark {
			markers = append(markers, marker)
		}
		if got, want := onServer(ctx, rdb, key), text(held[0]); !strings.HasPrefix(got, want) {
			return fmt.Errorf("step %d, %s of %d at %v: the key is\n%s, and of the Go form\n%s", i, s.Name(), cost, now, got, want)
		}
	}
	return nil
}

// logMutants are errors in the Lua of a SlidingLog, which random histories must find. They are
// texts of composed scripts of one rule.
var logMutants = []struct{ old, wrong string }{
	{"'-8' or '-1'", "'-7' or '-1'"},
	{"or #log == 8 then", "then"},
	{"if time >= now then", "if false then"},
	{"number1 == 8388607 then newest1", "number1 == 8388606 then newest1"},
	{"number1, age1, dead1 = 0, 0, -1", "age1, dead1 = 0, -1"},
	{"(before + cost) % 4503599627370496", "before + cost"},
	{"dead1 = log[i], i - 1", "dead1 = log[i], i"},
	{"format('(%d', after)", "format('(%d', after - 1)"},
	{"used1 = (total1 - upto) % 4503599627370496", "used1 = total1 - upto"},
	{"if oldest or age1 > 0 or", "if age1 > 0 or"},
	{"if oldest or age1 > 0 or", "if oldest or"},
	{"some - need < 0 then", "some - need < -1 then"},
	{"number1 - place) % 8388608", "number1 - place)"},
	{"if rest ~= '' then back =", "if false then back ="},
	{"and (place + i) % (2 * bit) == 0 do", "and (place + i + 1) % (2 * bit) == 0 do"},
	{"if i + bit <= later then\nupto", "if i + bit < later then\nupto"},
	{"if i + bit <= later then\nlocal", "if i + bit < later then\nlocal"},
	{"(upto - before - back) %", "(upto - before) %"},
	{"if sum + block >= need then", "if sum + block > need then"},
	{"(upto - before - back + after) %", "(upto - before - back) %"},
	{"if sum + half >= need then", "if sum + half > need then"},
	{"back = back - after", "back = back"},
	{"dead1 = (place - oldest) % 8388608", "dead1 = 2"},
	{"age1 <= later + 1\n", "age1 <= later\n"},
	{"if age1 > later + 1 + dead1 then", "if age1 > later + 1 then"},
	{"used1, need = sum, sum + n - limit", "used1 = sum"},
	{"if dead1 >= 2 then", "if dead1 >= 3 then"},
	{"math.min(dead1, 16)", "math.min(dead1, 15)"},
	{"elseif dead1 < 0 then", "elseif false then"},
	{"(number1 + 1) % 8388608", "number1 + 1"},
	{"if gen > 0 or age1 > 0 then", "if gen > 0 then"},
	{"if age1 > 0 then age1 = age1 + 1 end", ""},
	{"(back + more) % 4503599627370496", "back"},
	{"cost - less)", "cost + 0)"},
	{"new or age + 0", "age + 0"},
	{"elseif used1 <= n and", "elseif used1 < n and"},
	{"while i < size do", "while i < size - 1 do"},
	{"number % (2 * bit) == 0 do bit", "number % (4 * bit) == 0 do bit"},
	{"if age1 == 0 or age1 > place + 1 then", "if age1 == 0 then"},
	{"elseif cost + 0 > n then", "elseif cost + 0 >= n then"},
	{"if age1 > 0 then change(get(1), 0, 0, age1 - 1) end", ""},
	{"age1 - 1)", "age1)"},
}

// TestLogMutants checks that random histories find every mutant.
func TestLogMutants(t *testing.T) {
	inLua(t)
	notShort(t)
	t.Parallel()
	for _, m := range logMutants {
		t.Run(m.old+" → "+m.wrong, func(t *testing.T) {
			t.Parallel()
			found, mutated, addr := false, false, miniredis.RunT(t).Addr()
			for seed := uint64(0); seed < 200 && !found; seed++ {
				found = logForms(t, addr, seed, func(lua string) string {
					mutated = mutated || strings.Contains(lua, m.old)
					return strings.Replace(lua, m.old, m.wrong, 1)
				}) != nil
			}
			if !found || !mutated {
				t.Errorf("found: %v; a script has the text: %v", found, mutated)
			}
		})
	}
}

// A refund changes an earlier entry. If an integer of that entry is above 2^53-1, both forms
// refund nothing, and change nothing.
func TestLogFormsForeignEntry(t *testing.T) {
	inLua(t)
	t.Parallel()
	ctx, rdb := context.Background(), redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer func() { _ = rdb.Close() }()
	limit, err := algorithm.SlidingLog{Limit: 100, Window: time.Second}.NewLimit()
	if err != nil {
		t.Fatal(err)
	}
	p, err := compose.New([]compose.Rule{{Limit: limit}})
	if err != nil {
		t.Fatal(err)
	}
	st, keys := goredis.New(rdb), []string{"{x}:key", "{x}:marker"}
	for _, rest := range []string{"5 1 0 0", "9007199254740992 1 0 0", "5 9007199254740992 0 0", "5 1 9007199254740992 0", "5 1 0 9007199254740992"} {
		var members []store.Member
		must(t, rdb, "FLUSHALL")
		for i, tail := range []string{"0 5", "5 " + rest, "10 5 7 0 0", "15 5"} { // the entry 3 is refunded
			m := store.Member{Score: formEpoch, Text: fmt.Sprintf("l3 %016d %07d %s", int64(formEpoch), i+1, tail)}
			members = append(members, m)
			rdb.ZAdd(ctx, keys[0], redis.Z{Score: formEpoch, Member: m.Text})
		}
		mark := store.Nums{Tag: script.MarkTag, Len: 9, N: [store.MaxNums]int64{7, 5, 5, 5, 0, formEpoch, 3, 0, formEpoch + 1_000_000}}
		rdb.Set(ctx, keys[1], mark.String(), 0)
		args := p.AppendArgs(nil, script.Refund, &compose.Call{Now: formEpoch + 1, Gen: 9})
		s := p.Script(script.Refund)
		reply, err := st.Eval(ctx, s, keys, args, nil)
		if err != nil {
			t.Fatal(err)
		}
		o, err := p.Parse(script.Refund, reply, nil)
		if err != nil {
			t.Fatal(err)
		}
		held := []store.Content{{Kind: store.Set, Members: members}, {Kind: store.Numbers, Nums: mark}}
		before := text(held[0])
		tx := store.NewLoaded(formEpoch+1, held)
		if reply, err = s.Run(tx, keys, args, nil); err != nil {
			t.Fatal(err)
		}
		for _, change := range tx.Changes() {
			held[change.Key] = change.Content
		}
		gave := rest == "5 1 0 0"
		if o.Head() > 0 != gave || reply[0].Int() > 0 != gave {
			t.Errorf("an entry that ends in %q: the Lua refunded %d, and the Go form %d; want a refund: %v", rest, o.Head(), reply[0].Int(), gave)
		}
		got := onServer(ctx, rdb, keys[0])
		if !strings.HasPrefix(got, text(held[0])) || (text(held[0]) == before) == gave {
			t.Errorf("an entry that ends in %q: the key turned from\n%s into\n%s, and in the Go form into\n%s", rest, before, got, text(held[0]))
		}
	}
}
