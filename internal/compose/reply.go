package compose

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// A replyLayout tells where the integers of a reply are. A Go form replies with these:
//
//   - at replyHead, 1 if the request is allowed, and 0 otherwise. For UpTo and Force it
//     is the number of tokens consumed. For Refund and Release it is 1 if anything was
//     refunded or released, and for Refund it can be script.TooLittle. For Settle, Finish
//     and FinishRefund it is 1 if the decision was found.
//   - at replyTime, the time of the decision.
//   - if the verb Adjusts, at replyState, the new cost of the decision, and then the rules
//     that keep another cost: bit i stands for rule i. If the verb Finishes, 1 follows if
//     a lease was held, and otherwise 0. If units can be named, outcome.costs follow.
//   - if the verb decides, at rule.state of each rule, the integers of its state before
//     the decision.
//   - if the verb marks, at code, a code: 0, script.Replayed or script.OtherCost, to which
//     the number of a rule can be added. The head is then TOTAL or ASKED of the markers.
//   - after script.Replayed, at rule.spent of each rule, the integers of appendSpent.
//
// A server replies with one string, "HEAD;SEC USEC;value;value…", with the earlier value
// of each rule's key. A repeated decision adds ";CODE" and the values of the markers. To
// a verb that Adjusts, it replies "HEAD;SEC USEC;COST KEPT", and what follows after spaces.
type replyLayout struct {
	code int // the number of integers before the code
	all  int // the number of all integers
}

const (
	replyHead = iota
	replyTime
	replyState
)

// layReply sets the indices of the integers of rules in a reply.
func layReply(rules []rule) (l replyLayout) {
	l.code = replyState
	for i := range rules {
		rules[i].state = l.code
		l.code += rules[i].ints
	}
	l.all = l.code + 1
	for i := range rules {
		rules[i].spent = l.all
		l.all += 2 + rules[i].ints
	}
	return l
}

// MaxReply returns the largest number of integers of a reply.
func (p *Program) MaxReply() int { return p.layout.all }

// A Reply is a parsed reply of a script. Allowed and Granted go into the weir.Result,
// except that an allowed Consume has Granted 0 and consumes the cost of the call.
type Reply struct {
	Now       int64 // the time of the decision
	Allowed   bool
	Granted   int64 // tokens; for a repeated decision, those that the earlier one consumed; if the verb Adjusts, the cost of the decision now
	Kept      int64 // if the verb Adjusts, the rules that keep another cost: bit i stands for rule i
	Replayed  bool  // the request repeats an earlier decision, with the same ID: it consumed nothing
	OtherCost bool  // the ID names an earlier decision with another cost, Asked
	TooLittle bool  // Call.Cost of a Refund is less than the tokens that the decision consumed
	Freed     bool  // if the verb Finishes, a lease was held
	Asked     int64
	Other     int // with OtherCost, the number of the rule whose unit has another amount, from 1, or 0

	ints  []store.Value // the integers of the reply
	costs int           // the index of outcome.costs in ints
}

// Cost returns what the decision that a Refund or a Settle has adjusted costs in rule i, if
// units can be named. ok is false if the rule had no marker.
func (o *Reply) Cost(i int) (n int64, ok bool) {
	n = o.ints[o.costs+i].Int()
	return max(n-1, 0), n > 0
}

// Head returns the first integer of the reply, as the script made it.
func (o *Reply) Head() int64 { return o.ints[replyHead].Int() }

// Parse parses the reply of the script of v. It stores the integers in the memory of
// flat. The error is a [store.ErrScript].
func (p *Program) Parse(v script.Verb, reply, flat []store.Value) (Reply, error) {
	want, costs := replyState, 0
	switch {
	case v.Decides():
		want = p.layout.code
	case v.Adjusts():
		if want += 2; v.Finishes() {
			want++
		}
		if costs = want; p.named {
			want += len(p.rules)
		}
	}
	if len(reply) == 1 && reply[0].Kind() == store.Bulk {
		var err error
		if reply, err = p.parseText(v, reply[0].Str(), flat[:0]); err != nil {
			return Reply{}, fmt.Errorf("%w: %s%s: %w", store.ErrScript, p.Name(), v.Suffix(), err)
		}
	}
	code := int64(0)
	if v.Marks() {
		if want++; len(reply) >= want {
			if code = reply[p.layout.code].Int(); code == script.Replayed {
				want = p.layout.all
			}
		}
	}
	if len(reply) != want {
		return Reply{}, fmt.Errorf("%w: %s%s replied %d values, not %d", store.ErrScript, p.Name(), v.Suffix(), len(reply), want)
	}
	for i := range reply {
		if n := &reply[i]; n.Kind() != store.Integer || uint64(n.Int()) > 1<<53 {
			return Reply{}, fmt.Errorf("%w: value %d of what %s%s replied is not an integer from 0 to 2^53", store.ErrScript, i, p.Name(), v.Suffix())
		}
	}
	n, many := reply[replyHead].Int(), true
	o := Reply{Now: reply[replyTime].Int(), Allowed: n > 0, ints: reply, costs: costs}
	switch {
	case code == script.Replayed:
		o.Replayed, o.Granted = true, n
	case code >= script.OtherCost:
		o.OtherCost, o.Asked, o.Other = true, n, int(code-script.OtherCost)
	case v.Forces():
		o.Allowed, o.Granted = true, n
	case v.TakesUpTo():
		o.Granted = n
	default:
		if many = v == script.Refund && n == script.TooLittle; many {
			o.Allowed, o.TooLittle = false, true
		}
		if v.Adjusts() {
			o.Granted, o.Kept = reply[replyState].Int(), reply[replyState+1].Int()
		}
		o.Freed = v.Finishes() && reply[replyState+2].Int() > 0
	}
	if o.Now < 1 || o.Now >= contract.MaxSpan || n > 1 && !many || code > p.maxCode() || o.Kept>>len(p.rules) > 0 {
		return Reply{}, fmt.Errorf("%w: %s%s replied %d at %d", store.ErrScript, p.Name(), v.Suffix(), n, o.Now)
	}
	return o, nil
}

// maxCode returns the largest code in a reply.
func (p *Program) maxCode() int64 {
	if len(p.units) == 0 {
		return script.OtherCost
	}
	return script.OtherCost + int64(len(p.rules))
}

// parseText parses the reply of a server, and appends its integers to ints.
func (p *Program) parseText(v script.Verb, text string, ints []store.Value) ([]store.Value, error) {
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
	if v.Adjusts() {
		for one := range strings.SplitSeq(rest, " ") {
			n, err := strconv.ParseInt(one, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("it replied %q", text)
			}
			ints = append(ints, store.IntegerValue(n))
		}
		return ints, nil
	}
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

// parseMarks appends the code to ints, and what appendSpent appends of each marker. text
// is empty if the decision is not repeated. Otherwise it has the code and the texts of
// the markers.
func (p *Program) parseMarks(text string, more bool, ints []store.Value) ([]store.Value, error) {
	if !more {
		return append(ints, store.IntegerValue(0)), nil
	}
	code, rest, more := strings.Cut(text, ";")
	n, err := strconv.ParseInt(code, 10, 8)
	ints = append(ints, store.IntegerValue(n))
	if err != nil || n < script.Replayed || n > p.maxCode() {
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
			ints = p.appendSpent(i, &m, ints)
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
