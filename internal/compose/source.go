package compose

import (
	"container/list"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// A source holds the text of the scripts of a list of kinds. All limits with these kinds
// share it.
type source struct {
	name    string
	parts   []part
	nkeys   int // the keys of all rules, without markers
	consts  int // the entries of ARGV before the text, cost, wait, time and generation
	sets    bool
	scripts [verbs]atomic.Pointer[store.Script] // without the Go form
}

// A part is one rule of a source: its kind, and the places of its keys and arguments.
type part struct {
	head     *contract.Head
	meter    *contract.MeterKind // nil if the rule has a Step
	step     *contract.StepKind  // nil if the rule has a Meter
	rule     int                 // from 1: the suffix of the rule's locals
	cell     []string            // the names of the integers of the cell, or of the State in a reply
	short    int                 // the number of integers of the cell that are always written
	note     []string
	locals   []string
	args     []string // the names of the constants; those of strings end in textMark
	key, arg int      // the indices of the first key and of the first constant
	own      bool     // the rule has a Cost, which follows its constants
	marker   int      // the index of the marker's key; 0 means none
	sections map[string]string
}

const textMark = ":text"

func (p *part) leases() bool  { return p.step != nil && p.step.Leases }
func (p *part) entries() bool { return p.step != nil && p.step.Entries }
func (p *part) texts() bool   { return p.leases() || p.entries() }

func (p *part) keys() int {
	if p.step == nil {
		return 1
	}
	return max(p.step.Keys, 1)
}

// full returns the number of integers of a value that has a generation and a note.
func (p *part) full() int { return len(p.cell) + 1 + len(p.note) }

// A sourceKey identifies a source in the cache.
type sourceKey struct {
	kinds [MaxRules]*contract.Head
	own   uint16 // bit i is set if rule i has a Cost
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
	src *source
}

// sourceOf returns the source of the rules, from the cache if it is there.
func sourceOf(rules []Rule) (*source, error) {
	var key sourceKey
	for i, r := range rules {
		key.kinds[i] = r.Limit.Kind.Common()
		if r.Cost > 0 {
			key.own |= 1 << i
		}
	}
	sources.Lock()
	defer sources.Unlock()
	if e, ok := sources.byKey[key]; ok {
		sources.recent.MoveToFront(e)
		return e.Value.(*cachedSource).src, nil
	}
	src, err := newSource(rules)
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

// maxLocals is the largest number of locals that the rules can need together. A Lua function
// has at most 200 locals. The frame needs 12, and the sections of one rule need some more.
const maxLocals = 176

func newSource(rules []Rule) (*source, error) {
	src, locals := &source{parts: make([]part, len(rules))}, 0
	names := make([]string, len(rules))
	for i, r := range rules {
		p := &src.parts[i]
		*p = part{head: r.Limit.Kind.Common(), rule: i + 1, key: src.nkeys, arg: src.consts, own: r.Cost > 0}
		if err := p.parse(r.Limit.Kind); err != nil {
			return nil, fmt.Errorf("kind %s: %w", p.head.Name, err)
		}
		names[i] = p.head.Name
		locals += 2 + len(p.cell) + len(p.locals)
		if p.meter != nil {
			locals += 3 + len(p.note)
		}
		src.nkeys += p.keys()
		src.consts += len(p.args)
		if p.own {
			src.consts++
		}
		src.sets = src.sets || p.step != nil && p.step.Sets
	}
	if locals > maxLocals {
		return nil, fmt.Errorf("%d rules of %s need %d locals in one Lua function: they must need at most %d, so use fewer rules",
			len(rules), strings.Join(names, ", "), locals, maxLocals)
	}
	src.name = strings.Join(names, "+")
	marker := src.nkeys
	for i := range src.parts {
		p := &src.parts[i]
		if _, marks := p.sections["mark"]; marks || p.meter != nil && p.sections["refund"] != "" {
			p.marker = marker
			marker++
		}
	}
	for i := range src.parts {
		if err := src.parts[i].fill(src); err != nil {
			return nil, fmt.Errorf("kind %s: %w", names[i], err)
		}
	}
	return src, nil
}

var (
	kindName = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	kindTag  = regexp.MustCompile(`^[a-z][0-9]$`)
	nameText = regexp.MustCompile(`^[a-z_]*[a-z_]$`)

	// reserved matches the names that package contract gives to sections, and the locals
	// of the frame.
	reserved = regexp.MustCompile(`^(room|ends|text|gen|gave|keep|mark|entries|renew|own|n|prev|tail|v|m|(was|t|b)_.*)$`)
)

// results are the names that a section must set.
var results = map[string][]string{
	"room": {"$room"}, "ends": {"$ends"}, "read": {"$room"}, "mark": {"$mark", "$ends"}, "refund": {"$gave"}, "entries": {"$entries"},
}

// meterSections and stepSections are the sections of a kind: first the required sections,
// then the optional sections.
var (
	meterSections = [2][]string{{"settle", "room", "take", "ends"}, {"refund"}}
	stepSections  = [2][]string{{"read", "write"}, {"entries", "mark", "refund"}}
)

// parse checks the kind k and splits its Lua into sections.
func (p *part) parse(k contract.Kind) error {
	h := p.head
	if !kindName.MatchString(h.Name) {
		return fmt.Errorf("its Name is %q: it must be lower-case letters and digits", h.Name)
	}
	if !kindTag.Match(h.Tag[:]) || isMark(h.Tag) {
		return fmt.Errorf("its Tag is %q: it must be a lower-case letter and a digit, and neither %s nor %s", h.Tag[:], markTag[:], settledTag[:])
	}
	cell, optional, bracketed := strings.Cut(h.Cell, "[")
	p.cell = words(cell)
	p.short = len(p.cell)
	if bracketed {
		p.cell = append(p.cell, words(strings.TrimSuffix(optional, "]"))...)
	}
	p.args = words(h.Args)
	most, sections := 4, meterSections
	switch k := k.(type) {
	case *contract.MeterKind:
		p.meter, p.note = k, words(k.Note)
	case *contract.StepKind:
		p.step, p.locals = k, words(k.Locals)
		most, sections = contract.MaxState, stepSections
	}
	switch {
	case (p.meter == nil || p.meter.Meter == nil) && (p.step == nil || p.step.Step == nil):
		return fmt.Errorf("it is a %T without a Meter or a Step: it must be a *contract.MeterKind with a Meter, or a *contract.StepKind with a Step", k)
	case len(p.cell) < 1 || len(p.cell) > most || p.short < 1:
		return fmt.Errorf("its Cell is %q: it must name from 1 to %d integers", h.Cell, most)
	case p.meter != nil && p.markInts() > store.MaxNums:
		return fmt.Errorf("its Cell names %d integers and its Note is %q: if Note is not empty, Cell must name at most 3", len(p.cell), p.meter.Note)
	case len(p.note) > 3 || len(p.args) > contract.MaxArgs || p.step != nil && (p.step.Keys < 0 || p.step.Keys > contract.MaxKeys):
		return fmt.Errorf("it must have at most 3 names in Note, %d in Args, and from 0 to %d Keys", contract.MaxArgs, contract.MaxKeys)
	}
	if err := p.checkNames(); err != nil {
		return err
	}
	if err := p.split(sections); err != nil {
		return err
	}
	_, listed := p.sections["entries"]
	_, marks := p.sections["mark"]
	_, refunds := p.sections["refund"]
	switch {
	case p.entries() != listed:
		return fmt.Errorf("its Entries is %t: it must be true if Lua has a section \"entries\", and only then", p.entries())
	case (marks || p.leases()) && !refunds:
		return fmt.Errorf("its Lua must have a section \"refund\", because it has a section \"mark\" or Leases is true")
	}
	return nil
}

// checkNames checks the names that the kind gives to integers, constants and variables.
func (p *part) checkNames() error {
	seen := map[string]bool{}
	for i, name := range slices.Concat(p.args, p.cell, p.note, p.locals) {
		if i < len(p.args) {
			name = strings.TrimSuffix(name, textMark)
		}
		if !nameText.MatchString(name) || reserved.MatchString(name) || seen[name] {
			return fmt.Errorf("the name %q of Cell, Note, Locals or Args is not valid: names are lower-case letters and underscores, each is used once, and none is a name that sections are given", name)
		}
		seen[name] = true
	}
	return nil
}

// split splits the Lua into sections. sections[0] are required, and sections[1] are optional.
// It leaves out all lines that begin with "--".
func (p *part) split(sections [2][]string) error {
	p.sections = map[string]string{}
	section := ""
	for line := range strings.Lines(p.head.Lua) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "-- "); ok && slices.Contains(slices.Concat(sections[0], sections[1]), name) {
			if _, twice := p.sections[name]; twice {
				return fmt.Errorf("its Lua has two lines \"-- %s\": each section begins with one such line", name)
			}
			section = name
			p.sections[section] = "\n"
			continue
		}
		if section != "" && line != "" && !strings.HasPrefix(line, "--") {
			p.sections[section] += line + "\n"
		}
	}
	for _, name := range sections[0] {
		if strings.TrimSpace(p.sections[name]) == "" {
			return fmt.Errorf("its Lua has no section %q: it begins with the line \"-- %s\"", name, name)
		}
	}
	for name, text := range p.sections {
		for _, result := range results[name] {
			if (p.step != nil || name != "refund") && !strings.Contains(text, result) {
				return fmt.Errorf("section %q does not set %s: it must set it", name, result)
			}
		}
	}
	return nil
}

// fill replaces each $name in the sections by the Lua for it.
func (p *part) fill(src *source) error {
	own := strconv.Itoa(p.rule)
	names := map[string]string{"room": "room", "ends": "ends", "gave": "gave", "mark": "mark", "entries": "entries", "n": "n"}
	for _, name := range slices.Concat(p.cell, p.note, p.locals) {
		names[name] = name + own
	}
	if p.meter != nil {
		for _, name := range p.cell {
			names["was_"+name] = "was_" + name
		}
		names["was_moved"] = "was_moved"
	} else {
		for i := range 3 {
			names["was"+strconv.Itoa(i+1)] = fmt.Sprintf("was[%d]", markHead+1+i)
		}
		names["gen"], names["renew"], names["keep"], names["text"] = "gen", "renew", "keep", fmt.Sprintf("ARGV[%d]", src.consts+1)
		for i := range p.keys() {
			names["key"+strconv.Itoa(i+1)] = luaKey(p.key + i)
			names["foreign"+strconv.Itoa(i+1)] = foreign(p.key + i)
		}
	}
	for i, name := range p.args {
		if text, ok := strings.CutSuffix(name, textMark); ok {
			names[text] = fmt.Sprintf("ARGV[%d]", p.arg+i+1)
		} else {
			names[name] = luaConst(p.arg + i)
		}
	}
	for section, text := range p.sections {
		var out strings.Builder
		for {
			before, after, found := strings.Cut(text, "$")
			out.WriteString(before)
			if !found {
				break
			}
			end := 0
			for end < len(after) && (after[end] == '_' || 'a' <= after[end] && after[end] <= 'z' || '0' <= after[end] && after[end] <= '9') {
				end++
			}
			name := after[:end]
			with, ok := names[name]
			switch {
			case end == 0:
				with = "$" // the end of a Lua pattern
			case !ok:
				return fmt.Errorf("section %s uses $%s: it must be a name of Cell, Note, Locals or Args, or a name that sections are given", section, name)
			}
			out.WriteString(with)
			text = after[end:]
		}
		p.sections[section] = out.String()
	}
	return nil
}

func luaKey(i int) string { return fmt.Sprintf("KEYS[%d]", i+1) }

// foreign returns Lua for the reply that says that the value of the key with index i is
// foreign.
func foreign(i int) string { return fmt.Sprintf("redis.error_reply('WEIRFOREIGN %d')", i+1) }
