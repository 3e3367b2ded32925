package weir

import (
	"context"

	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/storekey"
)

var _ Decider = (*Limiter)(nil)

// Decide makes the decision that r asks for. Most other methods, such as Allow, call it.
//
// If each is not empty, Decide stores the result of each rule in it, in the order of
// [Policy].Rules and without the shadow rules. Its Allowed reports whether that rule
// alone allows the request.
//
// The package documentation has the errors of an outage. Otherwise, the error is
// [store.ErrForeign] if a key holds a value that no limiter wrote, and [store.ErrScript]
// if the script failed. Misuse is an [ErrInvalidKey], [ErrInvalidCost],
// [ErrInvalidLease], [ErrInvalidMetadata], [ErrInvalidRule] or [ErrUnsupported].
func (l *Limiter) Decide(ctx context.Context, r Request, each []Result) (res Result, err error) {
	err = l.decide(ctx, &r, each, &res)
	return res, err
}

// decide is Decide. If there is no error, it sets res, which is zero. A Request and a
// Result are large, so they are copied only for wrappers.
func (l *Limiter) decide(ctx context.Context, r *Request, each []Result, res *Result) (err error) {
	switch {
	case l == nil || l.outer == nil:
		return errNoLimiter
	case len(l.wrappers) == 0:
		return l.ruleSet.decide(ctx, r, each, res)
	}
	*res, err = l.outer.Decide(ctx, *r, each)
	return err
}

// Decide implements [Decider], inside all wrappers.
func (b *ruleSet) Decide(ctx context.Context, r Request, each []Result) (res Result, err error) {
	err = b.decide(ctx, &r, each, &res)
	return res, err
}

// decide checks the request, and makes the decision in the way of b.
func (b *ruleSet) decide(ctx context.Context, r *Request, each []Result, res *Result) error {
	if b.way != inLine || !r.plain() || !b.space.fits(&r.Key) || ctx.Err() != nil {
		return b.decideBy(ctx, b.way, r, each, res)
	}
	key := storekey.Key{Frame: &b.rules[0].key.frame}
	var s *buffers
	if part := &b.space.shared; part.alone(&r.Key) {
		key.Shared = r.Key.segments[part.one]
	} else {
		var room [256]byte
		key.Shared = b.space.build(part, &r.Key, room[:0], &s)
	}
	done := b.decideInLine(&key, cutCost(r.Cost), res)
	if s != nil {
		bufferPool.Put(s)
	}
	if !done {
		return b.decideBy(ctx, byScript, r, each, res)
	}
	if len(each) > 0 {
		each[0] = *res
	}
	return nil
}

// decideInLine decides on the record of key in the memory store: see
// [compose.Program.DecideInLine].
func (b *ruleSet) decideInLine(key *storekey.Key, cost int64, res *Result) bool {
	record, locked := b.memory.LockKey(key)
	defer locked.Unlock() // even if an algorithm panics
	if record == nil {
		return false
	}
	now, err := b.memory.Now()
	return err == nil && b.all.program.DecideInLine(now, record, cost, composed(res))
}

// decideBy is decide in every way except inLine: instead of it, it decides onSlots.
func (b *ruleSet) decideBy(ctx context.Context, way way, r *Request, each []Result, res *Result) error {
	if way >= withUnits {
		if way == withShadows {
			return b.decideBeside(ctx, r, each, res)
		}
		return b.decideUnits(ctx, r, each, res)
	}
	var q query
	if err := b.check(&q, r, len(each)); err != nil {
		return err
	}
	if way != byScript && q.OnlyCells() && ctx.Err() == nil && b.decideOnSlots(&q, r, each, res) {
		return nil
	}
	return b.eval(ctx, &q, r, each, res)
}

// decideUnits is decideBy for rules that count units. Their amounts are in buffers.
func (b *ruleSet) decideUnits(ctx context.Context, r *Request, each []Result, res *Result) error {
	s := bufferPool.Get().(*buffers)
	defer bufferPool.Put(s)
	var q query
	q.Call.Amounts = &s.amounts
	if err := b.check(&q, r, len(each)); err != nil {
		return err
	}
	if b.memory != nil && b.all.program.HasCells() && q.OnlyCells() && ctx.Err() == nil && b.decideOnSlots(&q, r, each, res) {
		return nil
	}
	return b.eval(ctx, &q, r, each, res)
}

// eval makes the decision with the script of q.
func (b *ruleSet) eval(ctx context.Context, q *query, r *Request, each []Result, res *Result) error {
	s := bufferPool.Get().(*buffers)
	defer bufferPool.Put(s)
	b.pack(s, q, r, b.borrow)
	var err error
	s.reply, err = b.store.Eval(ctx, q.Program.Script(q.Verb), s.keys, s.args, s.reply[:0])
	if err != nil {
		return err
	}
	return b.result(q, s, s.reply, each, res)
}

// decideOnSlots decides q on the records of the memory store, without a script. It returns
// false if Eval must decide, for example because a key is missing. The slots are on the
// stack. Go zeroes the arrays on each call, hence three sizes.
func (b *ruleSet) decideOnSlots(q *query, r *Request, each []Result, res *Result) bool {
	switch n := len(b.rules); {
	case n == 1:
		var places [1]storekey.Place
		var slots [1]compose.Slot
		return b.decideOn(places[:], slots[:], q, r, each, res)
	case n <= 4:
		var places [4]storekey.Place
		var slots [4]compose.Slot
		return b.decideOn(places[:n], slots[:n], q, r, each, res)
	default:
		var places [MaxRules]storekey.Place
		var slots [MaxRules]compose.Slot
		return b.decideOn(places[:n], slots[:n], q, r, each, res)
	}
}

// decideOn is decideOnSlots with room for the places and slots of all rules.
func (b *ruleSet) decideOn(places []storekey.Place, slots []compose.Slot, q *query, r *Request, each []Result, res *Result) bool {
	s := b.space.setPlaces(places, b.rules, &r.Key)
	var done bool
	if len(places) == 1 {
		done = b.decideOnPlace(places, slots, q, each, res)
	} else {
		done = b.decideOnPlaces(places, slots, q, each, res)
	}
	if s != nil {
		bufferPool.Put(s)
	}
	return done
}

// decideOnPlace is decideOn for one place, which has a key. LockKey takes fewer instructions
// than LockKeys.
func (b *ruleSet) decideOnPlace(places []storekey.Place, slots []compose.Slot, q *query, each []Result, res *Result) bool {
	record, locked := b.memory.LockKey(&places[0].Key)
	defer locked.Unlock() // even if an algorithm panics
	places[0].Record = record
	now, err := b.memory.Now()
	return err == nil && q.DecideOnSlots(now, places, slots, composedList(each), composed(res))
}

// decideOnPlaces is decideOn for places that have keys.
func (b *ruleSet) decideOnPlaces(places []storekey.Place, slots []compose.Slot, q *query, each []Result, res *Result) bool {
	one := b.memory.LockKeys(places)
	defer b.memory.UnlockKeys(places, one) // even if an algorithm panics
	now, err := b.memory.Now()
	return err == nil && q.DecideOnSlots(now, places, slots, composedList(each), composed(res))
}
