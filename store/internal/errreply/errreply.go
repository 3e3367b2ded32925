// Package errreply maps the error replies of Redis and Valkey servers to the errors of
// package store. All adapters use it.
//
// A code is recognized only at the places where a server puts it, because the message of
// a script, or a key in a text, can contain the same word:
//
//	READONLY You can't write against a read only replica.
//	OOM command not allowed … script: <sha>, on @user_script:10.
//	ERR Error running script (call to f_<sha>): @user_script:10: WRONGTYPE Operation …
//	ERR Error running script (call to f_<sha>): @user_script:10: @user_script: 10: -OOM command not allowed …
//
// A server before 7.0 replies the last two if a command in a script fails. Two words are
// recognized anywhere in a text, because proxies rewrite the text before them: NOSCRIPT,
// and WEIRFOREIGN, which only this module uses.
package errreply

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/weir-go/weir/store"
)

// foreign matches the reply of a script of this module if a key holds a foreign value.
// The index of the key, counted from 1, follows the word.
var foreign = regexp.MustCompile(`\bWEIRFOREIGN\b *([^ ]*)`)

var noScript = regexp.MustCompile(`\bNOSCRIPT\b`)

// unavailable holds the codes which say that the server cannot serve now, or cannot serve
// this caller.
var unavailable = map[string]bool{
	"ASK":         true,
	"BUSY":        true,
	"CLUSTERDOWN": true,
	"DENIED":      true, // protected mode
	"LOADING":     true,
	"MASTERDOWN":  true,
	"MISCONF":     true,
	"MOVED":       true,
	"NOAUTH":      true,
	"NOPERM":      true,
	"NOPROTO":     true,
	"NOREPLICAS":  true,
	"OOM":         true,
	"READONLY":    true,
	"TRYAGAIN":    true,
	"UNBLOCKED":   true,
	"UNKILLABLE":  true,
	"WRONGPASS":   true,
}

// refusals holds the beginnings of error texts that have no code except ERR, with their
// codes here. A server sends them if it rejects a connection, during the set-up of a
// connection, or if the client is of the wrong kind. Nothing has run then.
var refusals = []refusal{
	{"max number of clients", ""},
	{"invalid password", "WRONGPASS"},
	{"Protocol error: unauthenticated", "NOAUTH"}, // a long command before the client has logged in
	{"Client sent AUTH, but no password is set", "no password"},
	{"AUTH <password> called without any password configured", "no password"},
	{"DB index is out of range", "no database"},
	{"SELECT is not allowed in cluster mode", "no database"},
	{"This instance has cluster support disabled", "no cluster"},
	{"unknown command", "no scripts"},
}

// aclRefusals holds the beginnings of the error texts in a script that are NOPERM outside
// of a script.
var aclRefusals = []refusal{
	{"The user executing the script can't", "NOPERM"},
	{"ACL failure in script", "NOPERM"},
}

// A refusal is the beginning of an error text, and what stands for it in mistakes.
type refusal struct{ text, code string }

// wrapper matches the text that a server before 7.0 puts before the code of an error in a
// script. Some clients remove the ERR.
var wrapper = regexp.MustCompile(`^(?:(?:ERR )?Error running script \(call to f_[0-9a-f]{40}\): @user_script:\d+: )?(?:@user_script: \d+: -?)?`)

// NoScript reports whether text says that the server does not know a script.
func NoScript(text string) bool { return noScript.MatchString(text) }

// Stale reports whether text suggests that the topology known to the client is out of
// date.
func Stale(text string) bool {
	switch code(text) {
	case "CLUSTERDOWN", "LOADING", "MOVED", "READONLY":
		return true
	}
	return false
}

// ReadOnly reports whether text says that the server is not a master.
func ReadOnly(text string) bool { return code(text) == "READONLY" }

// Eval returns the meaning of text, the error reply to a script on keys. It is one of
// [store.ErrUnavailable], [store.ErrCrossSlot], [store.ErrScript] and [store.ErrForeign].
// An ErrUnavailable is a [store.ErrMisconfigured] too if somebody must correct a setting.
// An ErrForeign names the key, or the keys if it is not known which.
func Eval(text string, keys []string, client Client) error {
	if match := foreign.FindStringSubmatch(text); match != nil {
		if n, err := strconv.Atoi(strings.TrimSpace(match[1])); err == nil && 1 <= n && n <= len(keys) {
			return store.Foreign(keys[n-1])
		}
		return store.ErrScript
	}
	switch c := code(text); {
	case c == "WRONGTYPE" && len(keys) == 1:
		return store.Foreign(keys[0])
	case c == "WRONGTYPE":
		return fmt.Errorf("%w: one of %q", store.ErrForeign, keys)
	case c == "CROSSSLOT":
		return store.ErrCrossSlot
	case unavailable[c]:
		return because(c, client)
	}
	if r, ok := refused(text); ok {
		return because(r.code, client)
	}
	return store.ErrScript
}

// Read returns the meaning of text, the error reply to a command that only reads. It is
// [store.ErrCrossSlot] or [store.ErrUnavailable], as Eval returns it.
func Read(text string, client Client) error {
	c := code(text)
	if c == "CROSSSLOT" {
		return store.ErrCrossSlot
	}
	if r, ok := refused(text); ok {
		c = r.code
	}
	return because(c, client)
}

// code returns the first word of text after the wrapper.
func code(text string) string {
	word, _, _ := strings.Cut(text[len(wrapper.FindString(text)):], " ")
	return word
}

// refused returns the refusal with which text begins.
func refused(text string) (refusal, bool) {
	if r, ok := beginning(strings.TrimPrefix(text, "ERR "), refusals); ok {
		return r, true
	}
	return beginning(strings.TrimPrefix(text[len(wrapper.FindString(text)):], "ERR "), aclRefusals)
}

// beginning returns the refusal in list with which text begins.
func beginning(text string, list []refusal) (refusal, bool) {
	for _, r := range list {
		if strings.HasPrefix(text, r.text) {
			return r, true
		}
	}
	return refusal{}, false
}
