package conformance

import (
	"fmt"
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
	// serve. The fault must last until End is called, or make a call fail before Begin
	// returns.
	End func()

	// Within is the longest allowed time from the end of the fault until all
	// calls are served again. 0 means 5 s.
	Within time.Duration

	// Longest is the longest time that a call may take, even if the fault lasts longer.
	// Its context ends after [CallTime]. 0 means four times CallTime.
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

// A FaultOutcome counts what happened in a check of a fault.
type FaultOutcome struct {
	Calls       int           // calls from the start of the fault until all callers were served
	Allowed     int           // calls that were allowed
	Unavailable int           // calls that returned ErrUnavailable
	Cancelled   int           // calls that returned the error of their context
	Slowest     time.Duration // the longest call
	Recovery    time.Duration // from the end of the fault until all callers were served
	Excess      int64         // tokens that callers were granted, but that the store no longer counts after the fault
	Unconfirmed int64         // tokens that callers were granted after the last Confirm; Excess must not be larger
}

// String returns o as one line.
func (o FaultOutcome) String() string {
	return fmt.Sprintf("%d calls: %d allowed, %d unavailable, %d ended by their context; the slowest took %v; served again after %v; %d tokens lost",
		o.Calls, o.Allowed, o.Unavailable, o.Cancelled, o.Slowest.Round(time.Millisecond), o.Recovery.Round(time.Millisecond), o.Excess)
}

// A faultCheck is a check of a fault.
type faultCheck struct {
	name string
	text string
	// If serves is true, no call may fail. If servesOne is true, no call that
	// decides over one key may fail.
	serves, servesOne bool
	// If mild is true, the fault may make no call fail.
	mild bool
	// If still is true, nobody calls while the fault starts and ends, and all
	// writes are confirmed before.
	still bool
}
