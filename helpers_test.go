package weir_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

var (
	oneJob    = algorithm.Concurrency{Limit: 1, Lease: time.Minute}
	pauseRule = weir.Rule{Name: "pause", Algorithm: algorithm.Pause{}}
	rateRule  = weir.Rule{Name: "rate", Algorithm: weirtest.PerSecond}
)

// window returns a rule with a FixedWindow of an hour.
func window(name string, limit int64) weir.Rule {
	return weir.Rule{Name: name, Algorithm: weirtest.Window(limit, time.Hour)}
}

// minute returns a rule with a GCRA. Its limit is its rate per minute.
func minute(name string, limit int64) weir.Rule {
	return weir.Rule{Name: name, Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(limit), Burst: limit}}
}

// costing returns r with this Cost.
func costing(r weir.Rule, cost int64) weir.Rule { r.Cost = cost; return r }

// shadow returns r as a shadow rule.
func shadow(r weir.Rule) weir.Rule { r.Shadow = true; return r }

// A trace is a list of requests, and what they answer.
type trace struct {
	name     string
	policies []weir.Policy // of limiters named "t", over one store
	settles  bool          // Options.Settles
	steps    []step
}

// A step is a request of a trace.
type step struct {
	after time.Duration // the time since the step before
	by    int           // the limiter
	r     weir.Request  // if it has no key, every segment is "u"
	want  string        // the answer, as answerOf has it; what follows its colon may be left out
	left  string        // the tokens left in each rule of the first limiter; empty: any
}

// answerOf returns the answer to r as text. An error is its text after "! ".
func answerOf(r weir.Request, res weir.Result, err error) string {
	kept := ""
	if res.Rule != "" {
		kept = ", kept " + res.Rule
	}
	var denied *weir.DeniedError
	text := fmt.Sprintf(": %s %d of %d, full in %v", res.Rule, res.Remaining, res.Limit, res.ResetAfter)
	if errors.As(res.Shadow, &denied) {
		text = fmt.Sprintf(", denied by %s in %v%s", denied.Result.Rule, denied.Result.RetryAfter, text)
	} else if res.Shadow != nil {
		text = ", " + res.Shadow.Error() + text
	}
	repeat := ""
	if res.Replayed {
		repeat = "repeat, "
	}
	retry := res.RetryAfter.String()
	if res.RetryAfter == weir.Never {
		retry = "ever"
	}
	switch {
	case err != nil:
		return "! " + err.Error()
	case r.Op == weir.Finish:
		return fmt.Sprintf("held %t, found %t, cost %d%s", res.Allowed, res.Replayed, res.Granted, kept)
	case r.Op == weir.Settle || r.Op == weir.Refund:
		return fmt.Sprintf("found %t, cost %d%s", res.Allowed || kept != "", res.Granted, kept)
	case r.Op == weir.Renew || r.Op >= weir.Release:
		return fmt.Sprint(res.Allowed)
	case !res.Allowed:
		return repeat + "denied for " + retry + text
	case res.Delay > 0:
		return fmt.Sprintf("%s%d in %v%s", repeat, res.Granted, res.Delay, text)
	}
	return fmt.Sprint(repeat, res.Granted, text)
}

// leftOf returns the tokens that are left in each rule of l, or "closed" or "open" for one that
// pauses keys.
func leftOf(t *testing.T, l *weir.Limiter, key weir.Key) string {
	t.Helper()
	zero := map[string]int64{}
	for _, unit := range l.Units() {
		zero[unit] = 0
	}
	var left []string
	for _, rule := range l.Rules() {
		res := weirtest.Decide(t, weirtest.Only(t, l.Bare(), rule.Name), weir.Request{Key: key, Op: weir.Peek, Costs: weir.CostsOf(zero)})
		if res.Type != rule.Type {
			t.Errorf("rule %q: got %+v, want the type %v", rule.Name, res, rule.Type)
		}
		switch {
		case rule.Type != weir.PauseRule:
			left = append(left, strconv.FormatInt(res.Remaining, 10))
		case res.Allowed:
			left = append(left, "open")
		default:
			left = append(left, "closed")
		}
	}
	return strings.Join(left, " ")
}

// play plays the traces, on the memory store and with scripts. A Peek, and a request that is not
// allowed, may change nothing in the store. (A Refund ends the ID.)
func play(t *testing.T, traces []trace) {
	for _, tr := range traces {
		for _, name := range []string{"memory", "scripts"} {
			t.Run(tr.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				c := weirtest.NewClock()
				mem := weirtest.NewStore(c)
				var st store.Store = mem
				if name == "scripts" {
					st = scripted{mem}
				}
				tr.play(t, c, mem, st)
			})
		}
	}
}

func (tr trace) play(t *testing.T, c *weirtest.Clock, mem *memory.Store, st store.Store) {
	var limiters []*weir.Limiter
	for _, p := range tr.policies {
		p.Name = "t"
		l, err := weir.NewPolicy(st, p, &weir.Options{Settles: tr.settles})
		if err != nil {
			t.Fatal(err)
		}
		limiters = append(limiters, l)
	}
	for i, s := range tr.steps {
		c.Advance(s.after)
		l := limiters[s.by]
		if s.r.Key == (weir.Key{}) {
			s.r.Key = weir.KeyOf(slices.Repeat([]string{"u"}, len(l.Segments()))...)
		}
		before := dump(t, mem)
		res, err := l.Decide(t.Context(), s.r, nil)
		got := answerOf(s.r, res, err)
		head, _, _ := strings.Cut(got, ":")
		if ok := got == s.want || head == s.want || strings.HasPrefix(s.want, "! ") && strings.HasPrefix(got, "! ") && strings.Contains(got, s.want[2:]); !ok {
			t.Errorf("step %d, %v: got  %s\nwant %s", i, s.r.Op, got, s.want)
		}
		after := dump(t, mem)
		if changes := res.Allowed && s.r.Op != weir.Peek || res.Shadow != nil || s.r.Op == weir.Refund || s.r.Op == weir.Finish; !changes && !slices.Equal(before, after) {
			t.Errorf("step %d, %v: %s turned\n%q\ninto\n%q", i, s.r.Op, got, before, after)
		}
		for _, n := range integer.FindAllString(strings.Join(after, "\n"), -1) {
			if n, err := strconv.ParseInt(n, 10, 64); err != nil || n > algorithm.MaxTokens {
				t.Errorf("step %d: the integer %d in %q is above 2^53-1: a server cannot count it", i, n, after)
			}
		}
		if left := leftOf(t, limiters[0], s.r.Key); s.left != "" && left != s.left {
			t.Errorf("step %d, %v: %s left, want %s", i, s.r.Op, left, s.left)
		}
	}
}

var integer = regexp.MustCompile(`\b[0-9]{16,}\b`)

// rules returns a policy whose keys have one segment, as the only one of a trace.
func rules(list ...weir.Rule) []weir.Policy { return []weir.Policy{weirtest.Rules(list...)} }

// ask returns a request to consume tokens.
func ask(cost int64, id string) weir.Request { return weir.Request{Cost: cost, ID: id} }

// do returns a request with this Op.
func do(op weir.Op, cost int64, id string) weir.Request {
	return weir.Request{Op: op, Cost: cost, ID: id}
}

// settle returns a Settle at this cost.
func settle(actual int64, id string) weir.Request {
	return weir.Request{Op: weir.Settle, ID: id, Actual: weir.ActualCost(actual)}
}

// A recorder is a store that records its calls.
type recorder struct {
	store.Store
	mu    sync.Mutex
	keys  []string // of the last call
	all   []string
	evals int
	mgets int
	times int
}

func (r *recorder) calls() int { return r.evals + r.mgets + r.times }

func (r *recorder) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	r.mu.Lock()
	r.evals++
	r.keys = nil
	for _, key := range keys { // the caller can use its memory again
		r.keys = append(r.keys, strings.Clone(key))
	}
	r.all = append(r.all, r.keys...)
	r.mu.Unlock()
	return r.Store.Eval(ctx, s, keys, args, reply)
}

func (r *recorder) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	r.mgets++
	r.keys = slices.Clone(keys)
	return r.Store.MGet(ctx, keys, values)
}

func (r *recorder) Time(ctx context.Context) (time.Time, error) {
	r.times++
	return r.Store.Time(ctx)
}

// A scripted store is a memory store that runs a script for every decision. A limiter does not
// recognize it as a memory store.
type scripted struct{ store.Store }

// dump returns every key of st with its value, in order.
func dump(t testing.TB, st *memory.Store) []string {
	t.Helper()
	var lines []string
	for key := range st.All() {
		values, err := st.MGet(t.Context(), []string{key}, nil)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, key+" = "+values[0].Str())
	}
	slices.Sort(lines)
	return lines
}

// keysIn returns every key of st, in order.
func keysIn(st *memory.Store) []string { return slices.Sorted(maps.Keys(maps.Collect(st.All()))) }

// by returns a policy with n segments, named "0", "1" …, and with rules named a, b …
// Each string lists the segments in By of one rule. "all" means that By is nil.
func by(n int, sets ...string) weir.Policy {
	p := weir.Policy{Name: "t"}
	for i := range n {
		p.Segments = append(p.Segments, fmt.Sprint(i))
	}
	for i, set := range sets {
		r := weir.Rule{Name: string(rune('a' + i)), Algorithm: weirtest.PerSecond}
		if set != "all" {
			r.By = strings.Split(set, "")
		}
		p.Rules = append(p.Rules, r)
	}
	return p
}

// wantError is weirtest.WantError for the errors of this package.
func wantError(t testing.TB, err, want error, says string) {
	t.Helper()
	weirtest.WantError(t, err, want, "weir", says)
}

// A deciderFunc is a Decider.
type deciderFunc func(context.Context, weir.Request, []weir.Result) (weir.Result, error)

func (f deciderFunc) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	return f(ctx, r, each)
}

// around returns a wrapper whose Decider has no Unwrap.
func around(f func(ctx context.Context, next weir.Decider, r weir.Request, each []weir.Result) (weir.Result, error)) weir.Wrapper {
	return weirtest.Around(func(next weir.Decider) deciderFunc {
		return func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
			return f(ctx, next, r, each)
		}
	})
}

// deny is a wrapper that denies every request for ever.
var deny = around(func(context.Context, weir.Decider, weir.Request, []weir.Result) (weir.Result, error) {
	return weir.Result{Delay: weir.Never, RetryAfter: weir.Never, Rule: "deny"}, nil
})
