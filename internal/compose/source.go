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

// A source is the text of the scripts of a list of kinds, whatever the limits.
type source struct {
	name    string
	parts   []part
	nkeys   int // of all rules, without markers
	consts  int // ARGV entries before the text, cost, wait, time and generation
	sets    bool
	scripts [verbs]atomic.Pointer[store.Script] // without Go form
}

// A part is one rule of a source: its kind, and where its keys and arguments are.
type part struct {
	kind     *contract.Kind
	rule     int      // counted from 1: the suffix of its locals
	cell     []string // names of the integers that a reply carries
	short    int      // how many of them are always written
	note     []string
	locals   []string
	args     []string // names of the constants, a text's with its mark
	key, arg int      // the first key and constant, counted from 0
	own      bool     // has a cost of its own, which follows its constants
	marker   int      // the key of its marker, counted from 0; 0 means none
	sections map[string]string
}

const textMark = ":text"

func (p *part) keys() int { return max(p.kind.Keys, 1) }

func (p *part) texts() bool { return p.kind.Leases || p.kind.Entries }

// full is how many integers a value has with a generation and a note.
func (p *part) full() int { return len(p.cell) + 1 + len(p.note) }

// A sourceKey is what a source depends on.
type sourceKey struct {
	kinds [MaxRules]*contract.Kind
	own   uint16 // a bit for each rule that has a cost of its own
}

// maxSources bounds the cache of sources.
const maxSources = 256

// sources are the sources used most recently.
var sources = struct {
	sync.Mutex
	byKey  map[sourceKey]*list.Element
	recent list.List // of *cachedSource, the most recent first
}{byKey: map[sourceKey]*list.Element{}}

type cachedSource struct {
	key sourceKey
	src *source
}

// sourceOf returns the source of rules.
func sourceOf(rules []Rule) (*source, error) {
	var key sourceKey
	for i, r := range rules {
		key.kinds[i] = r.Limit.Kind
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

// maxLocals is the most locals that rules can need: a Lua function has 200, of which the frame
// takes 12 and the sections of one rule take some.
const maxLocals = 176

func newSource(rules []Rule) (*source, error) {
	src, locals := &source{parts: make([]part, len(rules))}, 0
	names := make([]string, len(rules))
	for i, r := range rules {
		p := &src.parts[i]
		*p = part{kind: r.Limit.Kind, rule: i + 1, key: src.nkeys, arg: src.consts, own: r.Cost > 0}
		if err := p.parse(); err != nil {
			return nil, fmt.Errorf("kind %s: %w", p.kind.Name, err)
		}
		names[i] = p.kind.Name
		locals += 2 + len(p.cell) + len(p.locals)
		if p.kind.Meter != nil {
			locals += 3 + len(p.note)
		}
		src.nkeys += p.keys()
		src.consts += len(p.args)
		if p.own {
			src.consts++
		}
		src.sets = src.sets || p.kind.Sets
	}
	if locals > maxLocals {
		return nil, fmt.Errorf("%d rules of %s need %d locals in one Lua function: they must need at most %d, so use fewer rules",
			len(rules), strings.Join(names, ", "), locals, maxLocals)
	}
	src.name = strings.Join(names, "+")
	marker := src.nkeys
	for i := range src.parts {
		p := &src.parts[i]
		if _, marks := p.sections["mark"]; marks || p.kind.Meter != nil && p.sections["refund"] != "" {
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

	// reserved are the names that sections are given, and the frame's own locals.
	reserved = regexp.MustCompile(`^(room|ends|text|gen|gave|mark|entries|renew|own|n|prev|tail|v|m|(was|t|b)_.*)$`)
)

// results are what a section must set.
var results = map[string][]string{
	"room": {"$room"}, "ends": {"$ends"}, "read": {"$room"}, "mark": {"$mark", "$ends"}, "refund": {"$gave"}, "entries": {"$entries"},
}

// meterSections and stepSections are the sections that a kind must have, and may have.
var (
	meterSections = [2][]string{{"settle", "room", "take", "ends"}, {"refund"}}
	stepSections  = [2][]string{{"read", "write"}, {"entries", "mark", "refund"}}
)

// parse checks the kind and splits its Lua into sections.
func (p *part) parse() error {
	k := p.kind
	if !kindName.MatchString(k.Name) {
		return fmt.Errorf("its Name is %q: it must be lower-case letters and digits", k.Name)
	}
	if !kindTag.Match(k.Tag[:]) || k.Tag == markTag {
		return fmt.Errorf("its Tag is %q: it must be a lower-case letter and a digit, and not %s", k.Tag[:], markTag[:])
	}
	if (k.Meter == nil) == (k.Step == nil) {
		return fmt.Errorf("it must have a Meter or a Step, and not both")
	}
	cell, optional, bracketed := strings.Cut(k.Cell, "[")
	p.cell = words(cell)
	p.short = len(p.cell)
	if bracketed {
		p.cell = append(p.cell, words(strings.TrimSuffix(optional, "]"))...)
	}
	p.note, p.locals, p.args = words(k.Note), words(k.Locals), words(k.Args)
	most, sections := 4, meterSections
	if k.Step != nil {
		most, sections = contract.MaxState, stepSections
	}
	switch {
	case len(p.cell) < 1 || len(p.cell) > most || p.short < 1:
		return fmt.Errorf("its Cell is %q: it must name from 1 to %d integers", k.Cell, most)
	case len(p.note) > 3 || len(p.args) > contract.MaxArgs || k.Keys < 0 || k.Keys > contract.MaxKeys:
		return fmt.Errorf("it must have at most 3 names in Note, %d in Args, and from 0 to %d Keys", contract.MaxArgs, contract.MaxKeys)
	case k.Meter != nil && (k.Keys > 1 || k.Sets || k.Leases || k.Entries || k.Locals != ""):
		return fmt.Errorf("the fields Keys, Sets, Leases, Entries and Locals are of a Step: leave them out beside a Meter")
	case k.Step != nil && k.Note != "":
		return fmt.Errorf("its Note is of a Meter: leave it out beside a Step")
	}
	seen := map[string]bool{}
	for i, name := range slices.Concat(p.args, p.cell, p.note, p.locals) {
		if i < len(p.args) {
			name = strings.TrimSuffix(name, textMark)
		}
		if !nameText.MatchString(name) || reserved.MatchString(name) || seen[name] {
			return fmt.Errorf("the name %q of Cell, Note, Locals or Args: names are lower-case letters, each only once, and not one that sections are given", name)
		}
		seen[name] = true
	}
	if err := p.split(sections); err != nil {
		return err
	}
	_, entries := p.sections["entries"]
	_, marks := p.sections["mark"]
	_, refunds := p.sections["refund"]
	switch {
	case k.Entries != entries:
		return fmt.Errorf("its Entries is %t: it must be true if Lua has a section \"entries\", and only then", k.Entries)
	case k.Step != nil && (marks || k.Leases) && !refunds:
		return fmt.Errorf("its Lua must have a section \"refund\", because it has a section \"mark\" or Leases is true")
	}
	return nil
}

// split splits the Lua into sections: those that it must have, and those that it may have.
func (p *part) split(sections [2][]string) error {
	p.sections = map[string]string{}
	section := ""
	for line := range strings.Lines(p.kind.Lua) {
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
			if (p.kind.Step != nil || name != "refund") && !strings.Contains(text, result) {
				return fmt.Errorf("section %q does not set %s: it must", name, result)
			}
		}
	}
	return nil
}

// fill replaces each $name in the sections.
func (p *part) fill(src *source) error {
	own := strconv.Itoa(p.rule)
	names := map[string]string{"room": "room", "ends": "ends", "gave": "gave", "mark": "mark", "entries": "entries", "n": "n"}
	for _, name := range slices.Concat(p.cell, p.note, p.locals) {
		names[name] = name + own
	}
	if p.kind.Meter != nil {
		for _, name := range p.cell {
			names["was_"+name] = "was_" + name
		}
		names["was_moved"] = "was_moved"
	} else {
		for i := range 4 {
			names["was"+strconv.Itoa(i+1)] = "was[" + strconv.Itoa(i+3) + "]"
		}
		names["gen"], names["renew"], names["text"] = "gen", "renew", fmt.Sprintf("ARGV[%d]", src.consts+1)
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
				with = "$" // of a pattern
			case !ok:
				return fmt.Errorf("section %s uses $%s, which is no name of Cell, Note, Locals or Args, and is not given", section, name)
			}
			out.WriteString(with)
			text = after[end:]
		}
		p.sections[section] = out.String()
	}
	return nil
}

func luaKey(i int) string { return fmt.Sprintf("KEYS[%d]", i+1) }

// foreign is the reply that says that key i, counted from 0, is foreign.
func foreign(i int) string { return fmt.Sprintf("redis.error_reply('WEIRFOREIGN %d')", i+1) }
