package weir

// A Wrapper makes a [Decider] that answers a request itself, or passes it on to next. lim
// has the rules, and no wrappers. A Wrapper that does not suit the rules, or the wrappers
// in next, returns an error.
type Wrapper func(lim *Limiter, next Decider) (Decider, error)

// A StandIn answers some requests in place of the store: it remembers a denial, or holds
// tokens. Package outage must stand inside it, because it would take such an answer for
// the store's.
type StandIn interface {
	Decider
	StandsIn()
}

// maxDepth is the largest number of nested Deciders that Find follows.
const maxDepth = 1000

// Find returns the first T among d and the Deciders inside it, which the method Unwrap()
// Decider returns. With Find, a [Wrapper] detects that it is used twice, or in a wrong
// order.
func Find[T any](d Decider) (found T, ok bool) {
	for range maxDepth {
		if d == nil {
			break
		}
		if found, ok = d.(T); ok {
			return found, true
		}
		switch around := d.(type) {
		case *Limiter:
			if d = nil; around != nil {
				d = around.outer
			}
		case interface{ Unwrap() Decider }:
			d = around.Unwrap()
		default:
			d = nil
		}
	}
	return found, false
}
