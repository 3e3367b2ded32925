package script

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/algorithm/contract"
)

var (
	kindName = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	kindTag  = regexp.MustCompile(`^[a-z][0-9]$`)
	nameText = regexp.MustCompile(`^[a-z_]*[a-z_]$`)
	usedName = regexp.MustCompile(`\$[a-z0-9_]+`) // a $ alone is the end of a Lua pattern

	// reserved matches the names that package contract gives to sections, and the locals
	// of the frame.
	reserved = regexp.MustCompile(`^(room|ends|text|gen|gave|keep|mark|entries|renew|own|n|prev|tail|v|m|(was|t|b)_.*)$`)

	// luaWords matches what begins or ends a block of Lua, and declarations of locals.
	// Strings and comments are matched so that nothing in them is.
	luaWords = regexp.MustCompile(`'[^'\n]*'|"[^"\n]*"|--[^\n]*|\blocal\s+(function\s+)?(\w+(?:\s*,\s*\w+)*)|\b(do|then|repeat|function|end|until|elseif)\b`)
	luaName  = regexp.MustCompile(`\w+`)

	// shadows matches the names that the script declares before a section, and uses after
	// it in the same block: always, or only if the kind has a refund.
	shadows   = regexp.MustCompile(`^(ARGV|KEYS|redis|string|math|now|slack|rooms|(tail|prev|v|gen|room)\d+)$`)
	shadowsOf = regexp.MustCompile(`^(n|take|m|by|gen|held|same|total|spent|debt|first)$`)
)

// results are the names that a section must set.
var results = map[string][]string{
	"room": {"$room"}, "ends": {"$ends"}, "read": {"$room"}, "mark": {"$mark", "$ends"}, "refund": {"$gave"}, "entries": {"$entries"},
}

// meterSections and stepSections are the sections of a kind: first the required sections,
// then the optional sections.
var (
	meterSections = [2][]string{{"advance", "room", "take", "ends"}, {"refund"}}
	stepSections  = [2][]string{{"read", "write"}, {"entries", "mark", "refund"}}
)

// parse checks the kind k and splits its Lua into sections.
func (r *Rule) parse(k contract.Kind) error {
	h := r.Head
	if !kindName.MatchString(h.Name) {
		return fmt.Errorf("its Name is %q: it must be lower-case letters and digits", h.Name)
	}
	if !kindTag.Match(h.Tag[:]) || IsMark(h.Tag) {
		return fmt.Errorf("its Tag is %q: it must be a lower-case letter and a digit, and not %s, %s or %s", h.Tag[:], MarkTag[:], SettledTag[:], KeptTag[:])
	}
	cell, optional, bracketed := strings.Cut(h.Cell, "[")
	r.Cell = strings.Fields(cell)
	r.Short = len(r.Cell)
	if bracketed {
		r.Cell = append(r.Cell, strings.Fields(strings.TrimSuffix(optional, "]"))...)
	}
	r.Args = strings.Fields(h.Args)
	most, sections := 4, meterSections
	switch k := k.(type) {
	case *contract.MeterKind:
		r.Meter, r.Note = k, strings.Fields(k.Note)
	case *contract.StepKind:
		r.Step, r.locals = k, strings.Fields(k.Locals)
		most, sections = contract.MaxState, stepSections
	}
	switch {
	case (r.Meter == nil || r.Meter.Meter == nil) && (r.Step == nil || r.Step.Step == nil):
		return fmt.Errorf("it is a %T without a Meter or a Step: it must be a *contract.MeterKind with a Meter, or a *contract.StepKind with a Step", k)
	case len(r.Cell) < 1 || len(r.Cell) > most || r.Short < 1:
		return fmt.Errorf("its Cell is %q: it must name from 1 to %d integers", h.Cell, most)
	case len(r.Cell) == 4 && len(r.Note) > 0:
		return fmt.Errorf("its Cell names %d integers and its Note is %q: if Note is not empty, Cell must name at most 3", len(r.Cell), r.Meter.Note)
	case len(r.Note) > 3 || len(r.Args) > contract.MaxArgs || r.Step != nil && (r.Step.Keys < 0 || r.Step.Keys > contract.MaxKeys):
		return fmt.Errorf("it must have at most 3 names in Note, %d in Args, and from 0 to %d Keys", contract.MaxArgs, contract.MaxKeys)
	}
	if err := r.checkNames(); err != nil {
		return err
	}
	if err := r.split(sections); err != nil {
		return err
	}
	r.bind()
	_, listed := r.sections["entries"]
	_, marks := r.sections["mark"]
	_, refunds := r.sections["refund"]
	switch {
	case r.Entries() != listed:
		return fmt.Errorf("its Entries is %t: it must be true if Lua has a section \"entries\", and only then", r.Entries())
	case (marks || r.Type != contract.LimitRule) && !refunds:
		return fmt.Errorf("its Lua must have a section \"refund\", because it has a section \"mark\", or Leases or Pauses is true")
	case r.Step != nil && r.Step.Pauses && (marks || listed || r.Step.Leases):
		return fmt.Errorf("its Pauses is true: its Lua must have no section \"mark\" or \"entries\", and its Leases must be false")
	}
	return nil
}

// checkNames checks the names that the kind gives to integers, constants and variables.
func (r *Rule) checkNames() error {
	seen := map[string]bool{}
	for i, name := range slices.Concat(r.Args, r.Cell, r.Note, r.locals) {
		if i < len(r.Args) {
			name = strings.TrimSuffix(name, TextMark)
		}
		if !nameText.MatchString(name) || reserved.MatchString(name) || seen[name] {
			return fmt.Errorf("the name %q of Cell, Note, Locals or Args is not valid: names are lower-case letters and underscores, each is used once, and none is a name that sections are given", name)
		}
		seen[name] = true
	}
	return nil
}

// split splits the Lua into sections. sections[0] are required, and sections[1] are
// optional. It leaves out all lines that begin with "--".
func (r *Rule) split(sections [2][]string) error {
	r.sections = map[string]string{}
	section := ""
	for line := range strings.Lines(r.Head.Lua) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "-- "); ok && slices.Contains(slices.Concat(sections[0], sections[1]), name) {
			if _, twice := r.sections[name]; twice {
				return fmt.Errorf("its Lua has two lines \"-- %s\": each section begins with one such line", name)
			}
			section = name
			r.sections[section] = "\n"
			continue
		}
		if section != "" && line != "" && !strings.HasPrefix(line, "--") {
			r.sections[section] += line + "\n"
		}
	}
	for _, name := range sections[0] {
		if strings.TrimSpace(r.sections[name]) == "" {
			return fmt.Errorf("its Lua has no section %q: it begins with the line \"-- %s\"", name, name)
		}
	}
	for name, text := range r.sections {
		for _, result := range results[name] {
			if (r.Step != nil || name != "refund") && !strings.Contains(text, result) {
				return fmt.Errorf("section %q does not set %s: it must set it", name, result)
			}
		}
		if local := r.shadowed(name, text); local != "" {
			return fmt.Errorf("section %q declares the local %s, a name that the generated script uses after the section: rename it", name, local)
		}
	}
	return nil
}

// shadowed returns a local that a section declares outside of all blocks, and that the
// script uses after the section, or "". Other sections, and all sections of a kind that
// pauses, are blocks of their own.
func (r *Rule) shadowed(section, text string) string {
	if r.Type == contract.PauseRule || !slices.Contains([]string{"read", "room", "ends", "take", "write", "mark"}, section) {
		return ""
	}
	depth := 0
	for _, w := range luaWords.FindAllStringSubmatch(text, -1) {
		for _, local := range luaName.FindAllString(w[2], -1) {
			if depth == 0 && (shadows.MatchString(local) || section != "read" && r.Refunds() && shadowsOf.MatchString(local)) {
				return local
			}
		}
		switch w[3] {
		case "":
			if w[1] != "" {
				depth++
			}
		case "end", "until", "elseif":
			depth--
		default:
			depth++
		}
	}
	return ""
}

// bind sets Bound. A refund computes with these constants, and the cell was written with them:
// with other constants, the cell means something else, or ends at another time. For a Step, it
// is not known which constants the state depends on.
func (r *Rule) bind() {
	refund, cell := r.sections["refund"], r.sections["advance"]+r.sections["take"]
	for i, name := range r.Args {
		name = "$" + strings.TrimSuffix(name, TextMark)
		in := func(text string) bool { return slices.Contains(usedName.FindAllString(text, -1), name) }
		if in(refund) && (r.Step != nil || in(cell)) || in(r.sections["ends"]) {
			r.Bound = append(r.Bound, i)
		}
	}
}

// fill replaces each $name in the sections by the Lua for it.
func (r *Rule) fill(src *Source) error {
	own := strconv.Itoa(r.number)
	names := map[string]string{"room": "room", "ends": "ends", "gave": "gave", "mark": "mark", "entries": "entries", "n": "n"}
	for _, name := range slices.Concat(r.Cell, r.Note, r.locals) {
		names[name] = name + own
	}
	if r.Meter != nil {
		for _, name := range r.Cell {
			names["was_"+name] = "was_" + name
		}
		names["was_moved"], names["was_held"] = "was_moved", fmt.Sprintf("was[%d]", MarkHeld+1)
	} else {
		for i := range 3 {
			names["was"+strconv.Itoa(i+1)] = fmt.Sprintf("was[%d]", MarkHead+1+i)
		}
		names["gen"], names["renew"], names["keep"], names["text"] = "gen", "renew", "keep", luaArg(src.consts)
		for i := range r.Keys() {
			names["key"+strconv.Itoa(i+1)] = luaKey(r.key + i)
			names["foreign"+strconv.Itoa(i+1)] = foreign(r.key + i)
		}
	}
	for i, name := range r.Args {
		if text, ok := strings.CutSuffix(name, TextMark); ok {
			names[text] = luaArg(r.arg + i)
		} else {
			names[name] = luaConst(r.arg + i)
		}
	}
	for section, text := range r.sections {
		var err error
		r.sections[section] = usedName.ReplaceAllStringFunc(text, func(name string) string {
			with, ok := names[name[1:]]
			if !ok && err == nil {
				err = fmt.Errorf("section %s uses %s: it must be a name of Cell, Note, Locals or Args, or a name that sections are given", section, name)
			}
			return with
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func luaKey(i int) string { return fmt.Sprintf("KEYS[%d]", i+1) }

// foreign returns Lua for the reply that says that the value of the key with index i is
// foreign.
func foreign(i int) string { return fmt.Sprintf("redis.error_reply('WEIRFOREIGN %d')", i+1) }
