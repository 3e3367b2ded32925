// Package compose composes a list of rules into one program: the scripts of the rules,
// their arguments, and the answers in their replies. Package script writes the Lua of a
// script. This package has its Go form, which gives the same results.
//
//	compose.go  the rules and their scripts
//	limit.go    checks a limit
//	args.go     the arguments of a script
//	reply.go    the integers of a reply
//	form.go     the Go form of a script
//	mark.go     the Go form for the markers of decisions, and of Refund
//	settle.go   the Go form of Settle
//	slots.go    a plain decision on the slots of a memory store
//	line.go     the same for one rule, in a straight line
//	cell.go     the state of a rule whose algorithm is a Meter
//	share.go    the Go form of a part of a limit
//	result.go   the results of the rules
//	shown.go    the rule that a result describes
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

// MaxUnits is the largest number of units that a decision can have amounts of.
const MaxUnits = 8

// A CostBy says whose cost a rule consumes.
type CostBy = script.CostBy

const (
	CostRequest = script.CostRequest
	CostOwn     = script.CostOwn
	CostNothing = script.CostNothing
	CostUnit    = script.CostUnit
)

// CostOf returns the CostBy of a rule of this kind. own is its Cost, and 0 if it has none.
// unit is true if it counts a unit.
func CostOf(kind contract.Kind, own int64, unit bool) CostBy {
	switch {
	case kind.Type() == contract.PauseRule:
		return CostNothing
	case unit:
		return CostUnit
	case own > 0:
		return CostOwn
	}
	return CostRequest
}

// A Rule is one limit of a decision.
type Rule struct {
	Name  string // Result.Rule
	Limit *contract.Limit
	Cost  int64 // the tokens that each decision consumes from this limit: see CostOf
	Unit  int   // if above 0, the index in Call.Amounts plus 1: a decision consumes that amount; if below, a Settle can name units
	Life  int64 // how long a marker lives, at least, in microseconds, if Unit is above 0, or beside a rule that holds leases
	Share int64 // if above 1, the limit is divided by it, as Limit.Capacity already is: see share.go
}

// A Call is one request to a [Program].
type Call struct {
	Cost int64  // 1 or more
	Wait int64  // microseconds; cut to Program.MaxWait; how long a Pause lasts
	Now  int64  // 0 means the store's clock
	Text string // the name of a lease or of a pause, or metadata
	Gen  int64  // for verbs that write markers: from 1 to 2^53-1, different for each decision

	// Amounts are the amounts of the units, from 0. For a Settle and a Refund, they and Cost
	// can be script.Unnamed. It can be nil for a Reset, and if no rule counts a unit.
	Amounts *Amounts

	// How many tokens a verb that Debts can consume beyond the limit of a rule, without
	// and with a Cost. Only arguments have them.
	debt, ownDebt int64
}

// Amounts are the amounts of a decision by unit.
type Amounts [MaxUnits]int64

// A Program holds a list of rules, their constants and their scripts. It is safe for
// concurrent use.
type Program struct {
	rules   []rule
	source  *script.Source // the text of the scripts; programs with the same kinds share it
	consts  []store.Arg
	fits    []store.Arg // FIT of each rule with a marker
	units   []unitArg   // the rules that count a unit
	debts   []store.Arg // the MaxDebt of each of these
	named   bool        // a Settle can name units
	layout  replyLayout
	cells   bool // the state of every rule is a cell, except rules that pause, of which there are fewer
	maxWait int64
	debt    int64 // the least MaxDebt of the rules with CostRequest
	ownDebt int64 // the least MaxDebt of the rules with CostOwn
	life    int64 // the longest Life of the rules
	scripts [script.Entries + 1]atomic.Pointer[store.Script]
}

// A rule is a Rule of a Program, with the places of its keys, constants and integers.
type rule struct {
	Rule
	layout *script.Rule
	step   step
	costBy CostBy
	key    int // the index of its first key
	arg    int // the index of its first constant
	ints   int // the number of its integers in a reply
	state  int // the index of the first of them
	spent  int // the index of what appendSpent appends

	follows    bool // it consumes the cost of the request, and no rule counts a unit
	unitNumber int  // if the rule counts a unit, which of these rules it is, from 0
}

func (r *rule) pauses() bool { return r.costBy == CostNothing }

// own reports whether the arguments of the rule have a Cost or an amount.
func (r *rule) own() bool { return r.costBy&(CostOwn&CostUnit) != 0 }

// A unitArg is the place of an amount: arg is the index in the arguments, and unit is
// Rule.Unit.
type unitArg struct{ arg, unit int }

// New returns a Program with the rules. The error says which kind or limit is wrong.
func New(rules []Rule) (*Program, error) {
	if len(rules) < 1 || len(rules) > MaxRules {
		return nil, fmt.Errorf("%d rules: there must be from 1 to %d", len(rules), MaxRules)
	}
	kinds, by, named, bills := make([]contract.Kind, len(rules)), make([]CostBy, len(rules)), false, false
	for i, r := range rules {
		if r.Limit == nil || r.Limit.Kind == nil || r.Limit.Kind.Common() == nil {
			return nil, fmt.Errorf("limit %d is nil, or has no Kind: NewLimit must return a Limit with a Kind", i+1)
		}
		kinds[i], by[i] = r.Limit.Kind, CostOf(r.Limit.Kind, r.Cost, r.Unit > 0)
		named, bills = named || r.Unit != 0, bills || r.Life > 0 && r.Limit.Kind.Type() == contract.LeaseRule
	}
	src, err := script.Of(kinds, by, named, bills)
	if err != nil {
		return nil, err
	}
	p := &Program{source: src, named: named, cells: true, maxWait: contract.MaxSpan, debt: contract.MaxTokens, ownDebt: contract.MaxTokens}
	keys, some := 0, false
	for i, r := range rules {
		l, layout := r.Limit, src.Rules[i]
		costBy := by[i]
		pauses := costBy == CostNothing
		form, err := newStep(layout, l)
		if err != nil {
			return nil, fmt.Errorf("kind %s: %w", layout.Head.Name, err)
		}
		if r.Share > 1 {
			form = shareOf(form, r.Share)
		}
		p.rules = append(p.rules, rule{Rule: r, layout: layout, step: form, costBy: costBy, key: keys, arg: len(p.consts), ints: len(layout.Cell)})
		keys += layout.Keys()
		p.consts = append(p.consts, l.Args...)
		p.cells, some = p.cells && (form.meter != nil || pauses), some || form.meter != nil
		if !pauses {
			p.maxWait = min(p.maxWait, l.MaxWait)
		}
		p.life = max(p.life, r.Life)
		switch costBy {
		case CostOwn:
			p.consts = append(p.consts, store.ConstArg(r.Cost))
			if !src.Bills || !layout.Leases() { // a Force skips the leases
				p.ownDebt = min(p.ownDebt, l.MaxDebt)
			}
		case CostRequest:
			p.debt = min(p.debt, l.MaxDebt)
		case CostUnit:
			p.rules[i].unitNumber = len(p.units)
			p.units = append(p.units, unitArg{len(p.consts), r.Unit})
			p.consts = append(p.consts, store.ConstArg(0))
			p.debts = append(p.debts, store.ConstArg(l.MaxDebt))
		}
	}
	for i := range p.rules {
		r := &p.rules[i]
		if p.Marked(i) {
			p.fits = append(p.fits, store.ConstArg(fitOf(r)))
		}
		r.follows = r.costBy == CostRequest && len(p.units) == 0
	}
	p.cells = p.cells && some
	p.layout = layReply(p.rules)
	return p, nil
}

// Name returns the names of the rules' kinds, joined by "+".
func (p *Program) Name() string { return p.source.Name }

// Keys returns the number of keys of rule i.
func (p *Program) Keys(i int) int { return p.source.Rules[i].Keys() }

// Marked reports whether rule i has a marker. If [script.Verb].Markers is true, the keys
// of the markers follow the keys of all rules, in the order of the rules.
func (p *Program) Marked(i int) bool { return p.source.Rules[i].Marker > 0 }

// Bills reports whether a decision with a lease has markers of the other rules.
func (p *Program) Bills() bool { return p.source.Bills }

// Sets reports whether a rule keeps its state in a sorted set or a list, which MGet
// cannot read.
func (p *Program) Sets() bool { return p.source.Sets }

// MaxWait returns how far ahead every rule can reserve tokens, in microseconds.
func (p *Program) MaxWait() int64 { return p.maxWait }

// MaxDebt returns how many tokens a Force can consume beyond the limit of every rule
// without a Cost.
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

// Verbs returns the verbs that the kinds of the rules support.
func (p *Program) Verbs() []script.Verb {
	leases, entries, marked, pauses := true, len(p.rules) == 1, true, true
	for i := range p.rules {
		leases = leases && p.source.Rules[i].Type == contract.LeaseRule
		entries = entries && p.source.Rules[i].Entries()
		marked = marked && (p.Marked(i) || p.rules[i].pauses() || p.Bills() && p.rules[i].layout.Leases())
		pauses = pauses && p.rules[i].pauses()
	}
	list := []script.Verb{script.Consume, script.UpTo, script.Peek, script.Reset}
	debt := min(p.debt, p.ownDebt) > 0
	for _, d := range p.debts {
		debt = debt && d.Int() > 0
	}
	if debt {
		list = append(list, script.Force)
	}
	if marked {
		list = append(list, script.ConsumeMark, script.UpToMark, script.Refund, script.Finish, script.FinishRefund)
	}
	if marked && debt {
		list = append(list, script.ForceMark, script.Settle)
	}
	if leases {
		list = append(list, script.Renew, script.Release)
	}
	if pauses {
		list = append(list, script.Pause, script.Resume)
	}
	if entries {
		list = append(list, script.Entries)
	}
	return list
}
