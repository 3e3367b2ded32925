package histories

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir"
)

// ask makes the request r of the limiter of v. It returns the answers of v.rules.
func (h *history) ask(v *version, r weir.Request) (res weir.Result, each []weir.Result, err error) {
	all := make([]weir.Result, len(v.index))
	res, err = v.lim.Decide(h.ctx, r, all)
	for _, rule := range v.rules {
		each = append(each, all[v.index[rule.Name]])
	}
	if v.places() {
		h.placed = all[v.index["x"]]
	}
	return res, each, err
}

// ends returns when the leases or the pauses of a user end, or have ended, by ID. kind is the
// name of their rule.
func (h *history) ends(kind, user string) map[string]int64 {
	if h.until[kind+user] == nil {
		h.until[kind+user] = map[string]int64{}
	}
	return h.until[kind+user]
}

// running returns when the leases of a user end that are held, in order.
func (h *history) running(user string) []int64 {
	ends := slices.Sorted(maps.Values(h.ends("x", user)))
	return slices.DeleteFunc(ends, func(end int64) bool { return end <= h.c.Micros })
}

// holds reports whether the lease that r names is held.
func (h *history) holds(r *weir.Request) bool {
	return h.ends("x", user(r))[r.ID] > h.c.Micros
}

func user(r *weir.Request) string { return r.Key.Segments()[1] }

// seePlaces compares the leases of a user with the model. left of manyPlaces are free.
func (h *history) seePlaces(v *version, user string, left int64) error {
	var peeks []weir.Request
	for id, end := range h.ends("x", user) {
		if end > h.c.Micros {
			peeks = append(peeks, weir.Request{Key: key(user), Op: weir.Peek, ID: id})
		}
	}
	if n := manyPlaces - left; n != int64(len(peeks)) {
		return fmt.Errorf("at %d: %d leases of %s are held, want %v", h.c.Micros, n, user, h.ends("x", user))
	}
	for i, a := range v.one.DoMany(h.ctx, peeks) { // the only place is free for who has it
		if a.Err != nil || !a.Result.Allowed {
			return fmt.Errorf("at %d: the lease of %q is not held: got %+v, want %v", h.c.Micros, peeks[i].ID, a, h.ends("x", user))
		}
	}
	return nil
}

// free reports whether a request r finds a place, or needs none, and its key is not paused.
func (h *history) free(v *version, r *weir.Request) bool {
	if r.Op == weir.Force {
		return true
	}
	if v.pauses() && h.ends("p", user(r))["pause"] > h.c.Micros {
		h.stats.Paused++
		return false
	}
	return !v.places() || h.holds(r) || int64(len(h.running(user(r)))) < v.place.Limit
}

// took notes that a request r was allowed, and checks the answer of the rule that holds leases.
// free is as before the request.
func (h *history) took(v *version, r *weir.Request, free, allowed bool) error {
	if !v.places() {
		return nil
	}
	held := h.holds(r)
	if allowed && r.Op != weir.Force && r.Op != weir.Peek {
		if ends := h.ends("x", user(r)); !held {
			h.stats.Taken++
			maps.DeleteFunc(ends, func(_ string, end int64) bool { return end <= h.c.Micros })
		}
		h.extend("x", r, v.place.Lease)
	}
	live, after := h.running(user(r)), time.Duration(0)
	if n := len(live) - int(v.place.Limit); n >= 0 && !free && !held {
		after = time.Duration(live[n]-h.c.Micros) * time.Microsecond
	}
	got := h.placed
	if left := max(v.place.Limit-int64(len(live)), 0); got.Remaining != left || got.RetryAfter != after || got.Allowed != (after == 0) {
		return fmt.Errorf("rule x: got %+v, want %d places, %v until one is free", got, left, after)
	}
	return nil
}

// extend notes that a lease or a pause lasts for d from now on, or longer.
func (h *history) extend(kind string, r *weir.Request, d time.Duration) {
	ends := h.ends(kind, user(r))
	ends[r.ID] = max(ends[r.ID], h.c.Micros+d.Microseconds())
	h.events = append(h.events, ends[r.ID])
}

// lose sometimes sends a decision whose answer nobody sees, or two in a batch.
func (h *history) lose(v *version, r weir.Request, say func(string, ...any)) bool {
	if !h.work || v.life == 0 || r.ID == "" || r.Op == weir.Peek || h.r.IntN(6) > 0 {
		return false
	}
	h.stats.Lost++
	say("unseen: %+v", v.lim.DoMany(h.ctx, slices.Repeat([]weir.Request{r}, 1+h.r.IntN(2))))
	return true
}

// anew reports whether a repeat of d, no mark of which is found, is a new decision that leaves
// nothing of the old one.
func (h *history) anew(v *version, d *decision) bool {
	left := maps.Clone(d.marks)
	for _, r := range v.rules {
		delete(left, id(r))
	}
	return h.work && v.life > 0 && len(left) == 0
}

// keep renews or releases the lease of d, which can be nil, or begins or ends a pause.
func (h *history) keep(v *version, user string, d *decision, say func(string, ...any)) error {
	r := weir.Request{Key: key(user), ID: "pause", Op: pick(h.r, weir.Pause, weir.Resume), For: time.Duration(1+h.r.IntN(5)) * time.Second}
	kind, can, lasts := "p", v.pauses(), r.For
	if d != nil && h.r.IntN(3) > 0 {
		r = weir.Request{Key: d.Key, ID: d.ID, Op: pick(h.r, weir.Renew, weir.Release)}
		kind, can, lasts = "x", v.places(), v.place.Lease
	}
	res, _, err := h.ask(v, r)
	say("%v %q for %v: %+v, %v", r.Op, r.ID, lasts, res, err)
	held := h.ends(kind, user)[r.ID] > h.c.Micros
	switch {
	case !can:
		return is(err, weir.ErrUnsupported)
	case err != nil || res.Allowed != (held || r.Op == weir.Pause) || res.Replayed || res.Granted != 0:
		return fmt.Errorf("got %+v, %v, want allowed %v", res, err, held)
	case r.Op == weir.Release || r.Op == weir.Resume:
		delete(h.ends(kind, user), r.ID)
	case res.Allowed:
		h.extend(kind, &r, lasts)
	}
	return nil
}

// finishes sometimes makes r a Finish, with a cost that does not count.
func (h *history) finishes(r *weir.Request) bool {
	if h.work && h.r.IntN(2) == 0 {
		r.Op, r.Cost, r.Costs = weir.Finish, h.r.Int64N(12), h.amounts(weir.Costs{}, 2)
	}
	return r.Op == weir.Finish
}

// finished checks and notes that a Finish r, which was sent twice, ended a lease, and found the
// bill or not. It makes the answers those of a Settle.
func (h *history) finished(v *version, r *weir.Request, res, again *weir.Result, found bool) error {
	held, second := found, found
	if h.stats.Finished++; v.places() {
		held, second = h.holds(r), false
		delete(h.ends("x", user(r)), r.ID)
	}
	if res.Allowed != held || res.Replayed != found || r.Actual != weir.ActualRefund() && (again.Allowed != second || again.Replayed != found) {
		return fmt.Errorf("got %+v, and then %+v, want allowed %v, replayed %v", res, again, held, found)
	}
	res.Allowed, res.Replayed, again.Allowed, again.Replayed = res.Replayed, false, again.Replayed, false
	return nil
}

// withoutBill asks a limiter without Options.Settles to adjust a bill. Only a Finish without
// amounts works, and releases the lease.
func (h *history) withoutBill(v *version, r weir.Request, say func(string, ...any)) error {
	held := h.holds(&r)
	res, _, err := h.ask(v, r)
	say("%v %q without a bill: %+v, %v", r.Op, r.ID, res, err)
	if h.stats.Plain++; r.Op != weir.Finish || r.Actual != (weir.Actual{}) {
		return is(err, weir.ErrUnsupported)
	}
	if delete(h.ends("x", user(&r)), r.ID); err != nil || res != (weir.Result{Allowed: held}) {
		return fmt.Errorf("got %+v, %v, want allowed %v", res, err, held)
	}
	return nil
}
