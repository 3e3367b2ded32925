// Package compose composes a list of rules into one program: the scripts of the rules, their
// arguments, and the answers in their replies. Package script writes the Lua of a script. This
// package has its Go form, which gives the same results.
//
//	compose.go  the rules, and the arguments of their scripts
//	limit.go    checks a limit
//	form.go     the Go form of a script
//	mark.go     the Go form for the markers of decisions, and of Refund
//	settle.go   the Go form of Settle
//	direct.go   the Go form of a plain decision, for the memory store
//	cell.go     the state of a rule whose algorithm is a Meter
//	share.go    the Go form of a part of a limit
//	answer.go   parses a reply, and returns the answers
package compose

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// MaxRules is the largest number of rules of one decision.
const MaxRules = script.MaxRules

// clockSlack is added to every TTL if the caller brings the time. The key expires on the
// store's clock, which can be ahead of the caller's clock.
const clockSlack = time.Hour

// A Rule is one limit of a decision.
type Rule struct {
	Name  string // Answer.Rule
	Limit *contract.Limit
	Cost  int64 // the tokens that each decision consumes from this limit; 0 means Call.Cost
	Share int64 // if above 1, the Capacity is that of one of so many shares: see share.go
}

// A Call is one request to a [Program].
type Call struct {
	Cost int64  // 1 or more
	Wait int64  // microseconds; cut to Program.MaxWait
	Now  int64  // 0 means the store's clock
	Text string // the name of a lease, or metadata
	Gen  int64  // for verbs that write markers: from 1 to 2^53-1, different for each decision

	// How many tokens a Force can consume beyond the limit of a rule, without and with a Cost.
	debt, ownDebt int64
}

// A Program holds a list of rules, their constants and their scripts. It is safe for
// concurrent use.
type Program struct {
	rules   []rule
	source  *script.Source // the text of the scripts; programs with the same kinds share it
	consts  []store.Arg
	ints    int // the integers of a reply
	texts   bool
	direct  bool // the state of every rule is a cell
	maxWait int64
	debt    int64 // the least MaxDebt of the rules without a Cost
	ownDebt int64 // the least MaxDebt of the rules with a Cost
	scripts [script.Entries + 1]atomic.Pointer[store.Script]
}

// A rule is a Rule of a Program, with the places of its keys, constants and integers.
type rule struct {
	Rule
	layout *script.Rule
	step   step
	key    int // the index of its first key
	arg    int // the index of its first constant
	at     int // the index of its first integer in a reply
	ints   int // the number of its integers in a reply
}

// New returns a Program with the rules. The error says which kind or limit is wrong.
func New(rules []Rule) (*Program, error) {
	if len(rules) < 1 || len(rules) > MaxRules {
		return nil, fmt.Errorf("%d rules: there must be from 1 to %d", len(rules), MaxRules)
	}
	kinds, own := make([]contract.Kind, len(rules)), make([]bool, len(rules))
	for i, r := range rules {
		if r.Limit == nil || r.Limit.Kind == nil || r.Limit.Kind.Common() == nil {
			return nil, fmt.Errorf("limit %d is nil, or has no Kind: NewLimit must return a Limit with a Kind", i+1)
		}
		kinds[i], own[i] = r.Limit.Kind, r.Cost > 0
	}
	src, err := script.Of(kinds, own)
	if err != nil {
		return nil, err
	}
	p := &Program{source: src, ints: 2, texts: src.Texts(), direct: true, maxWait: contract.MaxSpan, debt: contract.MaxTokens, ownDebt: contract.MaxTokens}
	keys := 0
	for i, r := range rules {
		l, layout := r.Limit, &src.Rules[i]
		form, err := newStep(layout, l)
		if err != nil {
			return nil, fmt.Errorf("kind %s: %w", layout.Head.Name, err)
		}
		if r.Share > 1 {
			form = shareOf(form, r.Share)
		}
		p.rules = append(p.rules, rule{Rule: r, layout: layout, step: form, key: keys, arg: len(p.consts), at: p.ints, ints: len(layout.Cell)})
		keys += layout.Keys()
		p.ints += len(layout.Cell)
		p.consts = append(p.consts, l.Args...)
		p.direct = p.direct && form.meter != nil
		p.maxWait = min(p.maxWait, l.MaxWait)
		if r.Cost > 0 {
			p.consts = append(p.consts, store.ConstArg(r.Cost))
			p.ownDebt = min(p.ownDebt, l.MaxDebt)
		} else {
			p.debt = min(p.debt, l.MaxDebt)
		}
	}
	return p, nil
}

// Name returns the names of the rules' kinds, joined by "+".
func (p *Program) Name() string { return p.source.Name }

// Keys returns the number of keys of rule i.
func (p *Program) Keys(i int) int { return p.source.Rules[i].Keys() }

// Marked reports whether rule i has a marker. If [script.Verb].Markers is true, the keys of the
// markers follow the keys of all rules, in the order of the rules.
func (p *Program) Marked(i int) bool { return p.source.Rules[i].Marker > 0 }

// Sets reports whether a rule keeps its state in a sorted set or a list, which MGet cannot
// read.
func (p *Program) Sets() bool { return p.source.Sets }

// MaxWait returns how far ahead every rule can reserve tokens, in microseconds.
func (p *Program) MaxWait() int64 { return p.maxWait }

// MaxDebt returns how many tokens a Force can consume beyond the limit of every rule without a
// Cost.
func (p *Program) MaxDebt() int64 { return p.debt }

// Limit returns the limit of rule i.
func (p *Program) Limit(i int) *contract.Limit { return p.rules[i].Limit }

// Script returns the script of v.
func (p *Program) Script(v script.Verb) *store.Script {
	if s := p.scripts[v].Load(); s != nil {
		return s
	}
	s := p.source.Script(v).WithForm(p.form(v))
	p.scripts[v].CompareAndSwap(nil, s)
	return p.scripts[v].Load()
}

// AppendArgs appends the arguments of the script of v:
//
//   - the constants of the rules;
//   - the text, if a rule uses one;
//   - the cost, the wait, the time and the generation. If v has no markers, the generation is
//     left out, and so are trailing defaults: a time of 0, a wait of 0 and a cost of 1. A Force
//     or a Settle has the largest debt in place of the wait, and all five arguments: the last one is the
//     largest debt of the rules with a Cost.
func (p *Program) AppendArgs(args []store.Arg, v script.Verb, c *Call) []store.Arg {
	args = append(args, p.consts...)
	if p.texts {
		if c.Text == "" {
			args = append(args, noText)
		} else {
			args = append(args, store.StringArg(c.Text))
		}
	}
	wait := min(c.Wait, p.maxWait)
	n := 0
	switch {
	case v.Debts():
		n, wait = 5, p.debt
	case v.Markers():
		n = 4
	case c.Now > 0:
		n = 3
	case wait > 0:
		n = 2
	case c.Cost != 1:
		n = 1
	}
	tail := [5]int64{min(c.Cost, contract.MaxTokens+1), wait, c.Now, c.Gen, p.ownDebt}
	for _, arg := range tail[:n] {
		args = append(args, store.IntArg(arg))
	}
	return args
}

var noText = store.StringArg("")

// tailArgs parses the arguments of v that follow the constants.
func (p *Program) tailArgs(v script.Verb, args []store.Arg) (Call, error) {
	c := Call{Cost: 1}
	n := len(p.consts)
	if p.texts {
		n++
	}
	least, most := n, n+4
	if v.Debts() {
		least, most = n+5, n+5
	}
	if len(args) < least || len(args) > most {
		return c, fmt.Errorf("%s%s takes from %d to %d arguments, and got %d", p.Name(), v.Suffix(), least, most, len(args))
	}
	if p.texts {
		c.Text = args[n-1].String()
	}
	for i, arg := range args[n:] {
		switch i {
		case 0:
			c.Cost = arg.Int()
		case 1:
			c.Wait = arg.Int()
		case 2:
			c.Now = arg.Int()
		case 3:
			c.Gen = arg.Int()
		case 4:
			c.ownDebt = arg.Int()
		}
	}
	return c, nil
}

// Verbs returns the verbs that the kinds of the rules support.
func (p *Program) Verbs() []script.Verb {
	leases, entries, marked := true, len(p.rules) == 1, true
	for i := range p.rules {
		leases = leases && p.source.Rules[i].Leases()
		entries = entries && p.source.Rules[i].Entries()
		marked = marked && p.Marked(i)
	}
	list := []script.Verb{script.Consume, script.UpTo, script.Peek, script.Reset}
	debt := min(p.debt, p.ownDebt) > 0
	if debt {
		list = append(list, script.Force)
	}
	if marked {
		list = append(list, script.ConsumeMark, script.UpToMark, script.Refund)
	}
	if marked && debt {
		list = append(list, script.ForceMark, script.Settle)
	}
	if leases {
		list = append(list, script.Renew, script.Release)
	}
	if entries {
		list = append(list, script.Entries)
	}
	return list
}
