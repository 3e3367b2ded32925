package weir

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// buffers are those of one request: they are reused.
type buffers struct {
	text  []byte // the text that is hashed for the names of markers
	buf   []byte // the keys, one after the other
	ends  []int  // where each key ends in buf
	keys  []string
	args  []store.Arg
	reply []store.Value
	flat  []store.Value

	answers []compose.Result
	amounts compose.Amounts
}

var bufferPool = sync.Pool{New: func() any { return &buffers{buf: make([]byte, 0, 512)} }}

// pack fills s for the store: the keys and the arguments of q. If borrow is true, the
// keys point into s.buf.
func (b *ruleSet) pack(s *buffers, q *query, r *Request, borrow bool) {
	b.setKeys(s, q, r, borrow)
	s.args = q.Program.AppendArgs(s.args[:0], q.Verb, &q.Call)
}

// setKeys sets s.keys to the keys of q's rules. If q has markers, their keys follow.
func (b *ruleSet) setKeys(s *buffers, q *query, r *Request, borrow bool) {
	s.buf, s.ends, s.keys = b.space.appendHead(s.buf[:0], &r.Key), s.ends[:0], s.keys[:0]
	head := len(s.buf)
	for n, rule := range q.group.rules {
		if n > 0 {
			s.buf = append(s.buf, s.buf[:head]...)
		}
		s.buf = b.space.appendTail(s.buf, rule.key, &r.Key)
		if keys := q.Program.Keys(n); keys > 1 {
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
	if q.Verb.Markers() {
		b.addMarkers(s, q, r, head)
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

// addMarkers adds the keys of the markers, and sets the call's generation. A marker's key
// is its rule's, with a hash of the whole key and the ID. It does not depend on the
// limits, so a decision is found after they have changed. The generation also depends on
// the time, the number of calls, the limits, and the cost of a Settle: if an ID is used
// again, the generation differs, even if the clock stands still, and even if another
// limiter uses it.
//
// If the rule counts a unit, the last 4 bytes of the hash depend on it, so that the decision
// of another unit is not found.
func (b *ruleSet) addMarkers(s *buffers, q *query, r *Request, head int) {
	s.text = s.text[:0]
	for n := range b.space.segments {
		s.text = append(b.space.appendSegment(s.text, n, &r.Key, true), ':')
	}
	s.text = append(s.text, r.ID...)
	sum := sha256.Sum256(s.text)
	now := q.Call.Now
	if now == 0 {
		now = time.Now().UnixMicro()
	}
	gen := binary.BigEndian.Uint64(sum[:]) ^ binary.BigEndian.Uint64(b.limits[:]) ^ b.space.calls.Add(1)*hashFactor
	if q.Verb.Settles() {
		costs := uint64(q.Call.Cost) + 1
		for i := range b.space.units {
			if q.Call.Amounts != nil {
				costs = costs*hashFactor + uint64(q.Call.Amounts[i]) + 1
			}
		}
		gen ^= costs * hashFactor << 32
	}
	q.Call.Gen = max(int64(gen>>12)^now, 1)
	for n, rule := range q.group.rules {
		if q.Program.Marked(n) {
			s.buf = append(s.buf, s.buf[:head]...)
			s.buf = append(b.space.appendTail(s.buf, rule.key, &r.Key), ":%id="...)
			id := [16]byte(sum[:])
			if rule.unit > 0 {
				for i, b := range rule.unitHash {
					id[12+i] ^= b
				}
			}
			s.buf = hex.AppendEncode(s.buf, id[:])
			s.ends = append(s.ends, len(s.buf))
		}
	}
}

// appendNumber appends ":" and n to b. If a rule has several keys, each of them ends in
// its own number.
func appendNumber(b []byte, n int) []byte {
	return strconv.AppendInt(append(b, ':'), int64(n), 10)
}

// setAmounts sets the amounts of the call of q to c, which is the given field of the
// request. Those that c does not name are other.
func (b *ruleSet) setAmounts(q *query, field string, c *Costs, other int64) (named uint, err error) {
	if q.Call.Amounts == nil && b.can.any(counts) {
		q.Call.Amounts = new(compose.Amounts)
	}
	a := q.Call.Amounts // nil if no rule counts a unit: the amounts are then only checked
	if a != nil {
		for i := range b.space.units {
			a[i] = other
		}
	}
	switch n := c.amounts[0]; {
	case c.units != badUnits:
	case n > MaxUnits:
		return 0, fail(ErrInvalidCost, "%s names %d units: it must name at most %d", field, n, MaxUnits)
	default:
		return 0, fail(ErrInvalidCost, "%s names a unit \"\": each unit needs a name", field)
	}
	for name, amount := range c.All() {
		n := slices.Index(b.space.units, name)
		switch {
		case n < 0:
			return 0, fail(ErrInvalidCost, "%s names the unit %q: Policy.Units must declare it: it has %s", field, name, b.space.unitList())
		case amount < 0:
			return 0, fail(ErrInvalidCost, "%s has %d of the unit %q: it must be 0 or more", field, amount, name)
		}
		if a != nil {
			a[n] = min(amount, contract.MaxTokens+1)
		}
		named |= 1 << n
	}
	return named, nil
}

// checkCosts checks Request.Costs of a request that consumes or peeks, and sets the amounts
// of q.
func (b *ruleSet) checkCosts(q *query, r *Request) error {
	named, err := b.setAmounts(q, "Request.Costs", &r.Costs, 0)
	if err != nil {
		return err
	}
	for i := range b.rules {
		rule := &b.rules[i]
		if rule.unit == 0 {
			continue
		}
		amount := &q.Call.Amounts[rule.unit-1]
		if named>>(rule.unit-1)&1 == 0 {
			unit := b.space.units[rule.unit-1]
			return fail(ErrInvalidCost, "rule %q counts the unit %q, which Request.Costs does not name: name it with CostsOf, even if its amount is 0, and call Decide or another method that takes a Request", rule.name, unit)
		}
		if *amount, err = rule.capCost(r.Op, *amount, rule.limit.MaxDebt); err != nil {
			return err
		}
	}
	return nil
}

// checkActual checks the amounts of Request.Actual of a Settle, and sets those of q.
func (b *ruleSet) checkActual(q *query, r *Request) error {
	actual := r.Actual.Costs()
	if _, err := b.setAmounts(q, "Request.Actual", &actual, script.Unnamed); err != nil {
		return err
	}
	for i := range b.rules {
		if rule := &b.rules[i]; rule.unit > 0 {
			if _, err := rule.capCost(Settle, q.Call.Amounts[rule.unit-1], rule.limit.MaxDebt); err != nil {
				return err
			}
		}
	}
	return nil
}
