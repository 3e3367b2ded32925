// Package compose composes a list of rules into one atomic script. The script checks all
// rules first. If all rules allow the request, each consumes its tokens. Otherwise no rule
// does. The script reads, parses and writes the state of the rules, sets TTLs, and keeps
// markers for refunds. It does this in Lua and in Go with the same results. Only this
// package turns a contract.Kind into a script.
//
//	compose.go  the rules, their arguments and their scripts
//	source.go   parses the Lua of a kind
//	limit.go    checks a limit
//	lua.go      the text of a script
//	luacell.go  the Lua for the state of a rule
//	luamark.go  the Lua for the markers of decisions, and of Refund
//	luaset.go   the Lua of Settle
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
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// MaxRules is the largest number of rules of one decision.
const MaxRules = 16

// clockSlack is added to every TTL if the caller brings the time. The key expires on the
// store's clock, which can be ahead of the caller's clock.
const clockSlack = time.Hour

// A Verb is what a script does.
type Verb uint8

// The verbs. ConsumeMark, UpToMark and ForceMark also write a marker for each rule whose tokens
// can be refunded.
const (
	Consume Verb = iota
	ConsumeMark
	UpTo // consumes as many tokens as every rule allows, at most Call.Cost
	UpToMark
	Force // consumes past the limits, up to Program.MaxDebt
	ForceMark
	Peek
	Renew   // renews leases that are held, and acquires none
	Refund  // refunds the decision of the markers, and deletes them; Call.Cost is 0, or as high as the decision's
	Settle  // makes Call.Cost, which can be 0, the cost of the decision of the markers
	Release // releases leases
	Reset   // deletes the keys of every rule, if no value is foreign
	Entries // lists the metadata of one rule

	verbs = iota
)

var verbNames = [verbs]string{"", ".mark", ".upto", ".upto.mark", ".force", ".force.mark", ".peek", ".renew", ".refund", ".settle", ".release", ".reset", ".entries"}

func (v Verb) marks() bool    { return v == ConsumeMark || v == UpToMark || v == ForceMark }
func (v Verb) upTo() bool     { return v == UpTo || v == UpToMark }
func (v Verb) forces() bool   { return v == Force || v == ForceMark }
func (v Verb) debts() bool    { return v.forces() || v == Settle }
func (v Verb) readOnly() bool { return v == Peek || v == Entries }
func (v Verb) decides() bool  { return v <= Renew }

// Markers reports whether the script takes the keys of the markers, which follow the keys of
// the rules.
func (v Verb) Markers() bool { return v.marks() || v == Refund || v == Settle }

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
	source  *source // the text of the scripts; programs with the same kinds share it
	consts  []store.Arg
	nkeys   int // the keys of all rules, without markers
	ints    int // the integers of a reply
	texts   bool
	direct  bool // the state of every rule is a cell
	maxWait int64
	debt    int64 // the least MaxDebt of the rules without a Cost
	ownDebt int64 // the least MaxDebt of the rules with a Cost
	scripts [verbs]atomic.Pointer[store.Script]
}

// A rule is a Rule of a Program, with the places of its keys, constants and integers.
type rule struct {
	Rule
	step   step
	key    int // the index of its first key
	marker int // the index of its marker's key; 0 means none
	arg    int // the index of its first constant
	at     int // the index of its first integer in a reply
	ints   int // the number of its integers in a reply
}

// New returns a Program with the rules. The error says which kind or limit is wrong.
func New(rules []Rule) (*Program, error) {
	if len(rules) < 1 || len(rules) > MaxRules {
		return nil, fmt.Errorf("%d rules: there must be from 1 to %d", len(rules), MaxRules)
	}
	for i, r := range rules {
		if r.Limit == nil || r.Limit.Kind == nil || r.Limit.Kind.Common() == nil {
			return nil, fmt.Errorf("limit %d is nil, or has no Kind: NewLimit must return a Limit with a Kind", i+1)
		}
	}
	src, err := sourceOf(rules)
	if err != nil {
		return nil, err
	}
	p := &Program{source: src, ints: 2, direct: true, maxWait: contract.MaxSpan, debt: contract.MaxTokens, ownDebt: contract.MaxTokens}
	for i, r := range rules {
		l := r.Limit
		part := &src.parts[i]
		form, err := part.bind(l)
		if err != nil {
			return nil, fmt.Errorf("kind %s: %w", part.head.Name, err)
		}
		if r.Share > 1 {
			form = shareOf(form, r.Share)
		}
		p.rules = append(p.rules, rule{
			Rule: r, step: form, key: p.nkeys, marker: part.marker,
			arg: len(p.consts), at: p.ints, ints: len(part.cell),
		})
		p.nkeys += part.keys()
		p.ints += len(part.cell)
		p.consts = append(p.consts, l.Args...)
		if r.Cost > 0 {
			p.consts = append(p.consts, store.ConstArg(r.Cost))
		}
		p.texts = p.texts || part.texts()
		p.direct = p.direct && form.meter != nil
		p.maxWait = min(p.maxWait, l.MaxWait)
		if r.Cost > 0 {
			p.ownDebt = min(p.ownDebt, l.MaxDebt)
		} else {
			p.debt = min(p.debt, l.MaxDebt)
		}
	}
	return p, nil
}

// Name returns the names of the rules' kinds, joined by "+".
func (p *Program) Name() string { return p.source.name }

// Keys returns the number of keys of rule i.
func (p *Program) Keys(i int) int { return p.source.parts[i].keys() }

// Marked reports whether rule i has a marker. If Verb.Markers is true, the keys of the
// markers follow the keys of all rules, in the order of the rules.
func (p *Program) Marked(i int) bool { return p.rules[i].marker > 0 }

// Sets reports whether a rule keeps its state in a sorted set or a list, which MGet cannot
// read.
func (p *Program) Sets() bool { return p.source.sets }

// MaxWait returns how far ahead every rule can reserve tokens, in microseconds.
func (p *Program) MaxWait() int64 { return p.maxWait }

// MaxDebt returns how many tokens a Force can consume beyond the limit of every rule without a
// Cost.
func (p *Program) MaxDebt() int64 { return p.debt }

// Limit returns the limit of rule i.
func (p *Program) Limit(i int) *contract.Limit { return p.rules[i].Limit }

// Script returns the script of v.
func (p *Program) Script(v Verb) *store.Script {
	if s := p.scripts[v].Load(); s != nil {
		return s
	}
	s := p.source.script(v).WithForm(p.form(v))
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
func (p *Program) AppendArgs(args []store.Arg, v Verb, c *Call) []store.Arg {
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
	case v.debts():
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
func (p *Program) tailArgs(v Verb, args []store.Arg) (Call, error) {
	c := Call{Cost: 1}
	n := len(p.consts)
	if p.texts {
		n++
	}
	least, most := n, n+4
	if v.debts() {
		least, most = n+5, n+5
	}
	if len(args) < least || len(args) > most {
		return c, fmt.Errorf("%s%s takes from %d to %d arguments, and got %d", p.Name(), verbNames[v], least, most, len(args))
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

// words splits a list of names at spaces.
func words(s string) []string { return strings.Fields(s) }

// Verbs returns the verbs that the kinds of the rules support.
func (p *Program) Verbs() []Verb {
	leases, entries, marked := true, len(p.rules) == 1, true
	for i := range p.rules {
		leases = leases && p.source.parts[i].leases()
		entries = entries && p.source.parts[i].entries()
		marked = marked && p.Marked(i)
	}
	list := []Verb{Consume, UpTo, Peek, Reset}
	debt := min(p.debt, p.ownDebt) > 0
	if debt {
		list = append(list, Force)
	}
	if marked {
		list = append(list, ConsumeMark, UpToMark, Refund)
	}
	if marked && debt {
		list = append(list, ForceMark, Settle)
	}
	if leases {
		list = append(list, Renew, Release)
	}
	if entries {
		list = append(list, Entries)
	}
	return list
}
