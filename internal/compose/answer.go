package compose

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// An Outcome is a parsed reply of a script.
type Outcome struct {
	// N is 1 if the request is allowed, and 0 otherwise. For UpTo and Force it is the
	// number of tokens consumed. For Refund and Release it is 1 if anything was refunded or
	// released. For Settle it is 0 if there is no such decision, and otherwise its cost plus
	// 1. If the request repeats an earlier decision, it is the tokens which that
	// decision consumed from rules without a Cost.
	N    int64
	Now  int64 // the time of the decision
	code int64 // script.Replayed or script.OtherCost; otherwise 0

	// ints holds the integers of a reply. Program.rules[i].at is an index of ints. A Direct
	// has none.
	ints []store.Value
}

// TooLittle reports whether Call.Cost of a Refund is less than the tokens that the decision
// consumed.
func (o *Outcome) TooLittle() bool { return o.N == script.TooLittle }

// Replayed reports whether the request repeats an earlier decision, with the same ID. It then
// consumed nothing.
func (o *Outcome) Replayed() bool { return o.code == script.Replayed }

// OtherCost reports whether the ID names an earlier decision with another cost, which is N.
func (o *Outcome) OtherCost() bool { return o.code == script.OtherCost }

// Outcome parses the reply of the script of v. A server replies with one string,
// "N;SEC USEC;value;value…", which has the earlier value of each rule's key. Behind them, a
// repeated decision has ";CODE" and the values of the markers. A Go form replies with integers.
// Outcome stores the integers in the memory of flat. The error is a [store.ErrScript].
func (p *Program) Outcome(v script.Verb, reply, flat []store.Value) (Outcome, error) {
	want := 2
	if v.Decides() {
		want = p.ints
	}
	if v.Marks() {
		want++
	}
	if len(reply) == 1 && reply[0].Kind() == store.Bulk {
		var err error
		if reply, err = p.parse(v, reply[0].Str(), flat[:0]); err != nil {
			return Outcome{}, fmt.Errorf("%w: %s%s: %w", store.ErrScript, p.Name(), v.Suffix(), err)
		}
	}
	code := int64(0)
	if v.Marks() && len(reply) >= want {
		if code = reply[want-1].Int(); code == script.Replayed {
			want += len(p.rules) + p.ints - 2
		}
	}
	if len(reply) != want {
		return Outcome{}, fmt.Errorf("%w: %s%s replied %d values, not %d", store.ErrScript, p.Name(), v.Suffix(), len(reply), want)
	}
	for i := range reply {
		if n := &reply[i]; n.Kind() != store.Integer || uint64(n.Int()) > 1<<53 {
			return Outcome{}, fmt.Errorf("%w: value %d of what %s%s replied is not an integer from 0 to 2^53", store.ErrScript, i, p.Name(), v.Suffix())
		}
	}
	o := Outcome{N: reply[0].Int(), Now: reply[1].Int(), code: code, ints: reply}
	many := v.TakesUpTo() || v.Debts() || v == script.Refund && o.TooLittle() || code > 0
	if o.Now < 1 || o.Now >= contract.MaxSpan || o.N > 1 && !many || code > script.OtherCost {
		return Outcome{}, fmt.Errorf("%w: %s%s replied %d at %d", store.ErrScript, p.Name(), v.Suffix(), o.N, o.Now)
	}
	return o, nil
}

// parse parses the reply of a server, and appends its integers to ints.
func (p *Program) parse(v script.Verb, text string, ints []store.Value) ([]store.Value, error) {
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
	if !v.Decides() {
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
	if !v.Marks() && more {
		return nil, fmt.Errorf("it replied more than %d rules", len(rules))
	}
	if v.Marks() {
		return p.parseMarks(rest, more, ints)
	}
	return ints, nil
}

// parseMarks appends the code to ints, and what markReply appends of each marker. text is empty
// if the decision is not repeated. Otherwise it has the code and the texts of the markers.
func (p *Program) parseMarks(text string, more bool, ints []store.Value) ([]store.Value, error) {
	if !more {
		return append(ints, store.IntegerValue(0)), nil
	}
	code, rest, more := strings.Cut(text, ";")
	n, err := strconv.ParseInt(code, 10, 8)
	ints = append(ints, store.IntegerValue(n))
	if err != nil || n != script.Replayed && n != script.OtherCost {
		return nil, fmt.Errorf("it replied %q after the rules", text)
	}
	for i := range p.rules {
		if !more {
			return nil, fmt.Errorf("it replied %d markers, not %d", i, len(p.rules))
		}
		var one string
		one, rest, more = strings.Cut(rest, ";")
		m, ok := store.ParseNums(one)
		if one != "" && (!ok || !script.IsMark(m.Tag) || int(m.Len) != p.rules[i].layout.MarkInts()) {
			return nil, fmt.Errorf("it replied %q for marker %d", one, i+1)
		}
		if n == script.Replayed {
			ints = p.markReply(i, &m, ints)
		}
	}
	if more {
		return nil, fmt.Errorf("it replied more than %d markers", len(p.rules))
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

// An Answer is one rule's answer to a call. Its fields are those of a weir.Result, so package weir converts
// pointers to Results into pointers to Answers. A decision in memory thus writes the Result of the caller while
// it holds the lock: a processor waits if a struct is copied right after its fields were written.
type Answer struct {
	Allowed    bool          // the rule allows the request
	Replayed   bool          // only package weir uses it
	Granted    int64         // the tokens consumed from the rule
	Delay      time.Duration // if allowed, the time until the tokens are available; otherwise Never
	Rule       string        // Rule.Name
	Limit      int64
	Window     time.Duration
	Remaining  int64
	RetryAfter time.Duration
	ResetAfter time.Duration
	Degraded   error // only package weir uses it
	Shadow     error // only package weir uses it
}

// deny makes a a denial with this RetryAfter.
func (a *Answer) deny(retry time.Duration) {
	a.Allowed, a.Delay, a.RetryAfter = false, contract.Never, retry
}

// Answer returns the answer of rule i to the call c. o is the parsed reply of v.
func (p *Program) Answer(i int, v script.Verb, o *Outcome, c *Call) (out Answer) {
	r := &p.rules[i]
	a := contract.Ask{Cost: r.asked(v, o.N, c.Cost), Wait: min(c.Wait, p.maxWait)}
	if v.Forces() {
		a.Wait = 0
	}
	if o.Replayed() {
		return p.replayed(i, v, o, a)
	}
	granted := func(room int64) int64 {
		switch {
		case v.Forces() && r.Cost == 0:
			return o.N
		case v.Forces():
			return max(min(r.Cost, room+p.ownDebt), 0)
		case o.N > 0 && v != script.Peek:
			return a.Cost
		}
		return 0
	}
	switch {
	case r.step.raw != nil:
		a.Text, a.Renew = c.Text, v == script.Renew
		var s contract.State
		for j, value := range o.ints[r.at : r.at+r.ints] {
			s[j] = value.Int()
		}
		room := r.step.raw.Room(o.Now, s, a)
		out.Granted = granted(room)
		own := r.step.raw.Answer(o.Now, s, out.Granted, a)
		out.Rule, out.Limit, out.Window, out.Remaining, out.ResetAfter = r.Name, own.Limit, own.Window, own.Remaining, own.ResetAfter
		switch {
		case a.Cost > r.Limit.Capacity:
			out.deny(contract.Never)
		case room < a.Cost:
			out.deny(own.RetryAfter)
		default:
			out.Allowed = true
		}
	default:
		h := cellRun{step: &r.step, cell: cellOf(o.ints[r.at : r.at+r.ints])}
		h.used = h.cell != contract.Cell{} && r.step.meter.Ends(h.cell) > o.Now
		if !h.used {
			h.cell = contract.Cell{}
		}
		h.settle(o.Now, o.Now+a.Wait)
		if out.Granted = granted(h.room); out.Granted > 0 {
			h.take(out.Granted)
		}
		r.answerCell(&out, o.Now, h.cell, h.room, h.used && out.Granted == 0, a.Cost, a.Wait)
		if out.Granted > 0 {
			out.Remaining = min(max(r.step.meter.Room(o.Now, o.Now, h.next), 0), out.Limit)
			out.ResetAfter = contract.Micros(max(h.ends-o.Now, 0))
		}
	}
	if v.Forces() {
		out.Allowed, out.Delay, out.RetryAfter = true, 0, 0
	}
	return out
}

// asked returns the tokens that a call with this cost asks of r. n is Outcome.N.
func (r *rule) asked(v script.Verb, n, cost int64) int64 {
	switch {
	case r.Cost > 0:
		return r.Cost
	case v.TakesUpTo():
		return max(n, 1)
	}
	return cost
}

// replayed returns the answer of rule i to a repeated decision: the state now, and what the
// decision consumed earlier. If its tokens are not available within a.Wait, the answer is a
// denial.
func (p *Program) replayed(i int, v script.Verb, o *Outcome, a contract.Ask) (out Answer) {
	r := &p.rules[i]
	peek := Outcome{N: 1, Now: o.Now, ints: o.ints[:p.ints]}
	out = p.Answer(i, script.Peek, &peek, &Call{Cost: 1})
	out.Allowed, out.Delay, out.RetryAfter, out.Granted = true, 0, 0, o.N
	at := p.ints + 1 + i + r.at - 2 // see markReply
	n, meter := o.ints[at].Int(), r.step.meter
	if r.Cost > 0 {
		out.Granted = cmp.Or(n, r.Cost) // of a cell, a Force can have consumed less than the Cost
	}
	if n > 0 && r.step.kind.Reserves && !v.Forces() {
		before := meter.Take(cellOf(o.ints[at+1:at+1+r.ints]), -n)
		left := max(meter.Ready(o.Now, before, n, 0)-o.Now, 0)
		if out.Delay = contract.Micros(left); left > a.Wait {
			out.deny(contract.Micros(left - a.Wait))
			out.Granted = 0
		}
	}
	return out
}

// answerCell sets out, which is zero, to the answer of a rule that keeps a cell, before any tokens are consumed. c is
// the settled cell, and room is its Room at now plus wait. If used is true, the cell that was read is not zero
// and has not ended, and answerCell sets ResetAfter.
func (r *rule) answerCell(out *Answer, now int64, c contract.Cell, room int64, used bool, cost, wait int64) {
	m := r.step.meter
	out.Rule, out.Limit, out.Window = r.Name, r.Limit.Capacity, r.Limit.Window
	switch {
	case cost > r.Limit.Capacity:
		out.deny(contract.Never)
	case room >= cost:
		out.Allowed = true
		if wait > 0 {
			out.Delay = contract.Micros(max(m.Ready(now, c, cost, 0)-now, 0))
		}
	default:
		out.deny(contract.Micros(max(m.Ready(now, c, cost, wait)-now, 1)))
	}
	if wait > 0 {
		room = m.Room(now, now, c)
	}
	out.Remaining = min(max(room, 0), out.Limit)
	if used {
		out.ResetAfter = contract.Micros(max(m.Ends(c)-now, 0))
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
