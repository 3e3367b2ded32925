package weirfile

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// An Effect is what a change does to the state of callers: see [Diff].
type Effect string

const (
	Kept      Effect = "kept"      // what callers have used stays used, exactly
	Estimated Effect = "estimated" // the state stays, but stands for another number of tokens
	Lost      Effect = "lost"      // the key in the store changes, and the state stays behind
	Renamed   Effect = "renamed"   // Lost, because the rule has another name
	Added     Effect = "added"     // the limit or the unit is new
	Removed   Effect = "removed"   // the limit no longer applies
	Rejected  Effect = "rejected"  // a running program rejects the file: see Limits.Watch
)

const fresh = "callers start with a full limit, unless the store still has keys of an earlier file with the same rule"

// A Change is one difference between two files.
type Change struct {
	Policy string   `json:"policy"`
	Plan   string   `json:"plan,omitempty"` // "" for the policy itself, and for an override
	Key    []string `json:"key,omitempty"`  // of an override; secret segments are "(secret)"
	Rule   string   `json:"rule,omitempty"` // "" if the change is about all rules
	Effect Effect   `json:"effect"`
	From   string   `json:"from,omitempty"` // the limit in the words of a file, or the segments or units; "" if there was none
	To     string   `json:"to,omitempty"`   // "" if there is none
	Text   string   `json:"text"`           // why
	Line   int      `json:"line,omitempty"` // in the new file; 0 if removed
}

// String describes c on one line.
func (c Change) String() string {
	text := fmt.Sprintf("policy %q", c.Policy)
	if c.Plan != "" {
		text += fmt.Sprintf(", plan %q", c.Plan)
	}
	if c.Key != nil {
		text += fmt.Sprintf(", override of %q", c.Key)
	}
	if c.Rule != "" {
		text += fmt.Sprintf(", rule %q", c.Rule)
	}
	text += ": " + string(c.Effect)
	switch {
	case c.From != "" && c.To != "":
		text += fmt.Sprintf(": %s becomes %s", c.From, c.To)
	case c.From != "" || c.To != "":
		text += ": " + c.From + c.To
	}
	return text + ": " + c.Text
}

// Diff says what happens to the state of callers when the program puts the file to into
// use in place of the file from. It first reports what a running program rejects, and
// then each rule that differs: of the policy, its plans and its overrides. If nothing
// differs, there is no Change.
//
// The state of a rule is lost if its key in the store changes: see the section "What
// happens to the state" of docs/guide/production.md.
func Diff(from, to *File) []Change {
	d := &differ{from: from, to: to}
	d.rejects()
	for _, p := range to.policies {
		if old := from.policy(p.Name); old != nil {
			d.policy(old, p)
			continue
		}
		d.add(Change{Policy: p.Name, Effect: Added, Text: "the policy is new", Line: p.at.line})
	}
	return d.changes
}

type differ struct {
	from, to *File
	changes  []Change
}

func (d *differ) add(c Change) { d.changes = append(d.changes, c) }

// policy compares two policies with one name.
func (d *differ) policy(old, p *filePolicy) {
	for _, unit := range p.Units {
		if !slices.Contains(old.Units, unit) {
			d.add(Change{Policy: p.Name, Effect: Added, To: "unit: " + quote(unit), Text: "programs that have this file can name the unit in Request.Costs, and a later file can add a rule that counts it", Line: p.fields["units"].line})
		}
	}
	if p.settles != old.settles {
		d.add(Change{Policy: p.Name, Effect: Kept, From: fmt.Sprintf("settles: %t", old.settles), To: fmt.Sprintf("settles: %t", p.settles), Text: "until all programs have this file, a decision beside a lease is charged again if a program with the other setting repeats it", Line: p.at.line})
	}
	renamed := map[string]bool{}
	for i, rule := range p.Rules {
		c := Change{Policy: p.Name, Rule: rule.Name, To: d.to.words(rule), Line: p.rules[i].line}
		was := old.rule(rule.Name)
		if was == nil {
			if was = renamedFrom(old, p, rule, renamed); was == nil {
				c.Effect, c.Text = Added, fresh
			} else {
				renamed[was.Name] = true
				c.Effect, c.From, c.Text = Renamed, d.from.words(*was), fmt.Sprintf("the rule was named %q, and the name is part of the key: %s", was.Name, fresh)
			}
			c.Text += mustName(old, rule)
			d.add(c)
			continue
		}
		c.From = d.from.words(*was)
		d.rule(c, old, p, *was, rule)
	}
	for _, rule := range old.Rules {
		if p.rule(rule.Name) == nil && !renamed[rule.Name] {
			d.add(Change{Policy: p.Name, Rule: rule.Name, Effect: Removed, From: d.from.words(rule), Text: "the limit no longer applies, and its keys expire"})
		}
	}
	d.plans(old, p)
	d.overrides(old, p)
}

// newlyCounts reports whether rule is the first that makes requests name its unit: old has
// no rule, apart from shadow rules, that counts it.
func newlyCounts(old *filePolicy, rule weir.Rule) bool {
	return rule.Unit != "" && !rule.Shadow && !slices.ContainsFunc(old.Rules, func(r weir.Rule) bool { return r.Unit == rule.Unit && !r.Shadow })
}

// mustName says what programs must do before a file has rule. It is "" if they do it now.
func mustName(old *filePolicy, rule weir.Rule) string {
	if !newlyCounts(old, rule) || !slices.Contains(old.Units, rule.Unit) {
		return "" // in the second case, a running program rejects the file
	}
	return fmt.Sprintf("; programs must name the unit %q in Request.Costs before the reload, otherwise their requests are errors", rule.Unit)
}

// rule compares two rules of a policy with one name.
func (d *differ) rule(c Change, old, p *filePolicy, was, now weir.Rule) {
	slot, slotNow := old.slotOf(was), p.slotOf(now)
	rest, restNow := old.restOf(was), p.restOf(now)
	switch {
	case tag(was.Algorithm) != tag(now.Algorithm):
		c.Effect, c.Text = Lost, "the algorithm is part of the key: "+fresh
	case !sameSegments(old.place(was), p.place(now)):
		c.Effect, c.Text = Lost, "the segments that identify the limit change: "+fresh
	case !sameKeys(slot, slotNow) && was.Shadow != now.Shadow:
		c.Effect, c.Text = Lost, "the key of a shadow rule differs, because its segments are not just those that all rules share: "+fresh
	case !sameKeys(slot, slotNow) && !sameSegments(slot, slotNow):
		c.Effect, c.Text = Lost, "the segments that all rules share change, and choose the key: "+fresh
	case !sameKeys(slot, slotNow) || !sameKeys(rest, restNow):
		c.Effect, c.Text = Lost, "the key has the segments in another order: "+fresh
	case slot.hidden != slotNow.hidden || rest.hidden != restNow.hidden:
		c.Effect, c.Text = Lost, "the hash of a secret segment is part of the key: "+fresh
	case was.Unit != now.Unit:
		c.Effect, c.Text = Estimated, "the state stays, but was counted in the earlier unit: give the rule a new name"
	case c.From == c.To:
		return
	default:
		c.Effect, c.Text = carries(was.Algorithm, now.Algorithm)
	}
	c.Text += mustName(old, now)
	d.add(c)
}

// plans compares the plans.
func (d *differ) plans(old, p *filePolicy) {
	for i := range p.plans {
		plan := &p.plans[i]
		c := Change{Policy: p.Name, Plan: plan.name, Line: plan.at.line}
		was := old.plan(plan.name)
		if was == nil {
			c.Effect, c.Text = Added, "callers keep the state that they have under other limits"
			d.add(c)
			was = &filePlan{} // the limits of the policy
		}
		d.limits(c, old, p, was.rules, plan.rules)
	}
}

// overrides compares the overrides.
func (d *differ) overrides(old, p *filePolicy) {
	before := make(map[weir.Key]*fileOverride, len(old.overrides))
	for i := range old.overrides {
		before[old.overrides[i].key] = &old.overrides[i]
	}
	for i := range p.overrides {
		o := &p.overrides[i]
		c := Change{Policy: p.Name, Key: p.shown(o.key, old), Line: o.at.line}
		was := before[o.key]
		delete(before, o.key)
		if was == nil {
			c.Effect, c.Text = Added, "the caller keeps the state that it has under other limits"
			d.add(c)
			was = &fileOverride{} // the limits of the policy
		}
		d.limits(c, old, p, old.effective(was), p.effective(o))
	}
	for i := range old.overrides {
		if o := &old.overrides[i]; before[o.key] != nil {
			c := Change{Policy: p.Name, Key: old.shown(o.key, p), Effect: Removed, Text: "the caller has the limits of its plan, and keeps its state"}
			d.add(c)
			d.limits(c, old, p, old.effective(o), nil)
		}
	}
}

// effective returns the rules of an override, with those of its plan.
func (p *filePolicy) effective(o *fileOverride) []fileRule {
	rules := slices.Clone(o.rules)
	if plan := p.plan(o.plan); plan != nil {
		for _, r := range plan.rules {
			if !slices.ContainsFunc(rules, func(other fileRule) bool { return other.Name == r.Name }) {
				rules = append(rules, r)
			}
		}
	}
	return rules
}

// limits compares the limits of a plan or an override. What happens to the keys is
// reported for the policy.
func (d *differ) limits(c Change, old, p *filePolicy, before, after []fileRule) {
	for _, rule := range p.Rules {
		was := old.rule(rule.Name)
		if was == nil || tag(was.Algorithm) != tag(rule.Algorithm) {
			continue
		}
		a, inOld := among(before, *was)
		b, inNew := among(after, rule)
		if !inOld && !inNew {
			continue
		}
		c := c
		c.Rule, c.From, c.To = rule.Name, d.from.words(a), d.to.words(b)
		if c.From != c.To {
			c.Effect, c.Text = carries(a.Algorithm, b.Algorithm)
			d.add(c)
		}
	}
}

// words describes the limit of a rule.
func (f *File) words(r weir.Rule) string {
	text := f.Describe(r.Algorithm)
	if r.Cost != 0 {
		text += fmt.Sprintf(", cost: %d", r.Cost)
	}
	if r.Unit != "" {
		text += ", unit: " + quote(r.Unit)
	}
	if r.Shadow {
		text += ", shadow: true"
	}
	return text
}

// renamedFrom returns the rule of old that rule seems to replace under another name, or
// nil. It skips rules that others replace.
func renamedFrom(old, p *filePolicy, rule weir.Rule, replaced map[string]bool) *weir.Rule {
	for i := range old.Rules {
		was := &old.Rules[i]
		if p.rule(was.Name) == nil && !replaced[was.Name] && tag(was.Algorithm) == tag(rule.Algorithm) && sameKeys(old.place(*was), p.place(rule)) {
			return was
		}
	}
	return nil
}

// A keyPlace says which segments are part of a key.
type keyPlace struct {
	names   []string
	indexes []int
	hidden  string // which of them are secret
}

// sameSegments reports whether the segments are the same, in any order.
func sameSegments(a, b keyPlace) bool {
	return slices.Equal(slices.Sorted(slices.Values(a.names)), slices.Sorted(slices.Values(b.names))) || sameKeys(a, b)
}

// sameKeys reports whether keys have the same segments in the same order: by their names,
// or by their places if only names have changed. If a name stands at another place,
// segments have moved.
func sameKeys(a, b keyPlace) bool {
	if slices.Equal(a.names, b.names) {
		return true
	}
	if !slices.Equal(a.indexes, b.indexes) {
		return false
	}
	for i, name := range b.names {
		if a.names[i] != name && slices.Contains(a.names, name) {
			return false
		}
	}
	return true
}

// place returns the segments that identify the limit of a rule.
func (p *filePolicy) place(r weir.Rule) keyPlace {
	return p.placeIf(func(name string) bool { return r.By == nil || slices.Contains(r.By, name) })
}

// slotOf returns the segments that come first in the key of a rule, and choose its slot.
// All rules share them, except that a shadow rule has its own.
func (p *filePolicy) slotOf(r weir.Rule) keyPlace {
	if r.Shadow {
		return p.place(r)
	}
	return p.placeIf(func(name string) bool {
		return !slices.ContainsFunc(p.Rules, func(r weir.Rule) bool {
			return !r.Shadow && r.By != nil && !slices.Contains(r.By, name)
		})
	})
}

// restOf returns the other segments in the key of a rule, which follow its name.
func (p *filePolicy) restOf(r weir.Rule) keyPlace {
	slot := p.slotOf(r)
	return p.placeIf(func(name string) bool {
		return (r.By == nil || slices.Contains(r.By, name)) && !slices.Contains(slot.names, name)
	})
}

func (p *filePolicy) placeIf(has func(name string) bool) keyPlace {
	var k keyPlace
	for i, name := range p.segments() {
		if has(name) {
			k.names, k.indexes = append(k.names, name), append(k.indexes, i)
			k.hidden += fmt.Sprint(slices.Contains(p.Secret, name), " ")
		}
	}
	return k
}

// shown returns the segments of a key, and hides what is secret in p or in other.
func (p *filePolicy) shown(key weir.Key, other *filePolicy) []string {
	list := key.Segments()
	for i, name := range p.segments() {
		if slices.Contains(p.Secret, name) || slices.Contains(other.Secret, name) {
			list[i] = "(secret)"
		}
	}
	return list
}

// tag returns the part of the keys that stands for the algorithm.
func tag(a algorithm.Algorithm) string {
	limit, err := a.NewLimit()
	if err != nil {
		return ""
	}
	return string(limit.Kind.Common().Tag[:])
}

// carries says what happens to the state if the numbers of an algorithm change.
func carries(from, to algorithm.Algorithm) (Effect, string) {
	was, err1 := from.NewLimit()
	now, err2 := to.NewLimit()
	switch {
	case reflect.DeepEqual(from, to):
		return Kept, "the state stays"
	case err1 != nil || err2 != nil || was.Carry == nil:
		return Estimated, "the documentation of the algorithm says what stays"
	}
	c := was.Carry(now)
	if c.Wait > 0 {
		c.Text += fmt.Sprintf("; a caller who has used all waits at most %v", c.Wait)
	}
	if c.Exact {
		return Kept, c.Text
	}
	return Estimated, c.Text
}
