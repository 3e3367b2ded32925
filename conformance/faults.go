package conformance

import (
	"slices"
	"testing"
)

var faultChecks = []faultCheck{
	{name: "ScriptFlush", text: "if a server loses its scripts again and again, callers do not notice", serves: true},
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
	{name: "Eviction", text: "a server that evicts keys serves every call, and an evicted limit is full again", serves: true},
	{name: "ClusterDown", text: "a cluster that has lost slots is unavailable"},
	{name: "ClusterFailover", text: "a planned failover to a replica loses no token"},
	{name: "MasterKilled", text: "if a master is killed, no more tokens are lost than were unconfirmed"},
	{name: "MasterKilledStill", text: "if a master is killed, no confirmed token is lost", still: true},
	{name: "MasterPaused", text: "if a master is paused and replaced, no more tokens are lost than were unconfirmed"},
	{name: "SentinelFailover", text: "if sentinels replace a master, no more tokens are lost than were unconfirmed"},
	{name: "Migration", text: "while a slot moves, decisions over one key are served, and decisions over several keys are unavailable", servesOne: true},
}

// FaultChecks returns the names of all checks of [RunFaults], in the order in which they
// are listed.
func FaultChecks() []string {
	names := make([]string, len(faultChecks))
	for i, r := range faultChecks {
		names[i] = "Faults/" + r.name
	}
	return names
}

// RunFaults tests what a store does if its server fails. Each fault is a parallel subtest.
// makers has a function for each fault. The function makes the [Fault] of the check with
// that name: for the check "Faults/Restart", the name in makers is "Restart". If makers has
// no function for a check, the check is skipped. The parameter key of the function says
// which cluster slot the check uses: all keys of the check have the slot of key. record is
// called with each outcome, by several goroutines. It can be nil.
//
// Callers call the store before, during and after the fault. The context of each call ends
// after [CallTime]. These promises hold under every fault:
//   - No call panics.
//   - A call that fails returns [store.ErrUnavailable] or the error of its context.
//   - No call is allowed without consuming its tokens, and a later Peek counts them.
//   - No call gets the answer to another call.
//   - After the fault, all calls are served again.
//   - When the client is closed, no goroutine and no connection is left.
func RunFaults(t *testing.T, makers map[string]func(t *testing.T, key string) Fault, record func(FaultOutcome)) {
	known := FaultChecks()
	for name := range makers {
		if !slices.Contains(known, "Faults/"+name) {
			t.Errorf("conformance: makers has the key %q: it must be a name of FaultChecks without \"Faults/\"", name)
		}
	}
	t.Run("Faults", func(t *testing.T) {
		for _, r := range faultChecks {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				w := newFaultRun(r)
				if record != nil {
					defer func() { record(w.out) }()
				}
				maker := makers[r.name]
				if maker == nil {
					w.out.Skipped = "backend makes no such fault"
					t.Skip(w.out.Skipped)
				}
				w.run(t, maker(t, w.key))
				for _, f := range w.failures {
					t.Errorf("broken: %s\n%s", r.text, f)
				}
				w.out.Passed = !t.Failed()
			})
		}
	})
}
