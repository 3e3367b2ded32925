// Package script turns the kinds of a list of rules into the Lua of one atomic script.
// The script checks all rules first. If all rules allow the request, each consumes its
// tokens. Otherwise no rule does. The script reads, parses and writes the state of the
// rules, sets TTLs, and keeps markers for refunds. Package compose does the same in Go.
//
//	source.go  the kinds of the rules, and the places of their keys and arguments
//	layout.go  the verbs, and the layout of arguments, replies and markers
//	parse.go   checks a kind, and parses its Lua
//	lua.go     the text of a script
//	cell.go    the Lua for the state of a rule
//	mark.go    the Lua for the markers of decisions, and of Refund
//	settle.go  the Lua of Settle
package script

import (
	"container/list"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// MaxRules is the largest number of rules of one decision.
const MaxRules = 16

// A Source holds the text of the scripts of a list of kinds. All limits with these kinds
// share it.
type Source struct {
	Name    string // the names of the kinds, joined by "+"
	Rules   []*Rule
	Keys    int  // the keys of all rules, without markers
	Sets    bool // a rule keeps its state in a sorted set or a list
	Texts   bool // a rule uses the text of a decision
	Bills   bool // a rule holds leases, and decisions of the others have markers: a repeat is free, and Finish ends both
	consts  int  // the entries of ARGV before the text and the shared arguments
	markers int  // the number of rules with a marker
	units   int  // the number of rules with CostUnit
	named   bool // a Settle can name units, even if no rule counts one
	scripts [verbs]atomic.Pointer[store.Script]
}

// A Rule is one rule of a [Source]: its kind, and the places of its keys and arguments.
type Rule struct {
	Head   *contract.Head
	Type   contract.RuleType   // a decision only reads a PauseRule
	Meter  *contract.MeterKind // nil if the rule has a Step
	Step   *contract.StepKind  // nil if the rule has a Meter
	Cell   []string            // the names of the integers of the cell, or of the State in a reply
	Short  int                 // the number of integers of the cell that are always written
	Note   []string            // the names of the integers of the note
	Args   []string            // the names of the constants; those of strings end in TextMark
	Bound  []int               // the indices of the constants that must be those of the decision, for a refund
	Marker int                 // the index of the marker's key; 0 means none

	number   int // from 1: the suffix of the rule's locals
	locals   []string
	key, arg int  // the indices of the first key and of the first constant
	own      bool // the rule has a Cost or a unit: its tokens follow its constants
	unit     int  // if the rule counts a unit, from 1: which of these rules it is
	sections map[string]string
}

// A CostBy says whose cost a rule consumes.
type CostBy uint8

const (
	CostRequest CostBy = iota // Request.Cost
	CostOwn                   // Rule.Cost
	CostNothing               // no cost: the rule pauses keys
	CostUnit                  // the amount in Request.Costs of the unit that the rule counts; with CostOwn, its only odd number
)

// TextMark ends the names of constants that are strings.
const TextMark = ":text"

// Entries reports whether the rule keeps metadata.
func (r *Rule) Entries() bool { return r.Step != nil && r.Step.Entries }

// Refunds reports whether the Lua of the rule has a refund section.
func (r *Rule) Refunds() bool { return r.sections["refund"] != "" }

// HasText reports whether the script of v takes the text of a call.
func (s *Source) HasText(v Verb) bool { return s.Texts || v == Pause || v == Resume }

// Leases reports whether the rule holds leases.
func (r *Rule) Leases() bool { return r.Type == contract.LeaseRule }

// lives reports whether new markers of the rule have an END after the decision.
func (s *Source) lives(r *Rule) bool { return r.unit > 0 || s.Bills }

// Keys returns the number of keys of the rule, without its marker.
func (r *Rule) Keys() int {
	if r.Step == nil {
		return 1
	}
	return max(r.Step.Keys, 1)
}

// Full returns the number of integers of a value that has a generation and a note.
func (r *Rule) Full() int { return len(r.Cell) + 1 + len(r.Note) }

// A sourceKey identifies a Source in the cache.
type sourceKey struct {
	kinds [MaxRules]*contract.Head
	by    [MaxRules]CostBy
	named bool
	bills bool
}

// maxSources is the largest number of sources in the cache.
const maxSources = 256

// sources is a cache of the most recently used sources.
var sources = struct {
	sync.Mutex
	byKey  map[sourceKey]*list.Element
	recent list.List // of *cachedSource, the most recent first
}{byKey: map[sourceKey]*list.Element{}}

type cachedSource struct {
	key sourceKey
	src *Source
}

// Of returns the Source of rules with these kinds, at most [MaxRules], from the cache if
// it is there. by has the CostBy of each. If named is true, a Settle can name units. If
// bills is true, and rules with and without leases are there, [Source].Bills is true. The
// error says which kind is wrong.
func Of(kinds []contract.Kind, by []CostBy, named, bills bool) (*Source, error) {
	key := sourceKey{named: named, bills: bills}
	for i, k := range kinds {
		key.kinds[i], key.by[i] = k.Common(), by[i]
	}
	sources.Lock()
	defer sources.Unlock()
	if e, ok := sources.byKey[key]; ok {
		sources.recent.MoveToFront(e)
		return e.Value.(*cachedSource).src, nil
	}
	src, err := newSource(kinds, by, named, bills)
	if err != nil {
		return nil, err
	}
	sources.byKey[key] = sources.recent.PushFront(&cachedSource{key, src})
	if len(sources.byKey) > maxSources {
		last := sources.recent.Remove(sources.recent.Back()).(*cachedSource)
		delete(sources.byKey, last.key)
	}
	return src, nil
}

// maxLocals is the largest number of locals that the rules can need together. A Lua
// function has at most 200 locals. The frame needs 12, and the sections of one rule need
// some more.
const maxLocals = 176

func newSource(kinds []contract.Kind, by []CostBy, named, bills bool) (*Source, error) {
	src, locals, leases := &Source{named: named}, 0, false
	names := make([]string, len(kinds))
	for i, k := range kinds {
		r := &Rule{Head: k.Common(), Type: k.Type(), number: i + 1, key: src.Keys, arg: src.consts, own: by[i] == CostOwn || by[i] == CostUnit}
		if by[i] == CostUnit {
			src.units++
			r.unit = src.units
		}
		src.Rules = append(src.Rules, r)
		if err := r.parse(k); err != nil {
			return nil, fmt.Errorf("kind %s: %w", r.Head.Name, err)
		}
		names[i] = r.Head.Name
		locals += 2 + len(r.Cell) + len(r.locals)
		if r.Meter != nil {
			locals += 3 + len(r.Note)
		}
		src.Keys += r.Keys()
		src.consts += len(r.Args)
		if r.own {
			src.consts++
		}
		src.Sets = src.Sets || r.Step != nil && r.Step.Sets
		leases = leases || r.Type == contract.LeaseRule
		src.Texts = src.Texts || leases || r.Entries()
	}
	if locals > maxLocals {
		return nil, fmt.Errorf("%d rules of %s need %d locals in one Lua function: they must need at most %d, so use fewer rules",
			len(kinds), strings.Join(names, ", "), locals, maxLocals)
	}
	src.Name = strings.Join(names, "+")
	for _, r := range src.Rules {
		if _, marks := r.sections["mark"]; !r.Leases() && (marks || r.Meter != nil && r.Refunds()) {
			r.Marker = src.Keys + src.markers
			src.markers++
		}
	}
	src.Bills = bills && leases && src.markers > 0
	for _, r := range src.Rules {
		if err := r.fill(src); err != nil {
			return nil, fmt.Errorf("kind %s: %w", r.Head.Name, err)
		}
	}
	return src, nil
}
