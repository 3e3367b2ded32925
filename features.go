package weir

import "github.com/weir-go/weir/algorithm/contract"

// A feature is something that some rules support, and others do not.
type feature uint8

const (
	reserves feature = 1 << iota // tokens can be reserved ahead of time
	debts                        // a Force can consume tokens beyond the limit
	leases                       // an allowed request holds a lease
	entries                      // the metadata of allowed requests is kept
	queues                       // requests leave one by one
)

// featuresOf returns the features of r.
func featuresOf(r *rule) (f feature) {
	set := func(has bool, one feature) {
		if has {
			f |= one
		}
	}
	switch k := r.limit.Kind.(type) {
	case *contract.MeterKind:
		set(k.Reserves, reserves)
		set(k.Queues, queues)
	case *contract.StepKind:
		set(k.Leases, leases)
		set(k.Entries, entries)
	}
	set(r.limit.MaxDebt > 0, debts)
	return f
}

// has reports whether r has a feature.
func (r *rule) has(f feature) bool { return r.features&f != 0 }

// kind returns the part of the rule's kind that all kinds have.
func (r *rule) kind() *contract.Head { return r.limit.Kind.Common() }
