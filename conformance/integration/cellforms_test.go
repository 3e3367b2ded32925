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

// A cellLimit is a limit with a cell, for random histories. unit is about the time in which scale
// tokens are refilled. All costs are multiplied by scale.
type cellLimit struct {
	limit algorithm.Algorithm
	unit  time.Duration
	scale int64
}

var cellLimits = []cellLimit{
	{whole, time.Second, 1},
	{third, time.Second / 3, 1},
	{algorithm.GCRA{Rate: algorithm.PerSecond(7_000_000), Burst: 30}, time.Microsecond, 1},
	{algorithm.GCRA{Rate: algorithm.Every(1<<51 + 1), Burst: 3}, 1 << 51, 1}, // a debt of one token is deep
	{queue, time.Second, 1},
	{algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 4}, time.Second / 3, 1},
	{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3)}, time.Second / 3, 1},
	{algorithm.TokenBucket{Capacity: 8, Refill: algorithm.PerSecond(3), AtOnce: true}, time.Second / 3, 1},
	{algorithm.GCRA{Rate: algorithm.PerSecond(1_000_000), Burst: 4}, time.Microsecond, 1},
	{algorithm.LeakyBucket{Rate: algorithm.PerSecond(1_000_000), Queue: 3}, time.Microsecond, 1},
	{fine, 24 * time.Hour, 1_000_000}, // deep, and refunds of days
}

// cellForms runs a random history of decisions, reservations, debts, and refunds after refunds, in
// Lua that mutate returns, and in Go. The error says how they differ.
func cellForms(rdb *redis.Client, l cellLimit, seed uint64, mutate func(lua string) string) error {
	ctx, st := context.Background(), goredis.New(rdb)
	if err := rdb.FlushAll(ctx).Err(); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(seed, 22))
	limit, err := l.limit.NewLimit()
	if err != nil {
		return err
	}
	p, err := compose.New([]compose.Rule{{Limit: limit}})
	if err != nil {
		return err
	}
	_, bucket := l.limit.(algorithm.TokenBucket)
	now, held, ids := int64(formEpoch), map[string]store.Content{}, 0
	for step := range 30 {
		now += anyOf(r, 0, 0, r.Int64N(3), r.Int64N(l.unit.Microseconds()+1), r.Int64N(4*l.unit.Microseconds()+1))
		if bucket && r.IntN(20) == 0 {
			now -= l.unit.Microseconds()
		}
		call := compose.Call{Cost: 1 + r.Int64N(4), Now: now, Gen: int64(step + 1)}
		v := anyOf(r, script.ConsumeMark, script.ConsumeMark, script.ForceMark, script.Consume, script.Settle, script.Refund, script.Refund, script.Refund)
		keys := []string{"{x}:key", fmt.Sprintf("{x}:%d", r.IntN(ids+1))}
		switch v {
		case script.Consume, script.ConsumeMark:
			call.Wait = anyOf(r, 0, r.Int64N(4*l.unit.Microseconds()+1))
			fallthrough
		case script.ForceMark:
			keys[1] = fmt.Sprintf("{x}:%d", ids)
			ids++
		case script.Settle:
			call.Cost = r.Int64N(7)
		case script.Refund:
			call.Cost = algorithm.MaxTokens
		}
		if v != script.Refund {
			call.Cost *= l.scale
		}
		args := p.AppendArgs(nil, v, &call)
		s := p.Script(v)
		values := []store.Content{held[keys[0]], held[keys[1]]}
		lua, reply, _, err := bothForms(ctx, st, s, keys, args, values, mutate)
		if err != nil {
			return err
		}
		held[keys[0]], held[keys[1]] = values[0], values[1]
		o, err := p.Parse(v, lua, nil)
		if err != nil {
			return err
		}
		if got := reply[0].Int(); o.Head() != got {
			return fmt.Errorf("%+v, step %d: %s replied %d in Lua, and %d in Go", l.limit, step, s.Name(), o.Head(), got)
		}
		for _, key := range keys {
			want := text(held[key])
			if got, err := rdb.Get(ctx, key).Result(); got != want && (err == nil || want != "missing") {
				return fmt.Errorf("%+v, step %d: after %s, %s is %q in Lua, and %q in Go", l.limit, step, s.Name(), key, got, want)
			}
		}
	}
	return nil
}

// cellClient returns a client of a server on which no key expires.
func cellClient(t *testing.T) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// TestCellForms checks that the Lua of a cell does what its Go form does in random histories with
// refunds after refunds.
func TestCellForms(t *testing.T) {
	inLua(t)
	t.Parallel()
	histories := uint64(60)
	if testing.Short() {
		histories = 15
	}
	rdb := cellClient(t)
	for _, l := range cellLimits {
		for seed := range histories {
			if err := cellForms(rdb, l, seed, func(lua string) string { return lua }); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

// cellMutants are errors in the refunds of the Lua, which histories must find.
var cellMutants = []struct{ old, wrong string }{
	{"was_tat + was_moved - moved1, from1 + size), was_tat)", "was_tat + was_moved + moved1, from1 + size), was_tat)"},
	{"was_tat + was_moved - moved1, from1 + size)", "was_tat - moved1, from1 + size)"},
	{"from1 + size), was_tat)", "from1 + size), tat1)"},
	{"math.max(late - size, 0)", "math.max(late - back, 0)"},
	{"local shift = was_moved - moved1", "local shift = -moved1"},
	{"if least > late then", "if least < late then"},
	{"then late, rest, shift = was_tat, was_rem, 0 end", "then late, rest, shift = was_tat, 0, 0 end"},
	{"local whole = size - rest + parts - 1", "local whole = size + parts - 1"},
	{"math.max(up, (whole - whole % parts) / parts)", "up"},
	{"left + was_moved - moved1, from + was[2])", "left - moved1, from + was[2])"},
	{"left + was_moved - moved1, from + was[2])", "left + was_moved - moved1, from)"},
	{"from + was[2]), left)", "from + was[2]), lack)"},
	{"local behind = left + past", "local behind = left"},
	{"math.max(behind - was[2], 0)", "math.max(behind - give, 0)"},
	{"local behind = tat1 - late", "local behind = tat1 + late"},
	{"if behind > 0 and tat1", "if behind > 1 and tat1"},
	{"back = math.min(back, tat1 - now)", "back = math.max(back, tat1 - now)"},
	{"if moved1 > 0 then first = math.min(first, from1) end", ""},
	{"first = math.min(first, from1)", "first = math.max(first, from1)"},
	{"moved1, from1 = moved1 + back, first", "moved1, from1 = back, first"},
	{"local late, rest, cost, size = was_tat + shift", "local late, rest, cost, size = was_tat - shift"},
	{"< (earlier - earlier % num) / num then", "<= (earlier - earlier % num) / num then"},
	{"< (earlier - earlier % num) / num then", "> (earlier - earlier % num) / num then"},
	{"behind, rest = behind - over, rest + over", "behind, rest = behind - over, rest - over"},
	{"moved1, from1 = moved1 + up, first", "moved1, from1 = moved1 + back, first"},
	{"rem < 0 then tat", "rem <= 0 then tat"},
	{"math.max(lack - left, 0)", "math.max(lack + left, 0)"},
	{"if moved1 > 0 and from <", "if from <"},
	{"if give == lack then", "if give >= 0 then"},
	{"if behind > 0 then back = 0 end", "if behind >= 0 then back = 0 end"},
	{"if behind > 0 then back = 0 end", "if behind > 1 then back = 0 end"},
}

// TestCellFormMutants checks that histories find every mutant.
func TestCellFormMutants(t *testing.T) {
	inLua(t)
	notShort(t)
	t.Parallel()
	for _, m := range cellMutants {
		t.Run(m.old+" → "+m.wrong, func(t *testing.T) {
			busyParallel(t)
			rdb, mutated := cellClient(t), false
			for seed := range uint64(60) {
				for _, l := range cellLimits {
					if err := cellForms(rdb, l, seed, func(lua string) string {
						mutated = mutated || strings.Contains(lua, m.old)
						return strings.ReplaceAll(lua, m.old, m.wrong)
					}); err != nil && mutated {
						return
					}
				}
			}
			t.Errorf("not found; a script has the text: %v", mutated)
		})
	}
}
