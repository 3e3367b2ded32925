package errreply

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
)

// The beginning of an error text in a script, on a server before 7.0.
const (
	call = "ERR Error running script (call to f_fd025da278024fe7a673b46f5cabd34e715d760d): @user_script:10: "
	line = "@user_script: 10: "
	tail = " script: fd025da278024fe7a673b46f5cabd34e715d760d, on @user_script:10."
)

// Error replies mean what the table says, in a script and outside of it. A reply that comes
// again until a setting is corrected says which. A reply that a client answers by itself, for
// example by following a redirection, ends without a correction.
func TestMeaning(t *testing.T) {
	t.Parallel()
	all, none := []Client{Unknown, Single, Sentinel, Cluster}, []Client(nil)
	one := []Client{Single}
	for _, c := range []struct {
		text    string
		clients []Client // for which it is a mistake
		says    string
		stale   bool // the topology may be out of date
	}{
		{"LOADING Redis is loading the dataset in memory", none, "", true},
		{"READONLY You can't write against a read only replica." + tail, one, "connect to the master", true},
		{call + line + "-READONLY You can't write against a read only replica. ", one, "connect to the master", true},
		{line + "-READONLY You can't write against a read only replica. ", one, "connect to the master", true},
		{"CLUSTERDOWN The cluster is down", none, "", true},
		{"CLUSTERDOWN Hash slot not served", none, "", true},
		{"TRYAGAIN Multiple keys request during rehashing of slot", none, "", false},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", one, "connect to the master", false},
		{"NOREPLICAS Not enough good replicas to write." + tail, one, "min-replicas-to-write", false},
		{call + line + "-NOREPLICAS Not enough good replicas to write. ", one, "min-replicas-to-write", false},
		{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk." + tail, all, "free the disk", false},
		{"OOM command not allowed when used memory > 'maxmemory'." + tail, all, "raise maxmemory", false},
		{call + line + "-OOM command not allowed when used memory > 'maxmemory'. ", all, "raise maxmemory", false},
		{line + "-OOM command not allowed when used memory > 'maxmemory'.  ", all, "raise maxmemory", false}, // by pcall
		{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", none, "", false},
		{"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)", none, "", false},
		{"ASK 3999 127.0.0.1:6381", none, "", false},
		{"MOVED 3999 127.0.0.1:6381", []Client{Single, Sentinel}, "use a client of a cluster", true},
		{"NOAUTH Authentication required.", all, "wants a password", false},
		{"ERR Protocol error: unauthenticated multibulk length", all, "wants a password", false}, // to a long command
		{"WRONGPASS invalid username-password pair or user is disabled.", all, "rejects the user", false},
		{"ERR invalid password", all, "rejects the user", false},
		{"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?", all, "has no password", false},
		{"ERR Client sent AUTH, but no password is set", all, "has no password", false},
		{"NOPERM this user has no permissions to run the 'evalsha' command", all, "grant the commands", false},
		{"NOPERM No permissions to access a key", all, "grant the commands", false},
		{"ERR The user executing the script can't run this command or subcommand" + tail, all, "grant the commands", false},
		{call + line + "The user executing the script can't run this command or subcommand ", all, "grant the commands", false},
		{"ERR ACL failure in script: User bob has no permissions to run the 'set' command" + tail, all, "grant the commands", false},
		{"DENIED Redis is running in protected mode because protected mode is enabled", all, "protected mode", false},
		{"NOPROTO unsupported protocol version", all, "RESP2", false},
		{"ERR max number of clients reached", none, "", false},
		{"ERR max number of clients + cluster connections reached", none, "", false},
		{"ERR DB index is out of range", all, "no such database", false},
		{"ERR SELECT is not allowed in cluster mode", all, "no such database", false},
		{"ERR This instance has cluster support disabled", all, "not in a cluster", false},
		{"ERR unknown command 'evalsha', with args beginning with: '6b1b' '1' ", all, "must run Lua scripts", false},
		{"ERR unknown command 'mget', with args beginning with: 'CROSSSLOT' 'key'", all, "must run Lua scripts", false},
	} {
		for _, client := range all {
			for _, text := range []string{c.text, strings.TrimPrefix(c.text, "ERR ")} { // as some clients do
				for what, err := range map[string]error{"Eval": Eval(text, []string{"k"}, client), "Read": Read(text, client)} {
					want := slices.Contains(c.clients, client)
					if got := errors.Is(err, store.ErrMisconfigured); got != want || !errors.Is(err, store.ErrUnavailable) || want && !strings.Contains(err.Error(), c.says) {
						t.Errorf("%s(%q) for client %d: got %v, a mistake: %v, want %v that says %q", what, text, client, err, got, want, c.says)
					}
				}
			}
		}
		if got := Stale(c.text); got != c.stale {
			t.Errorf("Stale(%q) = %t, want %t", c.text, got, c.stale)
		}
		if got, want := ReadOnly(c.text), strings.Contains(c.text, "READONLY"); got != want {
			t.Errorf("ReadOnly(%q) = %t, want %t", c.text, got, want)
		}
	}
}

// Replies to scripts that are no outage. A foreign value is named, or the keys that may hold
// it.
func TestEval(t *testing.T) {
	t.Parallel()
	const both, b = `"a{k}" "b{k}"`, `"b{k}"`
	for _, c := range []struct {
		text  string
		want  error
		named string // keys
	}{
		{"CROSSSLOT Keys in request don't hash to the same slot", store.ErrCrossSlot, ""},
		{"WRONGTYPE Operation against a key holding the wrong kind of value" + tail, store.ErrForeign, both},
		{call + "WRONGTYPE Operation against a key holding the wrong kind of value ", store.ErrForeign, both},
		{"WEIRFOREIGN 1", store.ErrForeign, `"a{k}"`},
		{"ERR proxy: WEIRFOREIGN 2" + tail, store.ErrForeign, b},
		{"WEIRFOREIGN", store.ErrScript, ""},
		{"WEIRFOREIGN 3", store.ErrScript, ""},
		{"WEIRFOREIGN 0", store.ErrScript, ""},
		{"ERR user_script:1: READONLY mode, come back later" + tail, store.ErrScript, ""}, // the words of a user
		{call + "user_script:10: READONLY mode, come back later ", store.ErrScript, ""},
		{"MYERR LOADING is not a code here", store.ErrScript, ""},
		{"BUSYGROUP Consumer Group name already exists", store.ErrScript, ""},
		{"busy as ever", store.ErrScript, ""},
		{"ERR Unknown Redis command called from script" + tail, store.ErrScript, ""},
		{"ERR Error compiling script (new function): user_script:1: '=' expected near '<eof>'", store.ErrScript, ""},
		{"NOSCRIPT No matching script. Please use EVAL.", store.ErrScript, ""}, // to an EVAL
		{"", store.ErrScript, ""},
	} {
		for _, text := range []string{c.text, strings.TrimPrefix(c.text, "ERR ")} {
			got := Eval(text, []string{"a{k}", "b{k}"}, Unknown)
			if !errors.Is(got, c.want) || Stale(text) || ReadOnly(text) {
				t.Errorf("Eval(%q) = %v, want %v; Stale %t, ReadOnly %t", text, got, c.want, Stale(text), ReadOnly(text))
			}
			for _, key := range []string{`"a{k}"`, `"b{k}"`} {
				if named := strings.Contains(c.named, key); strings.Contains(got.Error(), key) != named {
					t.Errorf("Eval(%q) = %v, want that it names %s: %t", text, got, key, named)
				}
			}
		}
	}
	if got := Eval("WRONGTYPE no", []string{"a"}, Unknown); got.Error() != store.Foreign("a").Error() {
		t.Errorf("for one key: got %v", got)
	}
	if got := Read("CROSSSLOT Keys in request don't hash to the same slot", Unknown); got != store.ErrCrossSlot {
		t.Errorf("to a read: got %v", got)
	}
}

func TestNoScript(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"NOSCRIPT No matching script. Please use EVAL.": true,
		"ERR proxy: NOSCRIPT No matching script.":       true,
		"ERR [NOSCRIPT]":            true,
		"MYNOSCRIPT, then NOSCRIPT": true,
		"NOSCRIPTS here":            false,
		"ERR my_NOSCRIPT":           false,
		"LOADING Redis is loading the dataset in memory":      false,
		"NOPERM this user has no permissions to run 'script'": false,
	} {
		if got := NoScript(text); got != want {
			t.Errorf("NoScript(%q) = %t, want %t", text, got, want)
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

// A fixed context has a deadline, and no error yet.
type fixed struct {
	context.Context
	at time.Time
}

func (f fixed) Deadline() (time.Time, bool) { return f.at, true }

// The error of a call whose context is done is that of the context, and not an outage. A
// timeout of the client is an outage, and not the end of the context.
func TestFailed(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for name, c := range map[string]struct {
		ctx       context.Context
		err       error
		want, not error
		text      string
	}{
		"lost connection":          {t.Context(), io.EOF, store.ErrUnavailable, context.Canceled, "x: store unavailable: EOF"},
		"its own meaning":          {t.Context(), Mistake("hint"), store.ErrMisconfigured, context.Canceled, "x: store misconfigured: hint"},
		"a timeout of a dial":      {t.Context(), fmt.Errorf("dial: %w", context.DeadlineExceeded), store.ErrUnavailable, context.DeadlineExceeded, "x: store unavailable: dial: context deadline exceeded"},
		"cancelled":                {cancelled, io.EOF, context.Canceled, store.ErrUnavailable, "x: context canceled: EOF"},
		"cancelled, as it says":    {cancelled, fmt.Errorf("pgx: %w", context.Canceled), context.Canceled, store.ErrUnavailable, "x: pgx: context canceled"},
		"the deadline has passed":  {late, io.EOF, context.DeadlineExceeded, store.ErrUnavailable, "x: context deadline exceeded: EOF"},
		"a timer that is too late": {fixed{t.Context(), time.Now()}, io.EOF, context.DeadlineExceeded, store.ErrUnavailable, "x: context deadline exceeded: EOF"},
	} {
		err := Failed(c.ctx, "x", c.err, func(err error) error {
			if errors.Is(err, store.ErrUnavailable) {
				return nil
			}
			return store.ErrUnavailable
		})
		if !errors.Is(err, c.want) || errors.Is(err, c.not) || err.Error() != c.text {
			t.Errorf("%s: got %v, want %q, which is %v and not %v", name, err, c.text, c.want, c.not)
		}
	}
}
