package weir

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A Request is one question to a [Limiter].
type Request struct {
	// Path says whom it is about. Every segment is non-empty.
	Path []string

	// Cost is the number of tokens to take, 1 for an ordinary request. 0 takes
	// nothing and asks how things stand; it is denied only while more is taken
	// than the limit, as after the limit was lowered, or if a rule with a Cost
	// of its own has no room for that. It is not negative.
	Cost int64

	// Peek asks whether Cost would pass, and takes nothing.
	Peek bool

	// UpTo takes as many tokens as there are, up to Cost: see [Limiter.TakeUpTo].
	// With Peek, it asks whether one would be taken.
	UpTo bool

	// MaxWait takes tokens that are there only so much later, too, if every
	// rule's algorithm can: [algorithm.GCRA], [algorithm.TokenBucket] and
	// [algorithm.LeakyBucket]. The answer's Delay tells how long to wait. It is
	// not negative, and cut to whole microseconds; 0 takes only what is there now,
	// and leaves it to a LeakyBucket how long its queue is. It does not go with
	// UpTo. Of several rules, each is taken from at its own turn, and Delay is that
	// of the last.
	MaxWait time.Duration

	// ID names the decision, so that [Limiter.Refund] can give back what it took:
	// any bytes, and another for each decision. It costs a key for each rule that
	// holds no leases, until there is nothing left to give back. Empty, there is no
	// refund. It is [ErrUnsupported] if a rule's algorithm gives nothing back.
	ID string

	// Lease names what the request holds, once admitted, under rules that limit
	// what goes on at once, [algorithm.Concurrency], until it is released or over:
	// see [Limiter.Release] and [Limiter.Renew]. It is any bytes, from 1 to
	// [algorithm.MaxLease] of them, and another for each holder. Under such a rule
	// what takes anything has to have one, so that Allow and AllowN do not serve.
	Lease string

	// Limits, if not nil, has one element per rule: the limit to judge this request
	// by, of the same algorithm, or nil for the rule's own. It is for limits that are
	// looked up at the time of a request; make each once, by NewLimit. What a key
	// holds is carried over as its algorithm says for a limit that changes.
	Limits []algorithm.Limit

	// Metadata is kept, if the request is admitted, by rules whose algorithm
	// does so, [algorithm.MetadataWindow], for [Limiter.Entries] to list: any
	// bytes, at most [algorithm.MaxMetadata].
	Metadata string

	// Each, if not nil, has one element per rule, and receives the answer of
	// each, in the order declared. Its Allowed says whether that rule alone had
	// room.
	Each []Result
}

// A Result is the answer to a [Request]. Its durations are exact to the
// microsecond.
type Result struct {
	Allowed    bool          // go ahead
	Granted    int64         // tokens taken: the cost if allowed, or with UpTo as many as there were; else 0
	Limit      int64         // capacity of Rule, or of its Span, in tokens
	Remaining  int64         // whole tokens left now in Rule, or in its Span, also on a denial
	RetryAfter time.Duration // 0 if allowed; else until the same request would pass, Never if it cannot
	ResetAfter time.Duration // until the state of Rule is as new
	Delay      time.Duration // if allowed, until it is the request's turn: in a LeakyBucket's queue, or with MaxWait; else 0
	Rule       string        // if denied, the first rule that denies; if allowed, the one with the least left, the first of equals
	Span       time.Duration // the window of one span of Rule, if that has several: chosen among them like Rule among rules; else 0
}

// Allow takes one token for path from every rule, if all have room. The errors
// are those of [Limiter.Do].
func (l *Limiter) Allow(ctx context.Context, path ...string) (Result, error) {
	return l.Do(ctx, Request{Path: path, Cost: 1})
}

// AllowN takes cost tokens for path from every rule, if all have room. Cost 0
// asks and takes nothing. The errors are those of [Limiter.Do].
func (l *Limiter) AllowN(ctx context.Context, cost int64, path ...string) (Result, error) {
	return l.Do(ctx, Request{Path: path, Cost: cost})
}

// Peek answers what [Limiter.Allow] would, and changes nothing. The errors are
// those of [Limiter.Do].
func (l *Limiter) Peek(ctx context.Context, path ...string) (Result, error) {
	return l.Do(ctx, Request{Path: path, Cost: 1, Peek: true})
}

// TakeUpTo takes as many tokens for path as every rule has room for, up to most,
// and says how many in Granted: none if the answer is a denial, whose RetryAfter
// is that of one token. What is less than a token is not taken from any rule. A
// rule with a Cost of its own takes that once, if anything is taken. The error is
// [ErrUnsupported] if a rule's algorithm cannot do that, or as of [Limiter.Do].
func (l *Limiter) TakeUpTo(ctx context.Context, most int64, path ...string) (Result, error) {
	return l.Do(ctx, Request{Path: path, Cost: most, UpTo: true})
}

// Do decides r in one atomic step and one round trip. If any rule denies,
// nothing is taken from any and RetryAfter is the longest among those that deny.
//
// The error is [ErrInvalidCost], [ErrInvalidKey], [ErrInvalidMetadata],
// [ErrInvalidLease] or [ErrInvalidLimit] for a request that makes no sense, and one
// with its own text for a negative MaxWait, or an Each or Limits of a wrong length;
// [ErrUnsupported] for what a rule's algorithm does not do; one of package store,
// such as [store.ErrUnavailable], or ctx's, when the store could not decide;
// [store.ErrForeign] when a key holds someone else's value. An error says nothing
// of whether the request is allowed.
func (l *Limiter) Do(ctx context.Context, r Request) (Result, error) {
	s := l.scratch.Get().(*scratch)
	defer l.scratch.Put(s)
	var c call
	err := l.prepare(&c, s, &r, l.borrow)
	if err != nil {
		return Result{}, err
	}
	s.reply, err = l.store.Eval(ctx, c.script, s.keys, s.args, s.reply[:0])
	if err != nil {
		return Result{}, err
	}
	return l.result(&c, s.reply, r.Limits, r.Each)
}

// A scratch holds the buffers of one call.
type scratch struct {
	buf   []byte
	ends  []int
	keys  []string
	args  []store.Arg
	reply []store.Value
}

// A call is a request that was made ready for the store.
type call struct {
	plan   *plan
	script *store.Script
	ask    algorithm.Request // with UpTo, for one token
	most   int64             // with UpTo, to take; else 0
	take   bool              // the script commits
}

// prepare checks r and sets c, and the keys and arguments of s, the keys over its
// buffer if borrow says so.
func (l *Limiter) prepare(c *call, s *scratch, r *Request, borrow bool) error {
	if r.Cost < 0 {
		return fmt.Errorf("weir: %w: %d is negative", ErrInvalidCost, r.Cost)
	}
	if r.Each != nil && len(r.Each) != len(l.rules) {
		return fmt.Errorf("weir: Request.Each has %d elements: it must have one for each of the %d rules", len(r.Each), len(l.rules))
	}
	p, err := l.planFor(r.Limits)
	if err != nil {
		return err
	}
	// Cloned, as what goes to an algorithm takes a caller's path to the heap with it.
	c.plan, c.take = p, r.Cost > 0 && !r.Peek
	c.ask = algorithm.Request{Cost: r.Cost, Metadata: strings.Clone(r.Metadata), Lease: strings.Clone(r.Lease), MaxWait: r.MaxWait}
	mode := algorithm.Mode{UpTo: c.take && r.UpTo, Marked: c.take && r.ID != ""}
	if r.UpTo {
		c.ask.Cost = min(r.Cost, 1)
	}
	if err := l.checkRequest(r, &c.ask, c.take); err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	if err := l.space.check(r.Path); err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	now, err := l.now()
	if err != nil {
		return err
	}
	id := ""
	if mode.Marked {
		id = r.ID
	}
	l.setKeys(s, p, r.Path, id, borrow)
	s.args = l.appendArgs(s.args[:0], p, now, &c.ask, r.Limits)
	if !c.take {
		c.script = p.program.Peek
		return nil
	}
	if mode.UpTo {
		mode.Fixed, c.most = p.fixed, r.Cost
		s.args = p.program.AppendUpTo(s.args, r.Cost)
	}
	if c.script, err = p.program.Variant(mode); err != nil {
		return fmt.Errorf("weir: %w: %w", ErrUnsupported, err)
	}
	return nil
}

// checkRequest returns what a rule's algorithm cannot do of r. take says that it is
// more than a question.
func (l *Limiter) checkRequest(r *Request, ask *algorithm.Request, take bool) error {
	switch {
	case r.MaxWait < 0:
		return fmt.Errorf("Request.MaxWait is %v: it must be 0 or more", r.MaxWait)
	case r.Metadata != "" && !l.keeps:
		return fmt.Errorf("%w: Request.Metadata: no rule keeps it; algorithm.MetadataWindow does", ErrUnsupported)
	case r.Lease != "" && !l.leases:
		return fmt.Errorf("%w: Request.Lease: no rule holds leases; algorithm.Concurrency does", ErrUnsupported)
	case r.UpTo && r.MaxWait > 0:
		return fmt.Errorf("%w: Request.UpTo takes what is there now, so it has no MaxWait", ErrUnsupported)
	}
	marked := false
	for i := range l.rules {
		own := &l.rules[i]
		limit := l.limitOf(i, r.Limits)
		f := limit.Fragment()
		switch {
		case r.MaxWait > 0 && !f.Reserves:
			return fmt.Errorf("%w: Reserve, Wait and Request.MaxWait: rule %q is a %s, which cannot be taken from ahead of time; algorithm.GCRA, TokenBucket and LeakyBucket can", ErrUnsupported, own.name, f.Name)
		case r.UpTo && f.Fit == nil && own.cost == 0:
			return fmt.Errorf("%w: TakeUpTo: rule %q is a %s, which takes all or nothing: give the rule a Cost of its own", ErrUnsupported, own.name, f.Name)
		case r.ID != "" && f.Charge == nil && !f.Leases:
			return fmt.Errorf("%w: Refund and Request.ID: rule %q is a %s, which gives nothing back", ErrUnsupported, own.name, f.Name)
		case take && f.Leases && r.Lease == "":
			return fmt.Errorf("%w: rule %q is a %s: Request.Lease must name what the request holds, so that it can be released", ErrInvalidLease, own.name, f.Name)
		}
		marked = marked || f.Charge != nil
		if c, ok := limit.(algorithm.RequestChecker); ok {
			one := *ask
			one.Cost = l.costOf(i, ask.Cost)
			if err := c.CheckRequest(one); err != nil {
				return fmt.Errorf("rule %q: %w", own.name, err)
			}
		}
	}
	if r.ID != "" && !marked {
		return fmt.Errorf("%w: Refund and Request.ID: no rule has tokens to give back; end a lease with Release", ErrUnsupported)
	}
	return nil
}

// setKeys sets s.keys to the keys of p and, with an id, of its markers: over s.buf,
// if borrow says so.
func (l *Limiter) setKeys(s *scratch, p *plan, path []string, id string, borrow bool) {
	s.buf, s.ends, s.keys = s.buf[:0], s.ends[:0], s.keys[:0]
	for n, i := range p.rules {
		start := len(s.buf)
		s.buf = l.space.appendKey(s.buf, i, path)
		if keys := p.keys[n]; keys > 1 {
			base := len(s.buf)
			s.buf = appendNumber(s.buf, 0)
			for k := 1; k < keys; k++ {
				s.ends = append(s.ends, len(s.buf))
				s.buf = appendNumber(append(s.buf, s.buf[start:base]...), k)
			}
		}
		s.ends = append(s.ends, len(s.buf))
	}
	if id != "" {
		l.addMarkers(s, p, path, id)
	}
	text := unsafe.String(unsafe.SliceData(s.buf), len(s.buf))
	if !borrow {
		text = string(s.buf)
	}
	start := 0
	for _, end := range s.ends {
		s.keys = append(s.keys, text[start:end])
		start = end
	}
}

// addMarkers adds to the buffer of s the keys of p's markers, and then of its notes.
func (l *Limiter) addMarkers(s *scratch, p *plan, path []string, id string) {
	markers, notes := p.program.Markers()
	for n, i := range p.rules {
		if markers&(1<<n) != 0 {
			s.buf = appendID(l.space.appendKey(s.buf, i, path), id)
			s.ends = append(s.ends, len(s.buf))
		}
	}
	for n, i := range p.rules {
		if notes&(1<<n) != 0 {
			s.buf = append(l.space.appendKey(s.buf, i, path), noteKey...)
			s.ends = append(s.ends, len(s.buf))
		}
	}
}

// result turns a reply into an answer.
func (l *Limiter) result(c *call, reply []store.Value, limits []algorithm.Limit, each []Result) (Result, error) {
	p, ask := c.plan.program, c.ask
	n, now, err := p.Outcome(reply)
	if err != nil {
		return Result{}, fmt.Errorf("weir: %w", err)
	}
	most, cost := int64(1), ask.Cost
	if c.most > 0 {
		most, cost = c.most, max(n, 1)
	}
	if n > most {
		return Result{}, fmt.Errorf("weir: %w: %s replied %d, of %d at most", store.ErrScript, c.script.Name(), n, most)
	}
	ok := n > 0
	committed := ok && c.take
	var res Result
	var wait, delay time.Duration
	for n, i := range c.plan.rules {
		ask.Cost = l.costOf(i, cost)
		v := l.limitOf(i, limits).Verdict(now, committed, p.State(reply, n), ask)
		if ok && !v.Allowed {
			return Result{}, fmt.Errorf("weir: %w: rule %q let pass what it denies by its own reply", store.ErrScript, l.rules[i].name)
		}
		one := Result{
			Allowed: v.Allowed, Limit: v.Limit, Remaining: v.Remaining,
			RetryAfter: v.RetryAfter, ResetAfter: v.ResetAfter, Delay: v.Delay, Rule: l.rules[i].name, Span: v.Span,
		}
		if committed {
			one.Granted = ask.Cost
		}
		if each != nil {
			each[n] = one
		}
		wait, delay = max(wait, v.RetryAfter), max(delay, v.Delay)
		if n == 0 || ok && v.Remaining < res.Remaining || !ok && res.Allowed && !v.Allowed {
			res = one
		}
	}
	if !ok && res.Allowed {
		return Result{}, fmt.Errorf("weir: %w: it denied what every rule allows by its own reply", store.ErrScript)
	}
	res.RetryAfter, res.Delay = wait, 0
	if ok {
		res.Delay = delay
	}
	if committed {
		res.Granted = cost
	}
	return res, nil
}
