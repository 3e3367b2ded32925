package weirfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store"
)

// Limits are the limiters of a [File] over a store. [Limits.Watch] replaces them when the
// file changes. Limits are safe for concurrent use.
type Limits struct {
	store    store.Store
	options  Options
	current  atomic.Pointer[generation]
	asked    *answers // nil without Options.Override
	wrappers map[string][]weir.Wrapper

	loading sync.Mutex // held while a file is loaded: for current, wrappers and what status says of it

	mu     sync.Mutex
	status Status
}

// A generation is the limiters of one file.
type generation struct {
	file     *File
	policies map[string]*bound
}

// Limits makes the limiters of f over st. It calls neither the store nor
// Options.Override.
//
// The error joins an *[Error] for each policy, plan or override that the store or a
// wrapper does not support.
func (f *File) Limits(st store.Store) (*Limits, error) {
	if st == nil {
		return nil, errors.New("weirfile: Limits: the store is nil: pass one, for example memory.New(nil)")
	}
	l := &Limits{store: st, options: f.options, wrappers: map[string][]weir.Wrapper{}}
	if f.options.Override != nil {
		l.asked = newAnswers(&l.options)
	}
	g, err := l.generation(f)
	if err != nil {
		return nil, err
	}
	l.current.Store(g)
	now := time.Now()
	l.status = Status{File: f.name, Sum: f.sum, Generation: 1, Loaded: now, Checked: now}
	return l, nil
}

// generation makes the limiters of f.
func (l *Limits) generation(f *File) (*generation, error) {
	r := &reader{file: f.name, kinds: f.kinds}
	g := &generation{file: f, policies: make(map[string]*bound, len(f.policies))}
	for _, p := range f.policies {
		g.policies[p.Name] = r.bind(p, l.store, l.options.Limiter, l.wrap(p.Name))
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	return g, nil
}

// wrap returns the wrappers of the policy.
func (l *Limits) wrap(policy string) []weir.Wrapper {
	if l.options.Wrap == nil {
		return nil
	}
	list, ok := l.wrappers[policy]
	if !ok {
		list = l.options.Wrap(policy)
		l.wrappers[policy] = list
	}
	return list
}

// For returns the limiter for a request, with the limits of the plan, or of the policy
// itself if plan is "", and those of the key's overrides. Call For for every request: each
// limiter is made once and kept, and the file can change, so do not keep the limiter for
// longer than a request.
//
// The error is [ErrUnknown] if the file has no such policy, or the policy no such plan.
// With [Options].Override, it is [weir.ErrInvalidKey] if the key has a wrong number of
// segments. An error of Options.Override is not returned: see there.
func (l *Limits) For(ctx context.Context, policy, plan string, key weir.Key) (*weir.Limiter, error) {
	lim, _, err := l.find(ctx, policy, plan, &key)
	return lim, err
}

// Policy returns the limiter with the limits of the policy itself, for weirhttp.New or
// admin.New, which need one beside [Limits.For]. It does not change with the file. The error
// is [ErrUnknown] if the file has no such policy.
func (l *Limits) Policy(name string) (*weir.Limiter, error) {
	_, b, err := l.policy(name)
	if err != nil {
		return nil, err
	}
	return b.base.lim, nil
}

// policy returns the file in use, and its policy with the name.
func (l *Limits) policy(name string) (*File, *bound, error) {
	g := l.generationInUse()
	if g == nil {
		return nil, nil, errNoLimits
	}
	b := g.policies[name]
	if b == nil {
		return nil, nil, unknown("policy", name, g.file.name, g.file.policyNames())
	}
	return g.file, b, nil
}

// ErrUnknown means that the file has no policy, or the policy no plan, with the given
// name.
var ErrUnknown = errors.New("weirfile: unknown name")

// A Source says where the limits of a request come from: see [Limits.Source].
type Source struct {
	Policy   string
	Plan     string // of the override, or of the request; "" means the policy itself
	Override bool   // the key has an override; Line is that of the one with the most segments
	Asked    bool   // the override is a result of Options.Override
	Access   Access // the caller is unlimited or blocked
	File     string
	Line     int // of the override, the plan or the policy; 0 if Asked
}

// String describes s: "plan pro (limits.yaml:12)".
func (s Source) String() string {
	text := "policy " + s.Policy
	switch {
	case s.Override && s.Plan != "":
		text = "override with plan " + s.Plan
	case s.Override:
		text = "override"
	case s.Plan != "":
		text = "plan " + s.Plan
	}
	if s.Access != Limited {
		text += ", " + string(s.Access)
	}
	if s.Asked {
		return text + " (from Options.Override)"
	}
	return fmt.Sprintf("%s (%s:%d)", text, s.File, s.Line)
}

// Source says where the limits that [Limits.For] returns come from.
func (l *Limits) Source(ctx context.Context, policy, plan string, key weir.Key) (Source, error) {
	_, s, err := l.find(ctx, policy, plan, &key)
	return s, err
}

// File returns the file whose limits are in use.
func (l *Limits) File() *File {
	if g := l.generationInUse(); g != nil {
		return g.file
	}
	return nil
}

func (l *Limits) generationInUse() *generation {
	if l == nil {
		return nil
	}
	return l.current.Load()
}

var errNoLimits = errors.New("weirfile: the Limits are nil or a zero value: make them with File.Limits")

// find returns the limiter of a request, and where it comes from.
func (l *Limits) find(ctx context.Context, policy, plan string, key *weir.Key) (*weir.Limiter, Source, error) {
	f, b, err := l.policy(policy)
	if err != nil {
		return nil, Source{}, err
	}
	now, s := b.base, Source{Policy: policy, Plan: plan, File: f.name, Line: b.at.line}
	if plan != "" {
		if now = b.byPlan[plan]; now == nil {
			return nil, Source{}, unknownPlan(b.Policy, plan)
		}
		s.Line = now.line
	}
	set := func(c *change, o *Override, line int) {
		if c != nil && err == nil {
			now, err = c.on(b, now)
			s.Plan, s.Override, s.Asked, s.Line = cmp.Or(o.Plan, s.Plan), true, line == 0, line
		}
	}
	var found *answerState
	blocks := false // whatever the file says
	if l.asked != nil {
		if found, err = l.ask(ctx, b, key); err != nil {
			return nil, Source{}, err
		}
		if blocks = found.change != nil && found.change.access == Blocked; !blocks {
			set(found.change, &found.override, 0)
		}
	}
	for _, m := range b.matches {
		if o := m.of(key, len(b.segments())); o != nil {
			set(o.change, o.override, o.override.at.line)
		}
	}
	if blocks {
		set(found.change, &found.override, 0)
	}
	if err != nil {
		return nil, Source{}, err
	}
	s.Access = now.access
	return now.lim, s, nil
}

func unknown(what, name, where string, known []string) error {
	return &lookupError{short(fmt.Sprintf("weirfile: %s has no %s %q: %s", where, what, name, suggest(name, known)))}
}

func unknownPlan(p *Policy, name string) error {
	return unknown("plan", name, fmt.Sprintf("policy %q", p.Name), p.planNames())
}

// A lookupError is an ErrUnknown with its own text.
type lookupError struct{ text string }

func (e *lookupError) Error() string { return e.text }

func (e *lookupError) Unwrap() error { return ErrUnknown }
