package compose

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// tooLittle is the reply of Refund if Call.Cost is less than the tokens that the decision
// consumed.
const tooLittle = 2

// An Outcome is a parsed reply of a script.
type Outcome struct {
	// N is 1 if the request is allowed, and 0 otherwise. For UpTo and UpToMark it is the
	// number of tokens consumed. For Refund and Release it is 1 if anything was refunded or
	// released.
	N   int64
	Now int64 // the time of the decision

	// ints holds the integers of a reply. Program.rules[i].at is an index of ints. A Direct
	// sets Turns instead.
	ints  []store.Value
	Turns []Turn
}

// TooLittle reports whether Call.Cost of a Refund is less than the tokens that the decision
// consumed.
func (o *Outcome) TooLittle() bool { return o.N == tooLittle }

// Outcome parses the reply of the script of v. A server replies with one string,
// "N;SEC USEC;value;value…", which has the earlier value of each rule's key. A Go form replies
// with integers. Outcome stores the integers in the memory of flat. The error is a
// [store.ErrScript].
func (p *Program) Outcome(v Verb, reply, flat []store.Value) (Outcome, error) {
	want := 2
	if v.decides() {
		want = p.ints
	}
	if len(reply) == 1 && reply[0].Kind() == store.Bulk {
		var err error
		if reply, err = p.parse(v, reply[0].Str(), flat[:0]); err != nil {
			return Outcome{}, fmt.Errorf("%w: %s%s: %w", store.ErrScript, p.Name(), verbNames[v], err)
		}
	}
	if len(reply) != want {
		return Outcome{}, fmt.Errorf("%w: %s%s replied %d values, not %d", store.ErrScript, p.Name(), verbNames[v], len(reply), want)
	}
	for i := range reply {
		if n := &reply[i]; n.Kind() != store.Integer || uint64(n.Int()) > 1<<53 {
			return Outcome{}, fmt.Errorf("%w: value %d of what %s%s replied is not an integer from 0 to 2^53", store.ErrScript, i, p.Name(), verbNames[v])
		}
	}
	o := Outcome{N: reply[0].Int(), Now: reply[1].Int(), ints: reply}
	if o.Now < 1 || o.Now >= contract.MaxSpan || o.N > 1 && !v.upTo() && (v != Refund || !o.TooLittle()) {
		return Outcome{}, fmt.Errorf("%w: %s%s replied %d at %d", store.ErrScript, p.Name(), verbNames[v], o.N, o.Now)
	}
	return o, nil
}

// parse parses the reply of a server, and appends its integers to ints.
func (p *Program) parse(v Verb, text string, ints []store.Value) ([]store.Value, error) {
	head, rest, _ := strings.Cut(text, ";")
	clock, rest, more := strings.Cut(rest, ";")
	n, err := strconv.ParseInt(head, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("it replied %q", text)
	}
	sec, usec, _ := strings.Cut(clock, " ")
	s, err1 := strconv.ParseInt(sec, 10, 43)
	us, err2 := strconv.ParseInt(usec, 10, 54)
	if err1 != nil || err2 != nil {
		return nil, fmt.Errorf("it replied the time %q", clock)
	}
	ints = append(ints, store.IntegerValue(n), store.IntegerValue(s*1_000_000+us))
	rules := p.rules
	if !v.decides() {
		rules = nil
	}
	for i := range rules {
		if !more {
			return nil, fmt.Errorf("it replied %d rules, not %d", i, len(p.rules))
		}
		var one string
		one, rest, more = strings.Cut(rest, ";")
		if ints, err = p.parseRule(i, one, ints); err != nil {
			return nil, err
		}
	}
	if more {
		return nil, fmt.Errorf("it replied more than %d rules", len(rules))
	}
	return ints, nil
}

// parseRule appends the integers of rule i to ints. text is the value of a cell, or the
// integers of a Step's State.
func (p *Program) parseRule(i int, text string, ints []store.Value) ([]store.Value, error) {
	r := &p.rules[i]
	var n store.Nums
	if r.step.meter != nil {
		ok := text == ""
		if !ok {
			n, ok = store.ParseNums(text)
			ok = ok && n.Tag == r.step.kind.Tag
		}
		if !ok {
			return nil, fmt.Errorf("it replied %q for rule %d", text, i+1)
		}
		if int(n.Len) < r.ints {
			clear(n.N[n.Len:])
		}
		for _, v := range n.N[:r.ints] {
			ints = append(ints, store.IntegerValue(v))
		}
		return ints, nil
	}
	for range r.ints {
		one, rest, _ := strings.Cut(text, " ")
		v, err := strconv.ParseInt(one, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("it replied %q for rule %d", one, i+1)
		}
		ints, text = append(ints, store.IntegerValue(v)), rest
	}
	return ints, nil
}

// An Answer is one rule's answer to a call.
type Answer struct {
	contract.Answer
	Allowed bool          // the rule allows the request
	Granted int64         // the tokens consumed from the rule
	Delay   time.Duration // if allowed, the time until the tokens are available
}

// Answer returns the answer of rule i to the call c. o is the parsed reply of v.
func (p *Program) Answer(i int, v Verb, o *Outcome, c *Call) (out Answer) {
	r := &p.rules[i]
	a := contract.Ask{Cost: c.Cost, Wait: min(c.Wait, p.maxWait)}
	if v.upTo() {
		a.Cost = max(o.N, 1)
	}
	if r.Cost > 0 {
		a.Cost = r.Cost
	}
	if o.N > 0 && v != Peek {
		out.Granted = a.Cost
	}
	switch {
	case o.Turns != nil:
		r.answerCell(&out, o.Now, &o.Turns[i].cellRun, a.Cost, a.Wait)
	case r.step.raw != nil:
		a.Text, a.Renew = c.Text, v == Renew
		var s contract.State
		for j, value := range o.ints[r.at : r.at+r.ints] {
			s[j] = value.Int()
		}
		out.Allowed = r.step.raw.Room(o.Now, s, a) >= a.Cost
		out.Answer = r.step.raw.Answer(o.Now, s, out.Granted, a)
	default:
		h := cellRun{step: &r.step, cell: cellOf(o.ints[r.at : r.at+r.ints])}
		h.used = h.cell != contract.Cell{} && r.step.meter.Ends(h.cell) > o.Now
		if !h.used {
			h.cell = contract.Cell{}
		}
		h.settle(o.Now, o.Now+a.Wait)
		if out.Granted > 0 {
			h.take(out.Granted)
		}
		r.answerCell(&out, o.Now, &h, a.Cost, a.Wait)
	}
	if a.Cost > r.Limit.Capacity {
		out.Allowed, out.RetryAfter = false, contract.Never
	}
	if out.Allowed {
		out.RetryAfter = 0
	}
	return out
}

// answerCell sets the answer of a rule that keeps a cell.
func (r *rule) answerCell(out *Answer, now int64, h *cellRun, cost, wait int64) {
	m, room := h.step.meter, h.room
	out.Limit, out.Window = r.Limit.Capacity, r.Limit.Window
	switch {
	case cost > r.Limit.Capacity:
	case room >= cost:
		out.Allowed = true
		if wait > 0 {
			out.Delay = contract.Micros(max(m.Ready(now, h.cell, cost, 0)-now, 0))
		}
	default:
		out.RetryAfter = contract.Micros(max(m.Ready(now, h.cell, cost, wait)-now, 1))
	}
	switch {
	case out.Granted > 0:
		room = m.Room(now, now, h.next)
		out.ResetAfter = contract.Micros(max(h.ends-now, 0))
	case wait > 0:
		room = m.Room(now, now, h.cell)
	}
	out.Remaining = min(max(room, 0), r.Limit.Capacity)
	if h.used && out.Granted == 0 {
		out.ResetAfter = contract.Micros(max(m.Ends(h.cell)-now, 0))
	}
}

// cellOf returns the cell of ints.
func cellOf(ints []store.Value) (c contract.Cell) {
	switch c.A = ints[0].Int(); len(ints) {
	case 4:
		c.D = ints[3].Int()
		fallthrough
	case 3:
		c.C = ints[2].Int()
		fallthrough
	case 2:
		c.B = ints[1].Int()
	}
	return c
}

// Entries returns the entries in a reply of the verb Entries.
func (p *Program) Entries(reply []store.Value) ([]contract.Entry, error) {
	texts := make([]string, len(reply))
	for i, v := range reply {
		if v.Kind() != store.Bulk {
			return nil, fmt.Errorf("%w: value %d of what %s.entries replied is not a text", store.ErrScript, i, p.Name())
		}
		texts[i] = v.Str()
	}
	return p.rules[0].step.raw.(contract.Lister).Parse(texts)
}
