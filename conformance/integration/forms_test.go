package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/conformance/internal/algorithms"
	"github.com/weir-go/weir/examples/dailyquota"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
)

// formEpoch is the time at which the calls of a formCase begin.
const formEpoch = 1767225600000000

// A formCase is a list of calls, which both forms of the scripts run: calls on both sides of a
// boundary, which random histories meet seldom, or a random history.
type formCase struct {
	name  string
	calls []formCall
}

// A formCall is a call under a limit, at a time after formEpoch.
type formCall struct {
	limit algorithm.Algorithm
	verb  script.Verb
	after time.Duration // or serverClock
	cost  int64
	wait  time.Duration
	text  string
	id    int      // names the marker
	put   []string // before the call, it becomes the value of the key, or the members of its set
	want  int64    // what the script replies, or one of the numbers below
}

// serverClock as the time of a call means the server's time.
const serverClock = time.Duration(-1)

const (
	anything = -1 // whatever the Go form replies
	foreign  = -2 // store.ErrForeign, and no reply of the Go form
)

// program returns the program of one rule with the limit a.
func program(a algorithm.Algorithm) *compose.Program {
	name := fmt.Sprintf("%#v", a)
	if p, ok := programs.Load(name); ok {
		return p.(*compose.Program)
	}
	limit, err := a.NewLimit()
	if err != nil {
		panic(err)
	}
	p, err := compose.New([]compose.Rule{{Limit: limit}})
	if err != nil {
		panic(err)
	}
	programs.Store(name, p)
	return p
}

var programs sync.Map

// A formServer runs the Lua form of scripts.
type formServer struct {
	*redis.Client
	runs atomic.Int64
}

// newFormServer returns a server, or miniredis if there is no Docker engine.
func newFormServer(t *testing.T) *formServer {
	if servers.Available() {
		_, rdb := adapters[0].single(t)
		return &formServer{Client: rdb}
	}
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return &formServer{Client: rdb}
}

// run makes the calls of c, with the Lua in which old is replaced by wrong, and with the Go form. The
// error says how the replies, the values or the TTLs differ. No key expires meanwhile.
func (f *formServer) run(c formCase, old, wrong string) error {
	ctx, begin, st := context.Background(), time.Now(), goredis.New(f.Client)
	tag := fmt.Sprintf("{%d}:", f.runs.Add(1))
	held, ttls := map[string]store.Content{}, map[string]time.Duration{}
	defer func() { f.Unlink(ctx, slices.Collect(maps.Keys(held))...) }()
	for i, call := range c.calls {
		p := program(call.limit)
		s, name := p.Script(call.verb), fmt.Sprintf("%s, call %d, %+v", c.name, i, call)
		var keys []string
		for k := range p.Keys(0) {
			keys = append(keys, fmt.Sprint(tag, k))
		}
		if call.verb.Markers() && p.Marked(0) {
			keys = append(keys, fmt.Sprint(tag, "id", call.id))
		}
		if call.put != nil {
			held[keys[0]] = f.put(ctx, keys[0], call.put, p.Sets())
			ttls[keys[0]] = time.Hour
		}
		in := compose.Call{
			Cost: call.cost, Wait: call.wait.Microseconds(), Now: formEpoch + call.after.Microseconds(), Text: call.text, Gen: int64(i + 1),
		}
		if call.after == serverClock {
			in.Now = 0
		}
		args := p.AppendArgs(nil, call.verb, &in)
		lua, err := st.Eval(ctx, store.NewScript(s.Name(), replaced(s.Lua(), old, wrong), nil), keys, args, nil)
		if call.want == foreign && errors.Is(err, store.ErrForeign) {
			continue
		} else if err != nil || call.want == foreign {
			return fmt.Errorf("%s: the Lua form: %v, %w", name, lua, err)
		}
		got, now, err1 := answerOf(p, call.verb, lua, &in)
		var values []store.Content
		for _, key := range keys {
			values = append(values, held[key])
		}
		tx := store.NewLoaded(now, values)
		reply, err := s.Run(tx, keys, args, nil)
		if err != nil {
			return fmt.Errorf("%s: the Go form: %w", name, err)
		}
		for _, change := range tx.Changes() {
			key := keys[change.Key]
			if held[key] = change.Content; change.TTL > 0 || change.Deleted {
				ttls[key] = change.TTL
			}
		}
		want, _, err2 := answerOf(p, call.verb, reply, &in)
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if got != want || call.want != anything && call.want != reply[0].Int() {
			return fmt.Errorf("%s: the Lua form replied %s, and the Go form %s", name, got, want)
		}
		for _, key := range keys {
			if err := f.compare(ctx, key, held[key], ttls[key], begin); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// replaced returns lua with wrong in place of old, which is not empty in a mutant.
func replaced(lua, old, wrong string) string {
	if old == "" {
		return lua
	}
	return strings.ReplaceAll(lua, old, wrong)
}

// put makes value the value of a key on the server: a text, or members of a sorted set, which it
// returns.
func (f *formServer) put(ctx context.Context, key string, value []string, set bool) store.Content {
	f.Unlink(ctx, key)
	if !set {
		f.Set(ctx, key, value[0], time.Hour)
		return store.Content{}
	}
	c := store.Content{Kind: store.Set}
	for _, text := range value {
		c.Members = append(c.Members, store.Member{Score: formEpoch, Text: text})
		f.ZAdd(ctx, key, redis.Z{Score: formEpoch, Member: text})
	}
	f.Expire(ctx, key, time.Hour)
	return c
}

// answerOf returns the answer in a reply, and its time.
func answerOf(p *compose.Program, v script.Verb, reply []store.Value, call *compose.Call) (answer string, now int64, err error) {
	if v == script.Entries {
		list, err := p.Entries(reply)
		return fmt.Sprint(list), call.Now, err
	}
	o, err := p.Parse(v, reply, nil)
	switch {
	case err != nil:
		return "", 0, err
	case v.Decides():
		return fmt.Sprintf("%d %+v", o.Head(), p.Result(0, v, &o, call)), o.Now, nil
	}
	return fmt.Sprint(o.Head(), " ", o.Granted, " ", o.Kept), o.Now, nil
}

// compare compares a key on the server with the value and the TTL that the Go form has set at some
// time after begin.
func (f *formServer) compare(ctx context.Context, key string, want store.Content, ttl time.Duration, begin time.Time) error {
	pipe := f.Pipeline()
	left := pipe.PTTL(ctx, key)
	var value func() string
	wanted := text(want)
	switch {
	case want.Kind == store.Missing:
		value = func() string {
			if left.Val() == -2 {
				return "missing"
			}
			return "there"
		}
	case want.Kind == store.Numbers:
		value = pipe.Get(ctx, key).Val
	case strings.HasPrefix(want.Members[0].Text, "m2 "): // a list on servers
		cmd := pipe.LRange(ctx, key, 0, -1)
		value = func() string { return fmt.Sprintf("%q", cmd.Val()) }
		var texts []string
		for _, m := range want.Members {
			texts = append(texts, m.Text)
		}
		wanted = fmt.Sprintf("%q", texts)
	default:
		cmd := pipe.ZRangeWithScores(ctx, key, 0, -1)
		value = func() string {
			var set store.Content
			for _, z := range cmd.Val() {
				set.Kind, set.Members = store.Set, append(set.Members, store.Member{Score: int64(z.Score), Text: z.Member.(string)})
			}
			return text(set)
		}
	}
	_, err := pipe.Exec(ctx)
	if got := value(); got != wanted {
		return fmt.Errorf("%s is %s (%v), and of the Go form %s", key, got, err, wanted)
	}
	if got := left.Val(); want.Kind != store.Missing && (got > ttl || got < ttl-time.Since(begin)-2*time.Millisecond) {
		return fmt.Errorf("%s, %s, has a TTL of %v, and of the Go form %v", key, wanted, got, ttl)
	}
	return nil
}

// text is the value of a key in words.
func text(c store.Content) string {
	switch c.Kind {
	case store.Numbers:
		return c.Nums.String()
	case store.Set:
		return fmt.Sprint(c.Members)
	}
	return "missing"
}

// A formKind makes random histories of a kind of limits.
type formKind struct {
	limits []algorithm.Algorithm // they share their state; most calls are under the first
	unit   time.Duration         // in which about scale tokens are refilled
	scale  int64                 // of all costs
	steps  int
	put    []string // of the first call
}

// formKinds returns a formKind of each kind of limits: those whose refunds depend on later
// decisions, a log, and one of each built-in algorithm and one of another module.
func formKinds(r *rand.Rand) []formKind {
	var all []formKind
	for _, k := range []formKind{
		{limits: []algorithm.Algorithm{whole}, unit: time.Second},
		{limits: []algorithm.Algorithm{whole, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 2}, algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 7}}, unit: time.Second},
		{limits: []algorithm.Algorithm{third}, unit: time.Second / 3},
		{limits: []algorithm.Algorithm{algorithm.GCRA{Rate: algorithm.PerSecond(7_000_000), Burst: 30}}, unit: time.Microsecond},
		{limits: []algorithm.Algorithm{algorithm.GCRA{Rate: algorithm.Every(1<<51 + 1), Burst: 3}}, unit: 1 << 51}, // a debt of one token is deep
		{limits: []algorithm.Algorithm{queue}, unit: time.Second},
		{limits: []algorithm.Algorithm{algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 4}}, unit: time.Second / 3},
		{limits: []algorithm.Algorithm{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3)}}, unit: time.Second / 3},
		{limits: []algorithm.Algorithm{algorithm.TokenBucket{Capacity: 8, Refill: algorithm.PerSecond(3), AtOnce: true}}, unit: time.Second / 3},
		{limits: []algorithm.Algorithm{algorithm.GCRA{Rate: algorithm.PerSecond(1_000_000), Burst: 4}}, unit: time.Microsecond},
		{limits: []algorithm.Algorithm{algorithm.LeakyBucket{Rate: algorithm.PerSecond(1_000_000), Queue: 3}}, unit: time.Microsecond},
		{limits: []algorithm.Algorithm{fine}, unit: 24 * time.Hour, scale: 1_000_000}, // deep, and refunds of days
		{limits: []algorithm.Algorithm{algorithm.Pause{}}, unit: time.Second},
		{limits: []algorithm.Algorithm{dailyquota.Quota{Limit: 5, Zone: berlin, From: time.UnixMicro(formEpoch)}}, unit: 6 * time.Hour},
	} {
		k.scale, k.steps = max(k.scale, 1), 30
		all = append(all, k)
	}
	log := algorithm.SlidingLog{Limit: model.Pick[int64](r, 1, 3, 5, 6, 40, 100_000, algorithm.MaxLogTokens), Window: time.Millisecond}
	most := max(log.Limit/model.Pick[int64](r, 1, 3, 40), 2)
	logs := formKind{
		limits: []algorithm.Algorithm{log, algorithm.SlidingLog{Limit: log.Limit/2 + 1, Window: log.Window}, algorithm.SlidingLog{Limit: log.Limit, Window: log.Window / 2}},
		unit:   15 * time.Microsecond, scale: max(most/4, 1), steps: 150,
	}
	if r.IntN(3) == 0 { // its numbers start again at 0
		logs.put = []string{fmt.Sprintf("l3 %d %d %d 1", int64(formEpoch), 1<<23-1-r.IntN(30), algorithm.MaxLogTokens-r.Int64N(min(10*most, 1<<50)))}
	}
	all = append(all, logs)
	for _, s := range algorithms.BuiltIn {
		a := s.New(r)
		k := formKind{limits: []algorithm.Algorithm{a}, unit: max(model.Unit(a), time.Microsecond), scale: 1, steps: 30}
		for range 3 { // other limits that share its state
			if b := s.New(r); program(a).Limit(0).Kind == program(b).Limit(0).Kind {
				k.limits = append(k.limits, b)
			}
		}
		all = append(all, k)
	}
	return all
}

var berlin = func() *time.Location {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	return zone
}()

// history returns a random history: decisions, reservations, debts, refunds after refunds, changed
// limits, and a clock that steps back.
func (k formKind) history(r *rand.Rand) formCase {
	c, ids, ends := formCase{name: "a random history"}, 0, []time.Duration{0}
	p := program(k.limits[0])
	verbs, window := p.Verbs(), time.Duration(p.Limit(0).Window)
	marked, pauses := slices.Contains(verbs, script.Settle), slices.Contains(verbs, script.Pause)
	now := time.Duration(0)
	for range k.steps {
		switch r.IntN(12) {
		case 0, 1, 2, 3:
		case 4, 5:
			now += time.Duration(r.Int64N(3)) * time.Microsecond
		case 6, 7:
			now += time.Duration(r.Int64N(int64(k.unit + 1000)))
		case 8, 9:
			now += time.Duration(r.Int64N(4*int64(k.unit) + 1000))
		case 10:
			if r.IntN(3) == 0 {
				now = max(now-time.Duration(r.Int64N(1+int64(max(k.unit, window)*3/2))), 0)
			}
		case 11: // a window of a decision ends, or a pause
			if r.IntN(2) == 0 {
				now = max(now, model.Pick(r, ends...))
			}
		}
		now = now.Truncate(time.Microsecond)
		call := formCall{limit: k.limits[0], after: now, verb: model.Pick(r, verbs...), cost: (1 + r.Int64N(4)) * k.scale, want: anything}
		if r.IntN(8) == 0 {
			call.limit = model.Pick(r, k.limits...)
		}
		switch {
		case pauses && r.IntN(2) == 0:
			call.verb = script.Pause
		case !pauses && marked && r.IntN(8) > 0:
			call.verb = model.Pick(r, script.ConsumeMark, script.ConsumeMark, script.ForceMark, script.Consume, script.Settle, script.Refund, script.Refund, script.Refund)
		}
		switch v := call.verb; {
		case v == script.Reset && r.IntN(6) > 0:
			call.verb = script.Consume
		case v.Marks() && r.IntN(10) > 0:
			ids++
			call.id = ids
		case v.Settles():
			call.cost = r.Int64N(7) * k.scale
		case v == script.Refund && r.IntN(8) > 0:
			call.cost = 0
		}
		if v := call.verb; v.Adjusts() {
			call.id = ids - r.IntN(min(ids, 12)+1)
		} else if v == script.Pause || r.IntN(2) == 0 && p.MaxWait() > 0 && (v == script.Consume || v == script.ConsumeMark || v == script.Peek) {
			call.wait = time.Duration(1+r.Int64N(4*k.unit.Microseconds()+1)) * time.Microsecond
		}
		ends = append(ends, now+window+call.wait)[max(0, len(ends)-15):]
		if p.Sets() {
			call.text = model.Pick(r, "a", "b", "c", "d")
		}
		c.calls = append(c.calls, call)
	}
	c.calls[0].put = k.put
	return c
}

// TestForms checks that the Lua form does what the Go form does at boundaries and in random
// histories: the replies, the values and the TTLs are equal.
func TestForms(t *testing.T) {
	notLight(t)
	t.Parallel()
	server := newFormServer(t)
	for _, c := range formCases {
		if err := server.run(c, "", ""); err != nil {
			t.Error(err)
		}
	}
	histories := uint64(30)
	if testing.Short() {
		histories = 8
	}
	for seed := range histories {
		r := rand.New(rand.NewPCG(seed, 22))
		for _, k := range formKinds(r) {
			if err := server.run(k.history(r), "", ""); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

// The newest lease has a score from 0 to 2^53-1 without a fraction. A member with another
// score is foreign.
func TestFormScores(t *testing.T) {
	notLight(t)
	t.Parallel()
	server, p := newFormServer(t), program(algorithm.Concurrency{Limit: 2, Lease: time.Second})
	const highest = 1<<53 - 1
	for score, want := range map[float64]error{
		-1: store.ErrForeign, 0: nil, formEpoch - 0.5: store.ErrForeign, formEpoch + 0.5: store.ErrForeign, highest: nil, highest + 1: store.ErrForeign,
	} {
		for _, v := range p.Verbs() {
			must(t, server.Client, "FLUSHALL")
			must(t, server.Client, "ZADD", "key", score, "c2 other")
			args := p.AppendArgs(nil, v, &compose.Call{Cost: 1, Now: formEpoch, Text: "a"})
			if _, err := goredis.New(server.Client).Eval(t.Context(), p.Script(v), []string{"key"}, args, nil); !errors.Is(err, want) {
				t.Errorf("%s, a score of %.1f: %v, want %v", p.Script(v).Name(), score, err, want)
			}
			if members := server.ZRange(t.Context(), "key", 0, -1).Val(); want != nil && !slices.Equal(members, []string{"c2 other"}) {
				t.Errorf("%s, a score of %.1f: the members are %q", p.Script(v).Name(), score, members)
			}
		}
	}
}
