// Package compose makes one atomic script of a list of rules: all rules are checked,
// then all consume, or none does. It reads, parses, writes and expires their state,
// in Lua and in Go alike, and keeps the markers of refunds. It is the only package
// that knows how a contract.Kind becomes a script.
//
//	compose.go  the rules, their arguments and scripts
//	source.go   a kind's Lua, parsed once
//	limit.go    what is wrong with a limit
//	lua.go      the text of a script
//	luacell.go  the Lua of a rule's state and of its marker
//	form.go     the Go form of a script
//	direct.go   the Go form of a plain decision, for the memory store
//	cell.go     the state of a rule whose algorithm is a Meter
//	answer.go   what a reply means
package compose

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// MaxRules is the most rules of one decision.
const MaxRules = 16

// clockSlack lengthens every TTL when the caller brings the time, because the key
// expires on the store's clock.
const clockSlack = time.Hour

// A Verb is what a script does.
type Verb uint8

// The verbs. Those with Mark keep a marker for each rule that can refund.
const (
	Consume Verb = iota
	ConsumeMark
	UpTo // consumes as many tokens as fit every rule, up to Call.Cost
	UpToMark
	Peek
	Renew   // consumes only from leases that are held
	Refund  // refunds by the markers, and deletes them; Call.Cost is 0, or at least what was consumed
	Release // ends leases
	Reset   // deletes every rule's keys, if none is foreign
	Entries // lists the metadata of one rule

	verbs = iota
)

var verbNames = [verbs]string{"", ".mark", ".upto", ".upto.mark", ".peek", ".renew", ".refund", ".release", ".reset", ".entries"}

func (v Verb) marks() bool    { return v == ConsumeMark || v == UpToMark }
func (v Verb) upTo() bool     { return v == UpTo || v == UpToMark }
func (v Verb) readOnly() bool { return v == Peek || v == Entries }
func (v Verb) decides() bool  { return v <= Renew }

// Markers reports whether the keys of the markers follow those of the rules.
func (v Verb) Markers() bool { return v.marks() || v == Refund }

// A Rule is one limit of a decision.
type Rule struct {
	Limit *contract.Limit
	Cost  int64 // of its own; 0 means the request's
}

// A Call is one request to a [Program].
type Call struct {
	Cost int64  // 1 or more
	Wait int64  // microseconds; cut to what every rule can reserve
	Now  int64  // 0 means the store's clock
	Text string // the name of a lease, or metadata
	Gen  int64  // of a verb with markers: from 1 to 2^53-1, another for each decision
}

// A Program is a list of rules, bound to their constants and to scripts. It is safe
// for concurrent use.
type Program struct {
	rules   []rule
	source  *source // the scripts' text, shared by programs of the same kinds
	consts  []store.Arg
	nkeys   int // of all rules, without markers
	ints    int // of a reply
	texts   bool
	direct  bool // every rule keeps a cell
	maxWait int64
	scripts [verbs]atomic.Pointer[store.Script]
}

// A rule is a Rule, bound.
type rule struct {
	Rule
	step   step
	key    int // its first key
	marker int // its marker's key, 0 for none
	arg    int // its first constant
	at     int // where its integers begin in a reply
	ints   int
}

// New binds rules. The error says what is wrong with a kind.
func New(rules []Rule) (*Program, error) {
	if len(rules) < 1 || len(rules) > MaxRules {
		return nil, fmt.Errorf("%d rules: there must be from 1 to %d", len(rules), MaxRules)
	}
	for i, r := range rules {
		if r.Limit == nil || r.Limit.Kind == nil {
			return nil, fmt.Errorf("limit %d is nil, or has no Kind: NewLimit must return a Limit with a Kind", i+1)
		}
	}
	src, err := sourceOf(rules)
	if err != nil {
		return nil, err
	}
	p := &Program{source: src, ints: 2, direct: true, maxWait: contract.MaxSpan}
	for i, r := range rules {
		l := r.Limit
		part := &src.parts[i]
		form, err := part.bind(l)
		if err != nil {
			return nil, fmt.Errorf("kind %s: %w", l.Kind.Name, err)
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
	}
	return p, nil
}

// Name names the kinds of the rules.
func (p *Program) Name() string { return p.source.name }

// Keys returns how many keys rule i has.
func (p *Program) Keys(i int) int { return p.source.parts[i].keys() }

// Marked reports whether rule i has a marker. The markers' keys follow those of all
// rules, in order, for the verbs that have markers.
func (p *Program) Marked(i int) bool { return p.rules[i].marker > 0 }

// Sets reports whether MGet cannot read every rule's state.
func (p *Program) Sets() bool { return p.source.sets }

// MaxWait is the longest wait that every rule can reserve, in microseconds.
func (p *Program) MaxWait() int64 { return p.maxWait }

// Limit returns the limit of rule i.
func (p *Program) Limit(i int) *contract.Limit { return p.rules[i].Limit }

// Script returns the script of a verb.
func (p *Program) Script(v Verb) *store.Script {
	if s := p.scripts[v].Load(); s != nil {
		return s
	}
	s := p.source.script(v).WithForm(p.form(v))
	p.scripts[v].CompareAndSwap(nil, s)
	return p.scripts[v].Load()
}

// AppendArgs appends the arguments of a verb's script: the rules' constants, the text
// if a rule has one, and then the cost, the wait, the time and the generation, of
// which the last are left out if they are 1, 0, 0 and not used.
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
	case v.Markers():
		n = 4
	case c.Now > 0:
		n = 3
	case wait > 0:
		n = 2
	case c.Cost != 1:
		n = 1
	}
	tail := [4]int64{min(c.Cost, contract.MaxTokens+1), wait, c.Now, c.Gen}
	for _, arg := range tail[:n] {
		args = append(args, store.IntArg(arg))
	}
	return args
}

var noText = store.StringArg("")

// tailArgs reads what follows the constants.
func (p *Program) tailArgs(args []store.Arg) (Call, error) {
	c := Call{Cost: 1}
	n := len(p.consts)
	if p.texts {
		n++
	}
	if len(args) < n || len(args) > n+4 {
		return c, fmt.Errorf("%s takes from %d to %d arguments, and got %d", p.Name(), n, n+4, len(args))
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
		}
	}
	return c, nil
}

// words splits a list of names.
func words(s string) []string { return strings.Fields(s) }

// Verbs returns the verbs that the kinds of the rules can do.
func (p *Program) Verbs() []Verb {
	leases, entries, marked := true, len(p.rules) == 1, true
	for i := range p.rules {
		leases = leases && p.Limit(i).Kind.Leases
		entries = entries && p.Limit(i).Kind.Entries
		marked = marked && p.Marked(i)
	}
	list := []Verb{Consume, UpTo, Peek, Reset}
	if marked {
		list = append(list, ConsumeMark, UpToMark, Refund)
	}
	if leases {
		list = append(list, Renew, Release)
	}
	if entries {
		list = append(list, Entries)
	}
	return list
}
