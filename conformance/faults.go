package conformance

import (
	"testing"
	"time"

	"github.com/weir-go/weir/store"
)

// A Fault is what a server is made to suffer while callers ask a store over it.
type Fault struct {
	// Open returns the store under test, over a server that nobody else needs,
	// and what closes its client.
	Open func() (st store.Store, close func())

	// Begin brings the fault about, and returns when it is in effect.
	Begin func()

	// End ends the fault, or waits for its end, and returns when the server can
	// serve.
	End func()

	// Within is how long after the end service has to be back. 0 means 5 s.
	Within time.Duration

	// Longest is the longest that a call may take whose context ends after
	// [CallTime]. 0 means four times that.
	Longest time.Duration

	// Repeats is how often, at most, the client sends a step again whose reply
	// was lost.
	Repeats int

	// Conns, if not nil, returns how many connections the server has, but for
	// those of the test itself.
	Conns func() int

	// Leaky says that the client is known to leave something running or
	// connected when it is closed, which then is not looked for.
	Leaky bool

	// Loses says that the server can forget what it has acknowledged. If Confirm
	// is not nil, it returns when all that the server has acknowledged before
	// would outlive the fault, or an error if it cannot tell.
	Loses   bool
	Confirm func() error
}

// CallTime is how long a caller waits for an answer in a rule on faults.
const CallTime = 250 * time.Millisecond

// A FaultOutcome is what a store made of a fault.
type FaultOutcome struct {
	Rule    string // Faults/Name
	Promise string
	Passed  bool
	Skipped string // why it was not checked

	Calls       int // from the beginning of the fault until service was back
	Allowed     int // of these
	Unavailable int
	Cancelled   int           // with the error of their context, which was done
	Slowest     time.Duration // call
	Recovery    time.Duration // from the end of the fault until all were served
	Excess      int64         // tokens admitted and not charged to the state that was left
	Unconfirmed int64         // tokens admitted after the last Confirm, the most that Excess may be
}

// A faultRule says what a fault may do to callers.
type faultRule struct {
	name string
	text string
	// serves says that no call may fail; servesOne, no call that decides over
	// one key.
	serves, servesOne bool
	// still says that nobody asks while the fault begins and ends, and that all
	// is confirmed before.
	still bool
}

var faultRules = []faultRule{
	{name: "ScriptFlush", text: "a server that forgets its scripts, again and again, is not noticed", serves: true},
	{name: "Restart", text: "a server that restarts is unavailable until it is back, without scripts"},
	{name: "ConnectionsKilled", text: "a call whose connection the server closes is unavailable, and the next is served"},
	{name: "Paused", text: "a server that answers nothing costs a call no more than its context allows"},
	{name: "ClosedPort", text: "a port on which nobody listens is unavailable"},
	{name: "BlackHole", text: "a server that takes no connection costs a call no more than its context allows"},
	{name: "Latency", text: "a reply that comes too late is given to nobody"},
	{name: "Reset", text: "a connection that breaks in the middle of a reply is unavailable"},
	{name: "HalfOpen", text: "a connection over which nothing comes back costs a call no more than its context allows"},
	{name: "Loading", text: "a server that loads its data is unavailable"},
	{name: "ReadOnly", text: "a server that was demoted is unavailable, and its connections are not kept"},
	{name: "MasterDown", text: "a replica without its master is unavailable"},
	{name: "NoReplicas", text: "a server with too few replicas to write is unavailable"},
	{name: "Misconf", text: "a server that cannot save, and so does not write, is unavailable"},
	{name: "Busy", text: "a server that is busy with someone's script is unavailable"},
	{name: "NoPermission", text: "a server that forbids scripts is unavailable"},
	{name: "WrongPassword", text: "a server that takes the password no more is unavailable"},
	{name: "TooManyClients", text: "a server that takes no more clients is unavailable"},
	{name: "OutOfMemory", text: "a server without memory is unavailable, and forgets nothing"},
	{name: "Eviction", text: "a server that evicts keys is not noticed, and admits anew whom it forgot", serves: true},
	{name: "ClusterDown", text: "a cluster that has lost slots is unavailable"},
	{name: "ClusterFailover", text: "a master that hands over to its replica costs no token"},
	{name: "MasterKilled", text: "a killed master costs no more tokens than were unconfirmed"},
	{name: "MasterKilledStill", text: "a killed master costs no confirmed token", still: true},
	{name: "MasterPaused", text: "a master that wakes up behind its successor costs no more tokens than were unconfirmed"},
	{name: "SentinelFailover", text: "a master that sentinels replace costs no more tokens than were unconfirmed"},
	{name: "Migration", text: "a slot that moves leaves decisions over several keys unavailable, and serves those over one", servesOne: true},
}

// FaultRules returns the names of all rules on faults, in the order in which they
// are listed.
func FaultRules() []string {
	names := make([]string, len(faultRules))
	for i, r := range faultRules {
		names[i] = "Faults/" + r.name
	}
	return names
}

// RunFaults checks what a store makes of faults, each in a parallel subtest. Makers
// has, by the name of a rule without "Faults/", what makes the fault; all keys
// of a rule lie in the slot of key. A rule without maker is skipped. Record, if
// not nil, is told each outcome; it may be called by several goroutines.
//
// Callers ask the store all the time, each with a context of [CallTime], before,
// during and after the fault. Whatever that is, no call may panic, none may
// end in an error that is neither [store.ErrUnavailable] nor that of its
// context, none may be let pass that was not charged, none may get another's
// answer, and once the fault is over service comes back, and nothing is left
// running, nor connected, when the client is closed.
func RunFaults(t *testing.T, makers map[string]func(t *testing.T, key string) Fault, record func(FaultOutcome)) {
	known := map[string]bool{}
	for _, r := range faultRules {
		known[r.name] = true
	}
	for name := range makers {
		if !known[name] {
			t.Errorf("conformance: %q is no rule on faults", name)
		}
	}
	t.Run("Faults", func(t *testing.T) {
		for _, r := range faultRules {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				out := FaultOutcome{Rule: "Faults/" + r.name, Promise: r.text}
				if record != nil {
					defer func() { record(out) }()
				}
				maker := makers[r.name]
				if maker == nil {
					out.Skipped = "backend makes no such fault"
					t.Skip(out.Skipped)
				}
				w := newWeather(r)
				w.suffer(t, maker(t, w.key), &out)
				for _, f := range w.failures {
					t.Errorf("broken: %s\n%s", r.text, f)
				}
				out.Passed = !t.Failed()
			})
		}
	})
}
