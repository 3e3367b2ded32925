package weirfile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/store/memory"
)

// Status is the state of [Limits]: see [Limits.Status].
type Status struct {
	File       string    // the file whose limits are in use
	Sum        [32]byte  // the SHA-256 of its content
	Generation int64     // 1 at first, and one more after each change of the limits
	Loaded     time.Time // when the limits were put into use
	Checked    time.Time // when the file was last read and found valid
	Failures   int64     // how many checks of the file have failed
	Err        error     // of the last check; nil if it succeeded

	OverrideFailures int64 // how many calls of Options.Override have failed
	OverrideErr      error // of the last call; nil if it succeeded
}

// Status returns the state of l, for example for a metric. If l is nil or a zero value,
// the Status is zero, except for Err.
func (l *Limits) Status() Status {
	if l.generationInUse() == nil {
		return Status{Err: errNoLimits}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Watch checks the file every Options.Interval until ctx ends, and replaces the limits
// when the content of the file has changed. Watch puts a changed file into use only if two
// checks in a row read the same content, so that a program that writes the file can
// finish. It follows symbolic links at every check, so it sees the update of a Kubernetes
// ConfigMap.
//
// If the file cannot be read, is not valid, or does not suit the running program, the
// limits stay as they are: docs/guide/file.md lists what needs a restart, and [Diff]
// reports it as [Rejected]. Each such check calls Options.OnError, and counts in
// [Limits.Status].
//
// Watch returns the error of ctx, or at once another error if the file was not loaded by
// [Load].
func (l *Limits) Watch(ctx context.Context) error {
	path, err := l.path()
	if err != nil {
		return err
	}
	interval := l.options.Interval
	if interval == 0 {
		interval = 5 * time.Second
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for last := [sha256.Size]byte{}; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		data, err := os.ReadFile(path)
		before := last
		if last = sha256.Sum256(data); err != nil {
			last = [sha256.Size]byte{}
		} else if last != before && last != l.Status().Sum {
			continue
		}
		_ = l.load(path, data, err) // it is reported
	}
}

// Reload checks the file once, as [Limits.Watch] does, and puts a changed file into use
// at once. Use it for a signal, or in tests. Options.OnError is called for an error too.
func (l *Limits) Reload() error {
	path, err := l.path()
	if err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	return l.load(path, data, err)
}

// path returns the path of the file.
func (l *Limits) path() (string, error) {
	g := l.generationInUse()
	switch {
	case g == nil:
		return "", errNoLimits
	case g.file.path == "":
		return "", fmt.Errorf("weirfile: %s was not read from a file: use Load instead of Parse", g.file.name)
	}
	return g.file.path, nil
}

// load puts the content of the file into use if it has changed. err is the error of
// reading it.
func (l *Limits) load(path string, data []byte, err error) error {
	f, err := l.replaceAndNote(path, data, err)
	switch {
	case err != nil && l.options.OnError != nil:
		l.options.OnError(err)
	case f != nil && l.options.OnLoad != nil:
		l.options.OnLoad(f)
	}
	return err
}

// replaceAndNote is replace, with the result in the status.
func (l *Limits) replaceAndNote(path string, data []byte, err error) (*File, error) {
	l.loading.Lock() // so that the status describes the limits in use
	defer l.loading.Unlock()
	f, err := l.replace(path, data, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.status.Err = err
	switch {
	case err != nil:
		l.status.Failures++
	case f != nil:
		l.status.Sum, l.status.Loaded, l.status.Checked = f.sum, now, now
		l.status.Generation++
	default:
		l.status.Checked = now
	}
	return f, err
}

// replace puts the content into use, and returns its File, or nil if nothing has changed.
// The caller holds l.loading.
func (l *Limits) replace(path string, data []byte, err error) (*File, error) {
	if err != nil {
		return nil, fmt.Errorf("weirfile: %w", err)
	}
	old := l.current.Load()
	if sha256.Sum256(data) == old.file.sum {
		return nil, nil
	}
	f, err := Parse(path, data, &l.options)
	if err != nil {
		return nil, err
	}
	f.path = path
	d := &differ{from: old.file, to: f}
	for _, c := range d.rejects() {
		err = errors.Join(err, fmt.Errorf("weirfile: %s: %v", f.name, c))
	}
	if err != nil {
		return nil, err
	}
	g, err := l.generation(f)
	if err != nil {
		return nil, err
	}
	l.current.Store(g)
	if l.asked != nil {
		l.asked.unbind()
	}
	return f, nil
}

// uses are requests that need a kind of rule, or its absence.
var uses = []struct {
	text string
	r    weir.Request
}{
	{"calls Allow, and a rule holds leases now", weir.Request{}},
	{"calls Acquire, and no rule holds leases any more", weir.Request{Op: weir.Renew, ID: "x"}},
	{"refunds or finishes decisions, and the rules or the field settles do not allow it any more", weir.Request{Op: weir.Finish, ID: "x", Actual: weir.ActualRefund()}},
	{"calls Pause, and no rule pauses keys any more", weir.Request{Op: weir.Pause, ID: "x", For: time.Hour}},
	{"sets Request.Metadata, and no rule stores it any more", weir.Request{Metadata: "x"}},
}

// rejects adds and returns the changes that are Rejected.
func (d *differ) rejects() []Change {
	for _, old := range d.from.policies {
		reject := func(c Change, text string) {
			c.Policy, c.Effect = old.Name, Rejected
			c.Text = "a running program " + text + ": restart it with code that suits the file, or leave the policy as it is and give the new one another name"
			d.add(c)
		}
		p := d.to.policy(old.Name)
		if p == nil {
			reject(Change{}, "asks for the policy, which the file lacks")
			continue
		}
		for _, name := range old.planNames() {
			if p.plan(name) == nil {
				reject(Change{Plan: name}, "asks for the plan, which the file lacks")
			}
		}
		if was, now := callers(old, p); !slices.Equal(was, now) {
			reject(Change{From: fmt.Sprintf("segments: %q", was), To: fmt.Sprintf("segments: %q", p.segments()), Line: p.at.line}, "passes the segments of its keys in their order")
		}
		for _, name := range old.Units {
			if !slices.Contains(p.Units, name) {
				reject(Change{From: "unit: " + quote(name), Line: p.at.line}, "can name the unit in Request.Costs, and the file does not declare it")
			}
		}
		for i, r := range p.Rules {
			c := Change{Policy: old.Name, Rule: r.Name, To: d.to.words(r), Line: p.rules[i].line}
			if was := old.rule(r.Name); was != nil && was.Unit != r.Unit {
				c.Effect, c.From, c.Text = Rejected, d.from.words(*was), "a running program counts the rule in its earlier unit: give the rule a new name"
				d.add(c)
			} else if newlyCounts(old, r) && !slices.Contains(old.Units, r.Unit) {
				reject(c, fmt.Sprintf("could not name the unit %q in Request.Costs yet, and a rule counts it now", r.Unit))
			}
		}
		for _, r := range old.Rules {
			if now := p.rule(r.Name); d.from.options.Override != nil && (now == nil || tag(now.Algorithm) != tag(r.Algorithm)) {
				reject(Change{Rule: r.Name}, "can get the rule from Options.Override, and it is removed or has another algorithm")
			}
		}
		before, after := d.from.supports(old), d.to.supports(p)
		for _, use := range uses {
			if before(use.r) && !after(use.r) {
				reject(Change{Line: p.at.line}, use.text)
			}
		}
	}
	return d.changes
}

// supports returns a function that reports whether a request is valid for the policy p.
func (f *File) supports(p *Policy) func(r weir.Request) bool {
	lim, err := p.limiter(memory.New(nil), f.options.Limiter)
	key, ones := weir.KeyOf(p.segments()...), gate.Each(lim, 1)
	return func(r weir.Request) bool {
		r.Key, r.Costs = key, ones
		return err == nil && lim.Check(r, nil) == nil
	}
}
