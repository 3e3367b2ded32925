package errreply

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/weir-go/weir/store"
)

// An error that comes again until a setting is corrected says which. An error that a
// client answers by itself, for example by following a redirection, ends without a
// correction.
func TestMistake(t *testing.T) {
	t.Parallel()
	all := []Client{Unknown, Single, Sentinel, Cluster}
	for _, c := range []struct {
		text    string
		clients []Client // for which it is a mistake
		says    string
	}{
		{"NOAUTH Authentication required.", all, "wants a password"},
		{"ERR Protocol error: unauthenticated multibulk length", all, "wants a password"},
		{"WRONGPASS invalid username-password pair or user is disabled.", all, "rejects the user"},
		{"ERR invalid password", all, "rejects the user"},
		{"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?", all, "has no password"},
		{"ERR Client sent AUTH, but no password is set", all, "has no password"},
		{"NOPERM this user has no permissions to run the 'evalsha' command", all, "grant the commands"},
		{"NOPERM No permissions to access a key", all, "grant the commands"},
		{"ERR ACL failure in script: User bob has no permissions to run the 'set' command" + tail, all, "grant the commands"},
		{call + line + "The user executing the script can't run this command or subcommand ", all, "grant the commands"},
		{"DENIED Redis is running in protected mode because protected mode is enabled", all, "protected mode"},
		{"NOPROTO unsupported protocol version", all, "RESP2"},
		{"ERR DB index is out of range", all, "no such database"},
		{"ERR This instance has cluster support disabled", all, "not in a cluster"},
		{"ERR unknown command 'evalsha', with args beginning with: '6b1b' '1' ", all, "must run Lua scripts"},
		{"MOVED 3999 127.0.0.1:6381", []Client{Single, Sentinel}, "use a client of a cluster"},
		{"READONLY You can't write against a read only replica." + tail, []Client{Single}, "connect to the master"},
		{call + line + "-READONLY You can't write against a read only replica. ", []Client{Single}, "connect to the master"},
		{"LOADING Redis is loading the dataset in memory", nil, ""},
		{"CLUSTERDOWN Hash slot not served", nil, ""},
		{"TRYAGAIN Multiple keys request during rehashing of slot", nil, ""},
		{"OOM command not allowed when used memory > 'maxmemory'." + tail, all, "raise maxmemory"},
		{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk." + tail, all, "free the disk"},
		{"NOREPLICAS Not enough good replicas to write." + tail, []Client{Single}, "min-replicas-to-write"},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", []Client{Single}, "connect to the master"},
		{"ERR SELECT is not allowed in cluster mode", all, "no such database"},
		{"ERR max number of clients reached", nil, ""},
	} {
		for _, client := range all {
			for _, text := range []string{c.text, strings.TrimPrefix(c.text, "ERR ")} {
				for what, err := range map[string]error{"Eval": Eval(text, []string{"k"}, client), "Read": Read(text, client)} {
					want := slices.Contains(c.clients, client)
					if got := errors.Is(err, store.ErrMisconfigured); got != want || !errors.Is(err, store.ErrUnavailable) || want && !strings.Contains(err.Error(), c.says) {
						t.Errorf("%s(%q) for client %d: got %v, a mistake: %v, want %v that says %q", what, text, client, err, got, want, c.says)
					}
				}
			}
		}
	}
}

// A TLS that one side rejects is a mistake. A connection that is lost is none.
func TestConnection(t *testing.T) {
	t.Parallel()
	for err, wrong := range map[error]bool{
		&tls.CertificateVerificationError{Err: io.EOF}: true,
		tls.RecordHeaderError{}:                        true,
		&net.OpError{Op: "remote error", Err: io.EOF}:  true,
		&net.OpError{Op: "dial", Err: io.EOF}:          false,
	} {
		if got := Connection(fmt.Errorf("x: %w", err)); !errors.Is(got, store.ErrUnavailable) || errors.Is(got, store.ErrMisconfigured) != wrong {
			t.Errorf("%T became %v", err, got)
		}
	}
}
