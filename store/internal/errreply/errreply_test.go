package errreply

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-go/weir/store"
)

// The beginning of an error text in a script, on a server before 7.0.
const (
	call = "ERR Error running script (call to f_fd025da278024fe7a673b46f5cabd34e715d760d): @user_script:10: "
	line = "@user_script: 10: "
	tail = " script: fd025da278024fe7a673b46f5cabd34e715d760d, on @user_script:10."
)

func TestEval(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       error
	}{
		{"loading", "LOADING Redis is loading the dataset in memory", store.ErrUnavailable},
		{"readonly", "READONLY You can't write against a read only replica." + tail, store.ErrUnavailable},
		{"readonly 6.0", call + line + "-READONLY You can't write against a read only replica. ", store.ErrUnavailable},
		{"clusterdown", "CLUSTERDOWN The cluster is down", store.ErrUnavailable},
		{"clusterdown, no slot", "CLUSTERDOWN Hash slot not served", store.ErrUnavailable},
		{"tryagain", "TRYAGAIN Multiple keys request during rehashing of slot", store.ErrUnavailable},
		{"masterdown", "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", store.ErrUnavailable},
		{"noreplicas", "NOREPLICAS Not enough good replicas to write." + tail, store.ErrUnavailable},
		{"noreplicas 6.0", call + line + "-NOREPLICAS Not enough good replicas to write. ", store.ErrUnavailable},
		{"misconf", "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk." + tail, store.ErrUnavailable},
		{"oom", "OOM command not allowed when used memory > 'maxmemory'." + tail, store.ErrUnavailable},
		{"oom 6.0", call + line + "-OOM command not allowed when used memory > 'maxmemory'. ", store.ErrUnavailable},
		{"oom by pcall 6.0", line + "-OOM command not allowed when used memory > 'maxmemory'.  ", store.ErrUnavailable},
		{"busy", "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", store.ErrUnavailable},
		{"moved", "MOVED 3999 127.0.0.1:6381", store.ErrUnavailable},
		{"ask", "ASK 3999 127.0.0.1:6381", store.ErrUnavailable},
		{"noauth", "NOAUTH Authentication required.", store.ErrUnavailable},
		{"noauth, long command", "ERR Protocol error: unauthenticated multibulk length", store.ErrUnavailable},
		{"wrongpass", "WRONGPASS invalid username-password pair or user is disabled.", store.ErrUnavailable},
		{"noperm", "NOPERM this user has no permissions to run the 'evalsha' command", store.ErrUnavailable},
		{"noperm in a script", "ERR The user executing the script can't run this command or subcommand" + tail, store.ErrUnavailable},
		{"noperm in a script 6.0", call + line + "The user executing the script can't run this command or subcommand ", store.ErrUnavailable},
		{"noperm in a script 7.2", "ERR ACL failure in script: User bob has no permissions to run the 'set' command" + tail, store.ErrUnavailable},
		{"clients", "ERR max number of clients reached", store.ErrUnavailable},
		{"clients and cluster", "ERR max number of clients + cluster connections reached", store.ErrUnavailable},
		{"unblocked", "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)", store.ErrUnavailable},
		{"database", "ERR DB index is out of range", store.ErrUnavailable},
		{"no cluster", "ERR This instance has cluster support disabled", store.ErrUnavailable},
		{"no scripts", "ERR unknown command 'evalsha', with args beginning with: '6b1b' '1' ", store.ErrUnavailable},

		{"cross-slot", "CROSSSLOT Keys in request don't hash to the same slot", store.ErrCrossSlot},

		{"wrong type", "WRONGTYPE Operation against a key holding the wrong kind of value" + tail, store.ErrForeign},
		{"wrong type 6.0", call + "WRONGTYPE Operation against a key holding the wrong kind of value ", store.ErrForeign},
		{"foreign", "WEIRFOREIGN 1", store.ErrForeign},
		{"foreign, wrapped", "ERR proxy: WEIRFOREIGN 2" + tail, store.ErrForeign},
		{"foreign, no key", "WEIRFOREIGN", store.ErrScript},
		{"foreign, no such key", "WEIRFOREIGN 3", store.ErrScript},
		{"foreign, key 0", "WEIRFOREIGN 0", store.ErrScript},

		{"user's error", "ERR user_script:1: READONLY mode, come back later" + tail, store.ErrScript},
		{"user's error 6.0", call + "user_script:10: READONLY mode, come back later ", store.ErrScript},
		{"user's code", "MYERR LOADING is not a code here", store.ErrScript},
		{"user's longer word", "BUSYGROUP Consumer Group name already exists", store.ErrScript},
		{"user's lower case", "busy as ever", store.ErrScript},
		{"unknown command in a script", "ERR Unknown Redis command called from script" + tail, store.ErrScript},
		{"compile", "ERR Error compiling script (new function): user_script:1: '=' expected near '<eof>'", store.ErrScript},
		{"still unknown", "NOSCRIPT No matching script. Please use EVAL.", store.ErrScript},
		{"empty", "", store.ErrScript},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, text := range []string{c.text, strings.TrimPrefix(c.text, "ERR ")} { // as some clients do
				if got := Eval(text, []string{"a{k}", "b{k}"}, Unknown); !errors.Is(got, c.want) {
					t.Errorf("Eval(%q) = %v, want %v", text, got, c.want)
				}
			}
		})
	}
}

func TestEvalNamesKeys(t *testing.T) {
	t.Parallel()
	const wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"
	for _, c := range []struct {
		text  string
		keys  []string
		named []string
	}{
		{"WEIRFOREIGN 1", []string{"a{k}", "b{k}"}, []string{`"a{k}"`}},
		{"WEIRFOREIGN 2" + tail, []string{"a{k}", "b{k}"}, []string{`"b{k}"`}},
		{wrongType, []string{"a{k}", "b{k}"}, []string{`"a{k}"`, `"b{k}"`}},
		{wrongType, []string{"a{k}"}, []string{`"a{k}"`}},
	} {
		got := Eval(c.text, c.keys, Unknown).Error()
		for _, key := range c.keys {
			named := false
			for _, n := range c.named {
				named = named || n == `"`+key+`"`
			}
			if strings.Contains(got, `"`+key+`"`) != named {
				t.Errorf("Eval(%q): %q, want it to name %v and no other", c.text, got, c.named)
			}
		}
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"CROSSSLOT Keys in request don't hash to the same slot":                   store.ErrCrossSlot,
		"LOADING Redis is loading the dataset in memory":                          store.ErrUnavailable,
		"NOPERM this user has no permissions to run the 'mget' command":           store.ErrUnavailable,
		"ERR unknown command 'mget', with args beginning with: 'CROSSSLOT' 'key'": store.ErrUnavailable,
	} {
		if got := Read(text, Unknown); !errors.Is(got, want) {
			t.Errorf("Read(%q) = %v, want %v", text, got, want)
		}
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

func TestStale(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"CLUSTERDOWN The cluster is down":                                 true,
		"MOVED 3999 127.0.0.1:6381":                                       true,
		"READONLY You can't write against a read only replica." + tail:    true,
		call + line + "-READONLY You can't write against a read only one": true,
		"LOADING Redis is loading the dataset in memory":                  true,
		"OOM command not allowed when used memory > 'maxmemory'.":         false,
		"ERR user_script:1: READONLY":                                     false,
	} {
		if got := Stale(text); got != want {
			t.Errorf("Stale(%q) = %t, want %t", text, got, want)
		}
	}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"READONLY You can't write against a read only replica." + tail:    true,
		call + line + "-READONLY You can't write against a read only one": true,
		line + "-READONLY You can't write against a read only replica. ":  true,
		"MOVED 3999 127.0.0.1:6381":                                       false,
		"ERR user_script:1: READONLY":                                     false,
	} {
		if got := ReadOnly(text); got != want {
			t.Errorf("ReadOnly(%q) = %t, want %t", text, got, want)
		}
	}
}
