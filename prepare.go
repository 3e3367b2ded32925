package weir

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"
	"unsafe"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
)

// prepare checks r, and makes s ready for the store: its part, verb and call, the
// keys and the arguments. The keys are over s.buf if borrow says so. each is the
// length of the caller's slice.
func (b *bound) prepare(s *scratch, r *Request, each int, borrow bool) error {
	if each > 0 && each < len(b.rules) {
		return fmt.Errorf("weir: each has %d elements: it must have one for each of the %d rules, or none", each, len(b.rules))
	}
	if err := b.space.check(&r.Key); err != nil {
		return err
	}
	if r.Cost < 0 {
		return fail(ErrInvalidCost, "Request.Cost is %d: it must be at least 1, or 0, which means 1", r.Cost)
	}
	now, err := b.now()
	if err != nil {
		return err
	}
	s.op, s.part = r.Op, b.all
	s.call = compose.Call{Cost: 1, Now: now}
	switch r.Op {
	case Consume, Peek, TakeUpTo:
		err = b.prepareDecision(s, r)
	case Refund:
		s.verb, err = compose.Refund, b.checkRefund(r)
	case Renew:
		s.verb, s.part, s.call.Text, err = compose.Renew, b.leases, r.ID, b.checkLease(r)
	case Release:
		s.verb, s.part, s.call.Text, err = compose.Release, b.leases, r.ID, b.checkLease(r)
	case Reset:
		s.verb, s.part = compose.Reset, b.resets
		if s.part == nil {
			err = fail(ErrInvalidRule, "Reset: no rule is identified by the full key: name the rule to reset with Limiter.Only")
		}
	default:
		err = fail(ErrUnsupported, "Request.Op is %v: there is no such Op", r.Op)
	}
	if err != nil {
		return err
	}
	marks := s.verb == compose.ConsumeMark || s.verb == compose.UpToMark || s.verb == compose.Refund
	b.setKeys(s, r, marks, borrow)
	s.args = s.part.program.AppendArgs(s.args[:0], s.verb, &s.call)
	return nil
}

// prepareDecision checks a request that consumes or peeks.
func (b *bound) prepareDecision(s *scratch, r *Request) error {
	leases := b.leases != nil
	switch {
	case r.MaxWait < 0:
		return fmt.Errorf("weir: Request.MaxWait is %v: it must be 0 or more", r.MaxWait)
	case r.MaxWait > 0 && r.Op == TakeUpTo:
		return fail(ErrUnsupported, "TakeUpTo consumes what is there now: Request.MaxWait must be 0")
	case r.MaxWait > 0 && b.noWait >= 0:
		return b.unsupported("MaxWait, Wait and Reserve", b.noWait, "tokens of which cannot be reserved: algorithm.GCRA, TokenBucket and LeakyBucket can")
	case r.Op == TakeUpTo && b.ownCosts:
		return fail(ErrUnsupported, "TakeUpTo: every rule has a Cost of its own: a rule without one must bound the tokens")
	case r.Op == TakeUpTo && b.leaseCost >= 0:
		return b.unsupported("TakeUpTo", b.leaseCost, "which holds one lease for each request: give the rule the Cost 1")
	case r.Metadata != "" && b.keepers == 0:
		return fail(ErrUnsupported, "Request.Metadata: no rule keeps it: algorithm.MetadataWindow does")
	case len(r.Metadata) > algorithm.MaxMetadata:
		return fail(ErrInvalidMetadata, "Request.Metadata has %d bytes: it must have at most %d", len(r.Metadata), algorithm.MaxMetadata)
	case leases && r.ID == "" && r.Op != Peek:
		return fail(ErrInvalidLease, "Request.ID is empty: it must name the lease: call TryAcquire or Acquire, or set an ID")
	case leases && len(r.ID) > algorithm.MaxLease:
		return errLongLease(r)
	case !leases && r.ID != "" && b.noRefund >= 0:
		return b.errNoRefund(r.Op)
	}
	// What is more than any capacity is denied whatever it is, so it may be cut.
	cost := min(max(r.Cost, 1), contract.MaxTokens+1)
	if b.capped {
		var err error
		if cost, err = b.capCost(r.Op, cost); err != nil {
			return err
		}
	}
	s.call.Cost, s.call.Wait, s.call.Text = cost, int64(r.MaxWait/time.Microsecond), r.Metadata
	if leases {
		s.call.Text = r.ID
	}
	switch marks := r.ID != "" && !leases; {
	case r.Op == Peek:
		s.verb = compose.Peek
	case r.Op == TakeUpTo && marks:
		s.verb = compose.UpToMark
	case r.Op == TakeUpTo:
		s.verb = compose.UpTo
	case marks:
		s.verb = compose.ConsumeMark
	default:
		s.verb = compose.Consume
	}
	return nil
}

// capCost returns the cost of a request, if no rule has too low a MaxCost for it, or
// for TakeUpTo as much as all rules can consume at once.
func (b *bound) capCost(op Op, cost int64) (int64, error) {
	for i := range b.rules {
		most := b.rules[i].limit.MaxCost
		switch {
		case most == 0 || b.rules[i].cost > 0 || cost <= most:
		case op == TakeUpTo:
			cost = most
		case cost <= b.rules[i].limit.Capacity:
			return 0, fail(ErrInvalidCost, "the cost is %d: rule %q is a %s, which can consume at most %d at once", cost, b.rules[i].name, b.rules[i].limit.Kind.Name, most)
		}
	}
	return cost, nil
}

func (b *bound) checkRefund(r *Request) error {
	switch {
	case b.leases != nil:
		return fail(ErrUnsupported, "Refund: a rule holds leases: end the lease with Release, and put the rate in a limiter of its own to refund it")
	case b.noRefund >= 0:
		return b.errNoRefund(Refund)
	case r.ID == "":
		return fail(ErrInvalidKey, "Refund: Request.ID is empty: it must be that of the decision to refund")
	}
	return nil
}

func (b *bound) checkLease(r *Request) error {
	switch {
	case b.leases == nil:
		return fail(ErrUnsupported, "%v: no rule holds leases: algorithm.Concurrency does", r.Op)
	case r.ID == "":
		return fail(ErrInvalidLease, "%v: Request.ID is empty: it must name the lease", r.Op)
	case len(r.ID) > algorithm.MaxLease:
		return errLongLease(r)
	}
	return nil
}

func errLongLease(r *Request) error {
	return fail(ErrInvalidLease, "Request.ID has %d bytes: the name of a lease must have at most %d", len(r.ID), algorithm.MaxLease)
}

func (b *bound) errNoRefund(op Op) error {
	what := "Request.ID"
	if op == Refund {
		what = "Refund"
	}
	return b.unsupported(what, b.noRefund, "which cannot be refunded")
}

// unsupported returns an ErrUnsupported: what was asked, of rule i, and why not.
func (b *bound) unsupported(what string, i int, why string) error {
	return fail(ErrUnsupported, "%s: rule %q is a %s, %s", what, b.rules[i].name, b.rules[i].limit.Kind.Name, why)
}

// setKeys sets s.keys to the keys of s.part, and with marks those of its markers
// behind them.
func (b *bound) setKeys(s *scratch, r *Request, marks, borrow bool) {
	s.buf, s.ends, s.keys = b.space.appendHead(s.buf[:0], &r.Key), s.ends[:0], s.keys[:0]
	head := len(s.buf)
	for n, i := range s.part.rules {
		if n > 0 {
			s.buf = append(s.buf, s.buf[:head]...)
		}
		s.buf = b.space.appendTail(s.buf, b.rules[i].key, &r.Key)
		if keys := s.part.program.Keys(n); keys > 1 {
			start, base := 0, len(s.buf)
			if n > 0 {
				start = s.ends[len(s.ends)-1]
			}
			s.buf = appendNumber(s.buf, 0)
			for k := 1; k < keys; k++ {
				s.ends = append(s.ends, len(s.buf))
				s.buf = appendNumber(append(s.buf, s.buf[start:base]...), k)
			}
		}
		s.ends = append(s.ends, len(s.buf))
	}
	if marks {
		b.addMarkers(s, r, head)
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

// addMarkers adds the keys of the markers, and sets the call's generation. The keys
// depend on the whole key, the ID and the limits, so no other request finds them. The
// generation depends on the time too: if an ID is used again, it is another one.
func (b *bound) addMarkers(s *scratch, r *Request, head int) {
	s.text = s.text[:0]
	for n := range b.space.segments {
		s.text = append(b.space.appendSegment(s.text, n, &r.Key), ':')
	}
	s.text = append(s.text, b.limits[:]...)
	s.text = append(s.text, r.ID...)
	sum := sha256.Sum256(s.text)
	now := s.call.Now
	if now == 0 {
		now = time.Now().UnixMicro()
	}
	s.call.Gen = max(int64(binary.BigEndian.Uint64(sum[:])>>12)^now, 1)
	for n, i := range s.part.rules {
		if s.part.program.Marked(n) {
			s.buf = append(s.buf, s.buf[:head]...)
			s.buf = append(b.space.appendTail(s.buf, b.rules[i].key, &r.Key), ":%id="...)
			s.buf = hex.AppendEncode(s.buf, sum[:16])
			s.ends = append(s.ends, len(s.buf))
		}
	}
}
