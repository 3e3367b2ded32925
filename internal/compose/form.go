package compose

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// A run is one run of a Go form. The held values of the rules are not a field of run,
// because they would then be allocated on the heap.
type run struct {
	*Program
	verb  script.Verb
	tx    store.Tx
	args  []store.Arg
	call  Call
	now   int64
	slack time.Duration
	steps []step // the arithmetic for the constants in args, if they are not those of the program
}

// fewRules is the largest number of rules whose held values are on the stack.
const fewRules = 4

var manyHeld = sync.Pool{New: func() any { return new([MaxRules]held) }}

// form returns the Go form of v. Its reply has the integers of replyLayout.
func (p *Program) form(v script.Verb) store.GoForm {
	switch n := len(p.rules); {
	case n == 1:
		return func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
			var one [1]held
			return p.run(v, tx, args, reply, one[:])
		}
	case n <= fewRules:
		return func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
			var few [fewRules]held
			return p.run(v, tx, args, reply, few[:n])
		}
	default:
		return func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
			many := manyHeld.Get().(*[MaxRules]held)
			defer manyHeld.Put(many)
			clear(many[:n])
			return p.run(v, tx, args, reply, many[:n])
		}
	}
}

// run runs the Go form of v. held must have one zero element for each rule.
func (p *Program) run(v script.Verb, tx store.Tx, args []store.Arg, reply []store.Value, held []held) ([]store.Value, error) {
	r := run{Program: p, verb: v, tx: tx, args: args}
	if err := r.readArgs(); err != nil {
		return nil, err
	}
	if v.Decides() {
		return r.decide(reply, held)
	}
	for i := range held {
		if err := r.load(i, &held[i]); err != nil {
			return nil, err
		}
	}
	o, err := outcome{head: 1}, error(nil)
	switch v {
	case script.Refund, script.FinishRefund:
		o, err = r.refund(held)
	case script.Settle, script.Finish:
		o, err = r.settle(held)
	case script.Pause:
		err = r.pause(held)
	case script.Release, script.Resume:
		o.head, err = r.release(held)
	case script.Entries:
		return r.entries(reply, held)
	default: // Reset
		for key := range r.source.Keys {
			tx.Del(key)
		}
	}
	freed := int64(0)
	if v.Finishes() && err == nil {
		freed, err = r.release(held)
	}
	if err != nil {
		return nil, err
	}
	reply = append(reply, store.IntegerValue(o.head), store.IntegerValue(r.now))
	if v.Adjusts() {
		reply = append(reply, store.IntegerValue(o.cost), store.IntegerValue(o.kept))
	}
	if v.Finishes() {
		reply = append(reply, store.IntegerValue(freed))
	}
	if v.Adjusts() && r.named {
		for _, cost := range o.costs[:len(held)] {
			reply = append(reply, store.IntegerValue(cost))
		}
	}
	return reply, nil
}

// readArgs parses the arguments, which AppendArgs has made, and reads the clock if the
// caller brings no time.
func (r *run) readArgs() error {
	var err error
	if r.call, err = r.parseArgs(r.verb, r.args); err != nil {
		return err
	}
	if r.now, r.slack = r.call.Now, clockSlack; r.now == 0 {
		r.now, r.slack = r.tx.Now(), 0
	}
	if !r.hasConsts() {
		r.useArgs()
	}
	return nil
}

// hasConsts reports whether the arguments begin with the constants of the program.
// Otherwise the form uses the constants in the arguments, as a server's script does.
func (r *run) hasConsts() bool {
	consts := r.consts
	args := r.args[:len(consts)]
	for i := range consts {
		if n := consts[i].Int(); args[i].Int() != n || n == 0 && args[i].String() != consts[i].String() {
			if slices.ContainsFunc(r.units, func(u unitArg) bool { return u.arg == i }) {
				continue
			}
			return false
		}
	}
	return true
}

// useArgs sets steps from the constants in the arguments.
func (r *run) useArgs() {
	for i := range r.rules {
		q := &r.rules[i]
		r.steps = append(r.steps, stepOf(q.layout, slices.Clone(r.args[q.arg:q.arg+len(q.Limit.Args)])))
	}
}

// step returns the arithmetic of rule i for the constants in the arguments.
func (r *run) step(i int) *step {
	if r.steps != nil {
		return &r.steps[i]
	}
	return &r.rules[i].step
}

// cost returns the tokens that the call asks of q. For UpTo it is 1, the least that must
// fit. It is also 1 for a verb that Settles, which asks for nothing yet.
func (r *run) cost(q *rule) int64 {
	switch {
	case q.costBy == CostOwn || q.costBy == CostUnit && !r.verb.Adjusts():
		return r.amount(q)
	case r.verb.TakesUpTo() || r.verb.Settles():
		return 1
	}
	return r.call.Cost
}

// amount returns the argument that has the Cost of q, or the amount in its unit.
func (r *run) amount(q *rule) int64 { return r.args[q.arg+len(q.Limit.Args)].Int() }

// life returns how long a marker with an END lives, at least.
func (r *run) life() int64 { return r.args[r.source.Arg(r.verb, script.ArgLife)].Int() }

// debt returns how many tokens a verb that Debts can consume beyond the limit of q.
func (r *run) debt(q *rule) int64 {
	switch q.costBy {
	case CostOwn:
		return r.call.ownDebt
	case CostUnit:
		return r.args[r.source.Arg(r.verb, script.ArgUnitDebt)+q.unitNumber].Int()
	}
	return r.call.debt
}

// ask returns the contract.Ask for the Step of q.
func (r *run) ask(q *rule) contract.Ask {
	return contract.Ask{Cost: r.cost(q), Wait: r.call.Wait, Text: r.call.Text, Renew: r.verb == script.Renew}
}

// load reads the state of rule i. A Refund and a Settle need no leases.
func (r *run) load(i int, h *held) (err error) {
	q := &r.rules[i]
	if h.step = r.step(i); q.layout.Leases() && r.verb.Adjusts() && !r.verb.Finishes() {
		return nil
	}
	if h.step.raw != nil {
		h.state, err = h.step.raw.Read(r.tx, q.key, r.now, r.ask(q))
		return err
	}
	return h.get(r.tx, q.key, r.now)
}

// measure sets the room of rule i, after load.
func (r *run) measure(i int, h *held) {
	if raw := h.step.raw; raw != nil {
		h.room = raw.Room(r.now, h.state, r.ask(&r.rules[i]))
	} else {
		h.advance(r.now, r.now+r.call.Wait)
	}
}

// decide consumes the tokens if every rule has room for them. The reply has the state of
// each rule before the decision.
func (r *run) decide(reply []store.Value, held []held) (_ []store.Value, err error) {
	head := len(reply)
	reply = append(reply, store.IntegerValue(0), store.IntegerValue(r.now))
	take := int64(1)
	if r.verb.TakesUpTo() || r.verb.Forces() {
		take = r.call.Cost
	}
	for i := range held {
		q, h := &r.rules[i], &held[i]
		if err = r.load(i, h); err != nil {
			return nil, err
		}
		ints := h.nums.N[:]
		if h.step.raw != nil {
			ints = h.state[:]
		}
		r.measure(i, h)
		for _, v := range ints[:q.ints] {
			reply = append(reply, store.IntegerValue(v))
		}
		if !q.pauses() || !r.verb.Forces() {
			take = fit(r.verb, q.own(), r.cost(q), h.room+r.call.debt, take)
		}
	}
	if r.verb.Marks() {
		reply = append(reply, store.IntegerValue(0))
		if reply, done, err := r.replay(held, reply, head); done || err != nil {
			return reply, err
		}
	}
	reply[head] = store.IntegerValue(take)
	if take == 0 && !r.verb.Forces() || r.verb == script.Peek {
		return reply, nil
	}
	for i := range held {
		if err := r.consume(i, &held[i], take); err != nil {
			return nil, err
		}
	}
	return reply, nil
}

// fit returns take, lowered to the tokens that a rule with this room allows. If own is
// true, cost is Rule.Cost: the rule then allows take or nothing. It always allows a
// Force.
func fit(v script.Verb, own bool, cost, room, take int64) int64 {
	switch {
	case v.Forces():
		if !own {
			return max(min(take, room), 0)
		}
	case !v.TakesUpTo() || own:
		if room < cost {
			return 0
		}
	case room < take:
		return max(room, 0)
	}
	return take
}

// consume consumes the tokens of rule i. With UpTo and Force, take is the number of
// tokens.
func (r *run) consume(i int, h *held, take int64) error {
	q, s := &r.rules[i], h.step
	if q.pauses() || q.layout.Leases() && r.verb.Forces() {
		return nil
	}
	n, gen := r.cost(q), int64(0)
	total, asked := r.spends(take)
	if (r.verb.TakesUpTo() || r.verb.Forces()) && q.costBy == CostRequest {
		n = take
	}
	if r.verb.Forces() && q.own() {
		n = min(n, h.room+r.debt(q))
	}
	if q.costBy == CostUnit {
		total, asked = max(n, 0), r.cost(q)
	}
	if r.verb.Marks() && q.layout.Marker > 0 {
		gen = r.call.Gen
	}
	if n <= 0 && (r.verb.Forces() || q.costBy == CostUnit) {
		if q.costBy == CostUnit && gen > 0 && r.life() > 0 {
			r.putMark(i, r.now, 0, [store.MaxNums]int64{gen, 0, 0, asked, r.fit(i)})
		}
		return nil
	}
	if s.raw != nil {
		if err := s.raw.Write(r.tx, q.key, r.now, h.state, n, r.ask(q), gen, r.slack); err != nil || gen == 0 {
			return err
		}
		r.markStep(i, h, n, total, asked, gen, 0)
		return nil
	}
	h.take(n)
	h.set(&h.nums, h.next, gen)
	if ttl := h.ttl(r.now, r.slack); ttl == 0 {
		r.tx.Keep(q.key, h.nums)
	} else {
		r.tx.Put(q.key, h.nums, ttl)
	}
	if gen > 0 {
		r.markCell(i, h, n, total, asked, 0)
	}
	return nil
}

// pause begins a pause in all rules.
func (r *run) pause(held []held) error {
	for i := range r.rules {
		q := &r.rules[i]
		if err := held[i].step.raw.Write(r.tx, q.key, r.now, held[i].state, 1, r.ask(q), 0, r.slack); err != nil {
			return err
		}
	}
	return nil
}

// release releases the leases, or ends the pauses. It returns 1 if one was held, otherwise
// 0.
func (r *run) release(held []held) (gave int64, err error) {
	for i := range r.rules {
		if r.verb.Finishes() && !r.rules[i].layout.Leases() {
			continue
		}
		raw, ok := held[i].step.raw.(contract.StepRefunder)
		if !ok {
			return 0, fmt.Errorf("kind %s has no leases and no pauses", r.rules[i].layout.Head.Name)
		}
		ended, err := raw.Refund(r.tx, r.rules[i].key, r.now, held[i].state, r.ask(&r.rules[i]), contract.Cell{}, 0, 0, 0)
		if err != nil {
			return 0, err
		}
		if ended {
			gave = 1
		}
	}
	return gave, nil
}

// entries appends the texts of the first rule to reply.
func (r *run) entries(reply []store.Value, held []held) ([]store.Value, error) {
	texts, err := held[0].step.raw.(contract.Lister).Entries(r.tx, r.rules[0].key, held[0].state)
	for _, text := range texts {
		reply = append(reply, store.BulkValue(text))
	}
	return reply, err
}
