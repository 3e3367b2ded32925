package conformance

import (
	"time"

	"github.com/weir-go/weir/store"
)

// A Fault makes a server fail while callers use a store on it.
type Fault struct {
	// Open returns the store under test, on a server that is not shared, and a
	// function that closes its client.
	Open func() (st store.Store, close func())

	// Begin starts the fault, and returns when it is in effect.
	Begin func()

	// End ends the fault, or waits for its end, and returns when the server can
	// serve.
	End func()

	// Within is the longest allowed time from the end of the fault until all
	// calls are served again. 0 means 5 s.
	Within time.Duration

	// Longest is the longest time that a call may take. Its context ends after
	// [CallTime]. 0 means four times CallTime.
	Longest time.Duration

	// Repeats is the largest number of times that the client sends a script
	// again if its reply was lost.
	Repeats int

	// Conns returns the number of connections of the server, without those of
	// the test. It can be nil.
	Conns func() int

	// Leaky is true if the client is known to leave goroutines or connections
	// open after it was closed. They are then not checked.
	Leaky bool

	// Loses is true if the server can lose acknowledged writes.
	Loses bool

	// Confirm waits until the fault cannot lose the writes that the server had
	// acknowledged before the call, for example until the replicas have them. If
	// Confirm cannot tell, it returns an error. Confirm can be nil, but not for the check
	// MasterKilledStill.
	Confirm func() error
}

// CallTime is the timeout of each call in a check of faults.
const CallTime = 250 * time.Millisecond

// A FaultOutcome is the outcome of a check of a fault.
type FaultOutcome struct {
	Check   string // the name of the check: Faults/Name
	Promise string // the promise of the check
	Passed  bool   // the check passed
	Skipped string // why the check was skipped, or empty

	Calls       int           // calls from the start of the fault until all callers were served
	Allowed     int           // calls that were allowed
	Unavailable int           // calls that returned ErrUnavailable
	Cancelled   int           // calls that returned the error of their context
	Slowest     time.Duration // the longest call
	Recovery    time.Duration // from the end of the fault until all callers were served
	Excess      int64         // tokens that callers were granted, but that the store no longer counts after the fault
	Unconfirmed int64         // tokens that callers were granted after the last Confirm; Excess must not be larger
}

// A faultCheck is a check of a fault.
type faultCheck struct {
	name string
	text string
	// If serves is true, no call may fail. If servesOne is true, no call that
	// decides over one key may fail.
	serves, servesOne bool
	// If still is true, nobody calls while the fault starts and ends, and all
	// writes are confirmed before.
	still bool
}
