package conformance

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weir-go/weir/internal/report"
)

var faultChecks = []faultCheck{
	{name: "ScriptFlush", text: "if a server loses its scripts again and again, callers do not notice", serves: true, mild: true},
	{name: "Restart", text: "a server that restarts is unavailable until it is back, and has lost its scripts"},
	{name: "ConnectionsKilled", text: "a call whose connection the server closes is unavailable, and the next call is served"},
	{name: "Paused", text: "if a server does not answer, a call ends with its context"},
	{name: "ClosedPort", text: "a port on which no server listens is unavailable"},
	{name: "BlackHole", text: "if a server accepts no connection, a call ends with its context"},
	{name: "Latency", text: "a reply that comes too late is given to no other call"},
	{name: "Reset", text: "a connection that breaks in the middle of a reply is unavailable"},
	{name: "HalfOpen", text: "if no reply comes over a connection, a call ends with its context"},
	{name: "Loading", text: "a server that loads its data is unavailable"},
	{name: "ReadOnly", text: "a server that was demoted is unavailable, and its connections are closed"},
	{name: "MasterDown", text: "a replica without its master is unavailable"},
	{name: "NoReplicas", text: "a server with too few replicas to write is unavailable"},
	{name: "Misconf", text: "a server that rejects writes because it cannot save is unavailable"},
	{name: "Busy", text: "a server that is busy with a long script is unavailable"},
	{name: "NoPermission", text: "a server that forbids scripts is unavailable"},
	{name: "WrongPassword", text: "a server that no longer accepts the password is unavailable"},
	{name: "TooManyClients", text: "a server that accepts no more clients is unavailable"},
	{name: "OutOfMemory", text: "a server without memory is unavailable, and loses nothing"},
	{name: "Eviction", text: "a server that evicts keys serves every call, and an evicted limit is full again", serves: true, mild: true},
	{name: "ClusterDown", text: "a cluster that has lost slots is unavailable"},
	{name: "ClusterFailover", text: "a planned failover to a replica loses no token", mild: true},
	{name: "MasterKilled", text: "if a master is killed, no more tokens are lost than were unconfirmed"},
	{name: "MasterKilledStill", text: "if a master is killed, no confirmed token is lost", still: true, mild: true},
	{name: "MasterPaused", text: "if a master is paused and replaced, no more tokens are lost than were unconfirmed"},
	{name: "SentinelFailover", text: "if sentinels replace a master, no more tokens are lost than were unconfirmed"},
	{name: "Migration", text: "while a slot moves, decisions over one key are served, and decisions over several keys are unavailable", servesOne: true},
}

// FaultChecks returns the names of the checks of faults that the suite knows, in the order
// in which they run. Each is "Faults/" and the name of a fault.
func FaultChecks() []string {
	names := make([]string, len(faultChecks))
	for i, c := range faultChecks {
		names[i] = "Faults/" + c.name
	}
	return names
}

// faults returns the checks of the faults of b: those that the suite knows, and then the
// others by name.
func (b Backend) faults() []faultCheck {
	var list []faultCheck
	rest := maps.Clone(b.Faults)
	for _, c := range faultChecks {
		if b.Faults[c.name] != nil {
			list = append(list, c)
		}
		delete(rest, c.name)
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		list = append(list, faultCheck{name: name, text: "during the fault, a call is served, is unavailable, or ends with its context"})
	}
	return list
}

// RunFaults runs the checks of b.Faults alone, each in a parallel subtest. It ignores the
// fields of b that describe a store without faults, and the checks of other names in
// b.Unsupported. [Run] runs these checks after all others.
//
// Callers call the store before, during and after a fault. The context of each call ends
// after [CallTime]. A fault lasts until each caller has got an answer. A fault that makes
// calls fail also lasts until one has failed. These promises hold under every fault:
//   - No call panics.
//   - A call that fails returns [store.ErrUnavailable] or the error of its context.
//   - A call ends soon after its context, even if the fault lasts.
//   - No call is allowed without consuming its tokens, and a later Peek counts them.
//   - No call gets the answer to another call.
//   - After the fault, all calls are served again.
//   - When the client is closed, no goroutine and no connection is left.
func RunFaults(t *testing.T, b Backend) {
	if len(b.Faults) == 0 {
		t.Fatal("conformance: Backend.Faults is empty: it must have a function for each fault")
	}
	reasons := maps.Clone(b.Unsupported)
	maps.DeleteFunc(reasons, func(name, _ string) bool { return !strings.HasPrefix(name, "Faults/") })
	run(t, b, nil, declared{reasons, "store", "Backend.Unsupported"})
}

// runFaults runs the checks of the faults of b, all at once.
func runFaults(t *testing.T, b Backend, recorder *report.Recorder, d declared) {
	if len(b.Faults) == 0 {
		return
	}
	t.Run("Faults", func(t *testing.T) {
		for _, c := range b.faults() {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				judge(t, b, recorder, Outcome{Check: "Faults/" + c.name, Promise: c.text}, d, func(out *Outcome) found {
					w := newFaultRun(c)
					out.Fault = &w.out
					w.run(t, b.Faults[c.name](t, w.key))
					return found{failures: w.failures}
				})
			})
		}
	})
}
