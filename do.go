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
	Granted    int64         // tokens taken: the cost if allowed, else 0
	Limit      int64         // capacity of Rule, or of its Span, in tokens
	Remaining  int64         // whole tokens left now in Rule, or in its Span, also on a denial
	RetryAfter time.Duration // 0 if allowed; else until the same request would pass, Never if it cannot
	ResetAfter time.Duration // until the state of Rule is as new
	Delay      time.Duration // until it is the request's turn, for a queue; else 0
	Rule       string        // if denied, the first rule that denies; if allowed, the one with the least left, the first of equals
	Span       time.Duration // the window of one span of Rule, if that has several: chosen among them like Rule among rules; else 0
}

// Allow takes one token for path from every rule, if all have room. The errors
// are those of [Limiter.Do].
func (l *Limiter) Allow(ctx context.Context, path ...string) (Result, error) {
	return l.do(ctx, Request{Path: path, Cost: 1}, nil)
}

// AllowN takes cost tokens for path from every rule, if all have room. Cost 0
// asks and takes nothing. The errors are those of [Limiter.Do].
func (l *Limiter) AllowN(ctx context.Context, cost int64, path ...string) (Result, error) {
	return l.do(ctx, Request{Path: path, Cost: cost}, nil)
}

// Peek answers what [Limiter.Allow] would, and changes nothing. The errors are
// those of [Limiter.Do].
func (l *Limiter) Peek(ctx context.Context, path ...string) (Result, error) {
	return l.do(ctx, Request{Path: path, Cost: 1, Peek: true}, nil)
}

// Do decides r in one atomic step and one round trip. If any rule denies,
// nothing is taken from any and RetryAfter is the longest among those that deny.
//
// The error is [ErrInvalidCost], [ErrInvalidKey], [ErrInvalidMetadata] or, for
// metadata that no rule keeps, [ErrUnsupported] for a request that makes no
// sense; one of package store, such as [store.ErrUnavailable], or ctx's, when
// the store could not decide; [store.ErrForeign] when a key holds someone
// else's value. It says nothing of whether the request is allowed.
func (l *Limiter) Do(ctx context.Context, r Request) (Result, error) { return l.do(ctx, r, nil) }

// A scratch holds the buffers of one call.
type scratch struct {
	buf   []byte
	ends  []int
	keys  []string
	args  []store.Arg
	reply []store.Value
}

// do is Do; limit, if not nil, stands in for that of the first rule.
func (l *Limiter) do(ctx context.Context, r Request, limit algorithm.Limit) (Result, error) {
	if r.Cost < 0 {
		return Result{}, fmt.Errorf("weir: %w: %d is negative", ErrInvalidCost, r.Cost)
	}
	if r.Each != nil && len(r.Each) != len(l.rules) {
		return Result{}, fmt.Errorf("weir: Request.Each has %d elements: it must have one for each of the %d rules", len(r.Each), len(l.rules))
	}
	if r.Metadata != "" && !l.keeps {
		return Result{}, fmt.Errorf("weir: %w: Request.Metadata: no rule keeps it; algorithm.MetadataWindow does", ErrUnsupported)
	}
	// Cloned, as what goes to an algorithm takes a caller's path to the heap with it.
	ask := algorithm.Request{Cost: r.Cost, Metadata: strings.Clone(r.Metadata)}
	for i := range l.rules {
		if check := l.rules[i].check; check != nil {
			if err := check(l.request(i, ask)); err != nil {
				return Result{}, fmt.Errorf("weir: rule %q: %w", l.rules[i].name, err)
			}
		}
	}
	if err := l.space.check(r.Path); err != nil {
		return Result{}, fmt.Errorf("weir: %w", err)
	}
	now, err := l.now()
	if err != nil {
		return Result{}, err
	}

	s := l.scratch.Get().(*scratch)
	defer l.scratch.Put(s)
	l.setKeys(s, r.Path)
	s.args = l.appendArgs(s.args[:0], now, ask, limit)

	take := r.Cost > 0 && !r.Peek
	script := l.program.Peek
	if take {
		script = l.program.Decide
	}
	s.reply, err = l.store.Eval(ctx, script, s.keys, s.args, s.reply[:0])
	if err != nil {
		return Result{}, err
	}
	return l.result(s.reply, ask, take, limit, r.Each)
}

// setKeys sets s.keys to the keys of all rules: over s.buf, when the store keeps
// none of them.
func (l *Limiter) setKeys(s *scratch, path []string) {
	s.buf, s.ends, s.keys = s.buf[:0], s.ends[:0], s.keys[:0]
	for i := range l.rules {
		start := len(s.buf)
		s.buf = l.space.appendKey(s.buf, i, path)
		if n := l.rules[i].keys; n > 1 {
			base := len(s.buf)
			s.buf = appendNumber(s.buf, 0)
			for k := 1; k < n; k++ {
				s.ends = append(s.ends, len(s.buf))
				s.buf = appendNumber(append(s.buf, s.buf[start:base]...), k)
			}
		}
		s.ends = append(s.ends, len(s.buf))
	}
	text := unsafe.String(unsafe.SliceData(s.buf), len(s.buf))
	if !l.borrow {
		text = string(s.buf)
	}
	start := 0
	for _, end := range s.ends {
		s.keys = append(s.keys, text[start:end])
		start = end
	}
}

func (l *Limiter) appendArgs(args []store.Arg, now int64, r algorithm.Request, limit algorithm.Limit) []store.Arg {
	args = l.program.AppendNow(args, now)
	for i := range l.rules {
		args = l.limit(i, limit).AppendArgs(args, l.request(i, r))
	}
	return args
}

func (l *Limiter) limit(i int, first algorithm.Limit) algorithm.Limit {
	if i == 0 && first != nil {
		return first
	}
	return l.rules[i].limit
}

// request is what r asks of rule i.
func (l *Limiter) request(i int, r algorithm.Request) algorithm.Request {
	if c := l.rules[i].cost; c > 0 {
		r.Cost = c
	}
	return r
}

// result turns a reply into an answer. take says that the script was to commit.
func (l *Limiter) result(reply []store.Value, r algorithm.Request, take bool, limit algorithm.Limit, each []Result) (Result, error) {
	ok, now, err := l.program.Outcome(reply)
	if err != nil {
		return Result{}, fmt.Errorf("weir: %w", err)
	}
	committed := ok && take
	var res Result
	var wait time.Duration
	for i := range l.rules {
		req := l.request(i, r)
		v := l.limit(i, limit).Verdict(now, committed, l.program.State(reply, i), req)
		if ok && !v.Allowed {
			return Result{}, fmt.Errorf("weir: %w: rule %q let pass what it denies by its own reply", store.ErrScript, l.rules[i].name)
		}
		one := Result{
			Allowed: v.Allowed, Limit: v.Limit, Remaining: v.Remaining,
			RetryAfter: v.RetryAfter, ResetAfter: v.ResetAfter, Rule: l.rules[i].name, Span: v.Span,
		}
		if committed {
			one.Granted = req.Cost
		}
		if each != nil {
			each[i] = one
		}
		wait = max(wait, v.RetryAfter)
		if i == 0 || ok && v.Remaining < res.Remaining || !ok && res.Allowed && !v.Allowed {
			res = one
		}
	}
	if !ok && res.Allowed {
		return Result{}, fmt.Errorf("weir: %w: it denied what every rule allows by its own reply", store.ErrScript)
	}
	res.RetryAfter = wait
	if committed {
		res.Granted = r.Cost
	}
	return res, nil
}
