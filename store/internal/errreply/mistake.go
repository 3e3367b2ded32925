package errreply

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"github.com/weir-go/weir/store"
)

// A Client says which servers the client of a store finds by itself.
type Client uint8

const (
	Unknown  Client = iota
	Single          // one server, which is always the same
	Sentinel        // the current master
	Cluster         // the nodes of a cluster
)

// mistakes says, by code, what to correct. Without a correction, the error comes again.
var mistakes = map[string]string{
	"NOAUTH":      "the server wants a password: set it in the options of the client",
	"WRONGPASS":   "the server rejects the user or the password: correct them in the options of the client",
	"NOPERM":      "the user lacks a right: grant the commands and the pattern of keys that docs/reference/stores.md lists",
	"DENIED":      "the server is in protected mode: set a password on it, or disable this mode",
	"NOPROTO":     "the server does not speak the client's protocol: choose RESP2 in the options of the client",
	"no password": "the server has no password: remove it from the options of the client",
	"no database": "the server has no such database: choose another in the options of the client",
	"no cluster":  "the server is not in a cluster: use a client of a single server",
	"OOM":         "the memory of the server is full, and it evicts nothing: give it more memory, and raise maxmemory",
	"MISCONF":     "the server cannot save to its disk, and rejects writes: free the disk, or set stop-writes-on-bgsave-error to no",
	"no scripts":  "the server does not know a command that a limiter needs: it must run Lua scripts",
}

// The mistakes that depend on the client. Another client follows the server's answer.
const (
	wantsCluster  = "the server is a node of a cluster: use a client of a cluster"
	wantsMaster   = "the server is a replica: connect to the master; if it was demoted just now, this ends when the client has the new master"
	wantsReplicas = "too few replicas are connected: start them, or lower min-replicas-to-write; if one restarts just now, this ends when it is connected"
)

// because returns the ErrUnavailable for a code.
func because(code string, client Client) error {
	hint := mistakes[code]
	switch {
	case code == "MOVED" && (client == Single || client == Sentinel):
		hint = wantsCluster
	case (code == "READONLY" || code == "MASTERDOWN") && client == Single:
		hint = wantsMaster
	case code == "NOREPLICAS" && client == Single: // others see it during each failover
		hint = wantsReplicas
	}
	if hint == "" {
		return store.ErrUnavailable
	}
	return Mistake(hint)
}

// Connection returns the meaning of err, the error of a connection. It is
// [store.ErrUnavailable], and [store.ErrMisconfigured] too if one side rejects the TLS of
// the other.
func Connection(err error) error {
	var untrusted *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	var remote *net.OpError // an alert of TLS has the Op "remote error"
	if errors.As(err, &untrusted) || errors.As(err, &noTLS) || errors.As(err, &remote) && remote.Op == "remote error" ||
		strings.Contains(err.Error(), "server refused TLS") { // as pgx says it
		return Mistake("client and server do not agree on TLS: correct the certificates, the port, or the options of the client")
	}
	return store.ErrUnavailable
}

// A Mistake is a [store.ErrUnavailable] and a [store.ErrMisconfigured]. It says what to
// correct.
type Mistake string

func (m Mistake) Error() string { return store.ErrMisconfigured.Error() + ": " + string(m) }

func (m Mistake) Unwrap() []error { return []error{store.ErrUnavailable, store.ErrMisconfigured} }
