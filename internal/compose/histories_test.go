package compose_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// A history is a random list of calls over the keys of a few programs.
type history struct {
	*bench
	r        *rand.Rand
	programs []*compose.Program
	rules    int
	own      [][]int64 // costs of the rules' own, by program
	unit     int64
	last     []compose.Result
	gen      int64
	known    map[string]known // decisions with markers, by ID
	exact    int              // times that a promise was checked
	repeats  int              // times that a decision was repeated
}

// A known is a decision with a marker that may still live.
type known struct {
	verb                 script.Verb
	cost, asked, granted int64 // asked is the cost, or what a TakeUpTo consumed
	unsure               bool  // a Force consumed nothing: an earlier marker can be left
}

func newHistory(t *testing.T, r *rand.Rand) *history {
	h := &history{bench: newBench(t), r: r, rules: 1 + r.IntN(3), known: map[string]known{}}
	makers := make([]model.Maker, h.rules)
	for i := range makers {
		makers[i] = model.Pick(r, model.Wide.AllRefundable()...)
	}
	for range 1 + r.IntN(2) {
		var rules []compose.Rule
		var own []int64
		for _, make := range makers {
			l := mustLimit(t, make(r))
			cost := int64(0)
			if r.IntN(4) == 0 {
				cost = 1 + r.Int64N(min(l.Capacity, 4))
			}
			rules, own = append(rules, compose.Rule{Limit: l, Cost: cost}), append(own, cost)
		}
		h.programs, h.own = append(h.programs, mustProgram(t, rules...)), append(h.own, own)
	}
	h.now = model.Pick(r, int64(epoch), 1+r.Int64N(1<<52-1), 1, 1<<52-1)
	h.unit = model.Pick[int64](r, 10, 1000, 1_000_000, 10_000_000, 1<<40)
	return h
}

// step makes one call.
func (h *history) step() {
	r := h.r
	which := r.IntN(len(h.programs))
	p := h.programs[which]
	v := model.Pick(r, script.Consume, script.Consume, script.ConsumeMark, script.UpTo, script.UpToMark, script.Force, script.ForceMark, script.Peek, script.Refund, script.Refund, script.Reset)
	if v == script.Reset && r.IntN(4) > 0 {
		v = script.Consume
	}
	h.gen++
	c := compose.Call{Cost: 1, Gen: h.gen}
	switch r.IntN(4) {
	case 0:
		c.Cost = 1 + r.Int64N(4)
	case 1:
		c.Cost = min(p.Limit(r.IntN(h.rules)).Capacity+r.Int64N(3), contract.MaxTokens)
	}
	switch r.IntN(4) {
	case 0:
		c.Wait = r.Int64N(1 << (1 + r.IntN(52)))
	case 1:
		if len(h.last) > 0 {
			a := model.Pick(r, h.last...)
			c.Wait = max(model.Pick(r, a.RetryAfter, a.Delay).Microseconds()+r.Int64N(3)-1, 0)
		}
	}
	now := h.now
	switch r.IntN(5) {
	case 0:
		now += r.Int64N(h.unit + 1)
	case 1:
		now -= r.Int64N(h.unit + 1)
	case 2:
		if len(h.last) > 0 {
			a := model.Pick(r, h.last...)
			if d := model.Pick(r, a.RetryAfter, a.ResetAfter); d < contract.Never {
				now += d.Microseconds() + r.Int64N(3) - 1
			}
		}
	}
	h.now = min(max(now, 1), 1<<52-1)
	if r.IntN(2) == 0 {
		c.Now = h.now
	}
	id := fmt.Sprintf("%d of program %d", r.IntN(4), which)
	if k, ok := h.known[id]; ok && r.IntN(2) == 0 {
		v, c.Cost = k.verb, k.cost
	}
	before, markers := h.texts(p, "0"), h.texts(p, "%id="+id)
	reply, err := h.eval(p, h.rules, v, id, c)
	if err != nil {
		h.t.Fatal(err)
	}
	o, err := p.Parse(v, reply, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	h.last = h.last[:0]
	if v == script.Refund && !o.TooLittle && (o.Allowed || o.Kept == 0) {
		delete(h.known, id)
	}
	if v > script.Renew || h.repeated(p, v, id, &o, &c, before) {
		return
	}
	all := true
	for i := range h.rules {
		a := p.Result(i, v, &o, &c)
		h.last = append(h.last, a)
		all = all && a.Allowed
		if a.Remaining < 0 || a.Remaining > a.Limit || a.RetryAfter < 0 || a.ResetAfter < 0 || a.Delay < 0 || a.Allowed != (a.RetryAfter == 0) {
			h.t.Fatalf("%+v: rule %d of %s answers %+v", c, i, p.Name(), a)
		}
		if o.Replayed && !a.Allowed && (a.Granted != 0 || a.RetryAfter > a.Delay) {
			h.t.Fatalf("%+v: rule %d of %s answers a repeat with %+v", c, i, p.Name(), a)
		}
	}
	if !o.Replayed && all != (o.Head() > 0 || v == script.Force || v == script.ForceMark) {
		h.t.Fatalf("%+v: %s replied %d, and the rules answer %+v", c, p.Name(), o.Head(), h.last)
	}
	h.serverReply(p, v, &o, &c, before, markers)
	for i, a := range h.last {
		if o.Replayed && !a.Allowed {
			continue // it says when the repeated decision can go ahead, not when another can
		}
		h.promises(p, i, which, v, c, a, o.Replayed)
	}
}

// repeated checks a decision with an ID. If the ID names an earlier decision, nothing
// changes. It reports whether the request had another cost than that decision.
func (h *history) repeated(p *compose.Program, v script.Verb, id string, o *compose.Reply, c *compose.Call, before []string) bool {
	if v != script.ConsumeMark && v != script.UpToMark && v != script.ForceMark {
		return false
	}
	k, ok := h.known[id]
	fits, want := c.Cost == k.asked || v == script.UpToMark && c.Cost > k.asked, k.asked
	if fits {
		want = k.granted
	}
	switch {
	case !o.Replayed && !o.OtherCost:
		switch {
		case v == script.UpToMark && o.Head() > 0:
			h.known[id] = known{v, c.Cost, o.Head(), o.Head(), k.unsure}
		case v == script.ForceMark:
			h.known[id] = known{v, c.Cost, c.Cost, o.Head(), k.unsure || o.Head() == 0}
		case o.Head() > 0:
			h.known[id] = known{v, c.Cost, c.Cost, c.Cost, k.unsure}
		}
		return false
	case k.unsure:
	case !ok || o.Replayed != fits || o.Head() != want:
		h.t.Fatalf("%+v: %s replied %d to a repeat of %+v, replayed: %v", c, p.Name(), o.Head(), k, o.Replayed)
	}
	if after := h.texts(p, "0"); !slices.Equal(after, before) {
		h.t.Fatalf("%+v: a repeat changes %q to %q", c, before, after)
	}
	h.repeats++
	return o.OtherCost
}

// texts returns the values of the keys of p that end in name. The value of a Step is not
// defined.
func (h *history) texts(p *compose.Program, name string) []string {
	var keys []string
	for i := range h.rules {
		keys = append(keys, fmt.Sprintf("{x}:%d:%s", i, name))
	}
	return h.values(keys...)
}

// serverReply checks that a server's reply, with the values before the call, gives the
// same answers as the reply of the Go form.
func (h *history) serverReply(p *compose.Program, v script.Verb, o *compose.Reply, c *compose.Call, before, markers []string) {
	for i := range h.rules {
		if _, ok := p.Limit(i).Kind.(*contract.StepKind); ok {
			return
		}
	}
	text := fmt.Sprintf("%d;%d %06d;%s", o.Head(), o.Now/1_000_000, o.Now%1_000_000, strings.Join(before, ";"))
	switch {
	case o.Replayed:
		text += ";1;" + strings.Join(markers, ";")
	case o.OtherCost:
		text += ";2;" + strings.Join(markers, ";")
	}
	parsed, err := p.Parse(v, []store.Value{store.BulkValue(text)}, nil)
	if err != nil {
		h.t.Fatalf("%s: %v", text, err)
	}
	for i, want := range h.last {
		if got := p.Result(i, v, &parsed, c); got != want {
			h.t.Fatalf("rule %d of %s: %q answers %+v, the Go form %+v", i, p.Name(), text, got, want)
		}
	}
}

// peek returns the answer of rule i at now.
func (h *history) peek(p *compose.Program, i int, now, wait, cost int64) (compose.Result, bool) {
	if now < 1 || now >= 1<<52 || cost > contract.MaxTokens {
		return compose.Result{}, false
	}
	_, answers := h.do(p, h.rules, script.Peek, "", compose.Call{Now: now, Cost: max(cost, 1), Wait: max(wait, 0)})
	return answers[i], true
}

// promises checks that an answer is right about later requests.
func (h *history) promises(p *compose.Program, i, which int, v script.Verb, c compose.Call, a compose.Result, replayed bool) {
	cost, own := c.Cost, h.own[which][i]
	if v == script.UpTo || v == script.UpToMark {
		cost = max(a.Granted, 1)
	}
	kind := p.Limit(i).Kind.Common().Name
	fail := func(what string, b compose.Result) {
		h.t.Helper()
		h.t.Fatalf("%s of %s at %d, %+v answers %+v: %s, it answers %+v", kind, p.Name(), h.now, c, a, what, b)
	}
	if !a.Allowed && a.RetryAfter < contract.Never {
		h.exact++
		retry := h.now + a.RetryAfter.Microseconds()
		if b, ok := h.peek(p, i, retry-1, c.Wait, cost); ok && b.Allowed {
			fail("before RetryAfter", b)
		}
		if b, ok := h.peek(p, i, retry, c.Wait, cost); ok && !b.Allowed {
			fail("after RetryAfter", b)
		}
	}
	if a.Allowed && a.Granted == 0 && !replayed && v != script.Force && v != script.ForceMark {
		delay := a.Delay.Microseconds()
		if b, ok := h.peek(p, i, h.now, delay, cost); ok && !b.Allowed {
			fail("with its Delay for MaxWait", b)
		}
		if b, ok := h.peek(p, i, h.now, delay-1, cost); ok && delay > 0 && b.Allowed {
			fail("with less than its Delay for MaxWait", b)
		}
	}
	if b, ok := h.peek(p, i, h.now+a.ResetAfter.Microseconds(), 0, 1); ok && (b.Remaining != b.Limit || b.ResetAfter != 0) {
		fail("after ResetAfter", b)
	}
	nothing := (v == script.Force || v == script.ForceMark) && a.Granted == 0
	if own > 0 || kind == "slidingbuckets" && (!a.Allowed || replayed || nothing) {
		return // Remaining is of a span that the request did not fit, or the cost is not the request's
	}
	if b, ok := h.peek(p, i, h.now, 0, a.Remaining); ok && a.Remaining > 0 && !b.Allowed {
		fail("for all that remains", b)
	}
	if b, ok := h.peek(p, i, h.now, 0, a.Remaining+1); ok && b.Allowed {
		fail("for one more than remains", b)
	}
}

// For random rules, calls and clocks: tokens are consumed from all rules or from none,
// the reply of a server and the reply of the Go form give the same answers, and
// RetryAfter, ResetAfter, Delay and Remaining are exact.
func TestHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r, exact, repeats := rand.New(rand.NewPCG(seed, 71)), 0, 0
			for range 50 {
				h := newHistory(t, r)
				for range 60 {
					h.step()
				}
				exact, repeats = exact+h.exact, repeats+h.repeats
			}
			if exact < 100 || repeats < 100 {
				t.Errorf("RetryAfter was checked %d times, and repeats %d times", exact, repeats)
			}
		})
	}
}
