package weirfile

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/storekey"
	"github.com/weir-go/weir/store/memory"
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
	Key    []string `json:"key,omitempty"`  // of an override; "(any)" if its match lacks the segment, "(secret)" if it is secret
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
func (d *differ) policy(old, p *Policy) {
	for _, unit := range p.Units {
		if !slices.Contains(old.Units, unit) {
			d.add(Change{Policy: p.Name, Effect: Added, To: "unit: " + quote(unit), Text: "programs that have this file can name the unit in Request.Costs, and a later file can add a rule that counts it", Line: p.fields["units"].Line})
		}
	}
	if p.settles != old.settles {
		d.add(Change{Policy: p.Name, Effect: Kept, From: fmt.Sprintf("settles: %t", old.settles), To: fmt.Sprintf("settles: %t", p.settles), Text: "until all programs have this file, a decision beside a lease is charged again if a program with the other setting repeats it", Line: p.at.line})
	}
	before, after := d.storeKeys(old, p)
	renamed := map[string]bool{}
	for i, rule := range p.Rules {
		c := Change{Policy: p.Name, Rule: rule.Name, To: d.to.words(rule), Line: p.rules[i].line}
		was := old.rule(rule.Name)
		if was == nil {
			for j, r := range old.Rules { // does it replace a rule under another name?
				same := strings.Replace(before[r.Name], "}:"+r.Name, "}:"+rule.Name, 1) == after[rule.Name]
				if was == nil && same && p.rule(r.Name) == nil && !renamed[r.Name] {
					was = &old.Rules[j]
				}
			}
			if was == nil {
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
		switch key, now := before[rule.Name], after[rule.Name]; {
		case key != now:
			c.Effect, c.Text = Lost, fmt.Sprintf("the key in the store becomes %s, and was %s: %s", now, key, fresh)
		case was.Unit != rule.Unit:
			c.Effect, c.Text = Estimated, "the state stays, but was counted in the earlier unit: give the rule a new name"
		case c.From == c.To:
			continue
		default:
			c.Effect, c.Text = carries(was.Algorithm, rule.Algorithm)
		}
		c.Text += mustName(old, rule)
		d.add(c)
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
func newlyCounts(old *Policy, rule weir.Rule) bool {
	return rule.Unit != "" && !rule.Shadow && !slices.ContainsFunc(old.Rules, func(r weir.Rule) bool { return r.Unit == rule.Unit && !r.Shadow })
}

// mustName says what programs must do before a file has rule. It is "" if they do it now.
func mustName(old *Policy, rule weir.Rule) string {
	if !newlyCounts(old, rule) || !slices.Contains(old.Units, rule.Unit) {
		return "" // in the second case, a running program rejects the file
	}
	return fmt.Sprintf("; programs must name the unit %q in Request.Costs before the reload, otherwise their requests are errors", rule.Unit)
}

// plans compares the plans.
func (d *differ) plans(old, p *Policy) {
	for i := range p.Plans {
		plan := &p.Plans[i]
		c := Change{Policy: p.Name, Plan: plan.Name, Line: plan.at.line}
		was := old.plan(plan.Name)
		if was == nil {
			c.Effect, c.Text = Added, "callers keep the state that they have under other limits"
			d.add(c)
			was = &Plan{} // the limits of the policy
		}
		d.limits(c, old, p, &change{rules: was.Rules, access: was.Access}, &change{rules: plan.Rules, access: plan.Access})
	}
}

// overrides compares the overrides.
func (d *differ) overrides(old, p *Policy) {
	before := make(map[weir.Key]*Override, len(old.Overrides))
	for i := range old.Overrides {
		before[old.Overrides[i].Key] = &old.Overrides[i]
	}
	was, now := old.accesses(), p.accesses()
	compare := func(c Change, from, to *Override) {
		key := cmp.Or(to.Key, from.Key)
		d.limits(c, old, p, &change{rules: old.effective(from).rules, access: was(key)}, &change{rules: p.effective(to).rules, access: now(key)})
	}
	for i := range p.Overrides {
		o := &p.Overrides[i]
		c := Change{Policy: p.Name, Key: p.shown(o.Key, old), Line: o.at.line}
		was := before[o.Key]
		delete(before, o.Key)
		if was == nil {
			c.Effect, c.Text = Added, "callers keep the state that they have under other limits"
			d.add(c)
			was = &Override{} // the limits of the policy
		}
		compare(c, was, o)
	}
	for i := range old.Overrides {
		if o := &old.Overrides[i]; before[o.Key] != nil {
			c := Change{Policy: p.Name, Key: old.shown(o.Key, p), Effect: Removed, Text: "callers have the limits of their plan, and keep their state"}
			d.add(c)
			compare(c, o, &Override{})
		}
	}
}

// accesses returns a function that says how the overrides of a valid file limit a match, or
// its callers if it names all segments.
func (p *Policy) accesses() func(weir.Key) Access {
	b := &bound{Policy: p}
	for i := range p.Overrides {
		b.add(&p.Overrides[i], p.effective(&p.Overrides[i]))
	}
	return func(key weir.Key) (a Access) {
		for _, m := range b.matches {
			if o := m.of(&key, len(p.segments())); o != nil && o.sets {
				a = o.access
			}
		}
		return a
	}
}

// effective returns what an override of a valid file sets, or no override.
func (p *Policy) effective(o *Override) *change {
	c, _ := p.change(o)
	return c
}

// limits compares the limits of a plan or an override. What happens to the keys is
// reported for the policy.
func (d *differ) limits(c Change, old, p *Policy, before, after *change) {
	if before.access != after.access {
		c := c
		c.Effect, c.From, c.To, c.Text = Kept, inFile[before.access], inFile[after.access], "the state stays"
		d.add(c)
	}
	for _, rule := range p.Rules {
		was := old.rule(rule.Name)
		if was == nil || tag(was.Algorithm) != tag(rule.Algorithm) {
			continue
		}
		a, inOld := among(before.rules, *was)
		b, inNew := among(after.rules, rule)
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

// callers returns the segments of a caller in old and in p. A segment of p is that of old with its
// name or, if only its name has changed, at its place. Otherwise, it is another.
func callers(old, p *Policy) (before, after []string) {
	before, after = old.segments(), slices.Clone(p.segments())
	for i, name := range p.segments() {
		if i < len(before) && !slices.Contains(before, name) && !slices.Contains(p.segments(), before[i]) {
			after[i] = before[i]
		}
	}
	return before, after
}

// storeKeys returns the first key in the store of each rule of old and of p, for one caller. The
// segments are their own names.
func (d *differ) storeKeys(old, p *Policy) (before, after map[string]string) {
	keys := func(f *File, p *Policy, segments []string) map[string]string {
		byRule := map[string]string{}
		if lim, err := p.limiter(memory.New(nil), f.options.Limiter); err == nil { // it is valid
			list, _ := lim.StoreKeys(weir.KeyOf(segments...))
			for i, rule := range lim.Rules() {
				byRule[rule.Name] = list[i][0]
				for _, name := range segments {
					byRule[rule.Name] = strings.ReplaceAll(byRule[rule.Name], string(storekey.AppendHash(nil, name)), "(hash of "+name+")")
				}
			}
		}
		return byRule
	}
	segments, now := callers(old, p)
	return keys(d.from, old, segments), keys(d.to, p, now)
}

// shown returns the segments of a match, and hides what is secret in p or in other.
func (p *Policy) shown(key weir.Key, other *Policy) []string {
	list := key.Segments()
	for i, name := range p.segments() {
		if list[i] == "" {
			list[i] = "(any)"
		} else if slices.Contains(p.Secret, name) || slices.Contains(other.Secret, name) {
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
