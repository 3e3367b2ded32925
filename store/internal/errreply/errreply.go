// Package errreply tells what an error reply of a Redis or Valkey server means,
// for every adapter alike.
//
// A code counts only where a server puts one, so that neither the message of
// someone's script nor a key in a text is taken for it:
//
//	READONLY You can't write against a read only replica.
//	OOM command not allowed … script: <sha>, on @user_script:10.
//	ERR Error running script (call to f_<sha>): @user_script:10: WRONGTYPE Operation …
//	ERR Error running script (call to f_<sha>): @user_script:10: @user_script: 10: -OOM command not allowed …
//
// The last two are what a server before 7.0 makes of an error that a command
// raises in a script. Two words are found anywhere, as proxies rewrite what
// stands before them: NOSCRIPT, and this module's own WEIRFOREIGN.
package errreply

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/weir-go/weir/store"
)

// foreign is what a script of this module replies, followed by the index of the
// key, from 1, when a key holds a value of someone else's.
const foreign = "WEIRFOREIGN"

// unavailable holds the codes that say that the server, though it answers,
// cannot serve now, or not this caller.
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

// refusals holds how the texts without a code of their own, but for ERR, begin
// that a server sends in place of running anything: to a connection that it
// refuses, while a client sets one up, or to a client of the wrong kind.
var refusals = []string{
	"max number of clients",
	"invalid password",
	"Client sent AUTH, but no password is set",
	"AUTH <password> called without any password configured",
	"DB index is out of range",
	"This instance has cluster support disabled",
	"unknown command",
}

// aclRefusals holds how a server begins, in a script, what is NOPERM outside of one.
var aclRefusals = []string{
	"The user executing the script can't",
	"ACL failure in script",
}

// wrapper matches what a server before 7.0 puts before the code of an error in a
// script. Some clients cut off the ERR.
var wrapper = regexp.MustCompile(`^(?:(?:ERR )?Error running script \(call to f_[0-9a-f]{40}\): @user_script:\d+: )?(?:@user_script: \d+: -?)?`)

// NoScript reports whether text says that the server does not know a script.
func NoScript(text string) bool {
	_, ok := cutWord(text, "NOSCRIPT")
	return ok
}

// Stale reports whether text suggests that a client's picture of its cluster is
// out of date.
func Stale(text string) bool {
	switch code(text) {
	case "CLUSTERDOWN", "LOADING", "MOVED", "READONLY":
		return true
	}
	return false
}

// ReadOnly reports whether text says that the server is no master.
func ReadOnly(text string) bool { return code(text) == "READONLY" }

// Eval returns what text, the reply to a script over keys, means: one of
// [store.ErrUnavailable], [store.ErrCrossSlot], [store.ErrScript] and
// [store.ErrForeign], the last naming the keys and thereby complete.
func Eval(text string, keys []string) error {
	if rest, ok := cutWord(text, foreign); ok {
		digits, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
		if n, err := strconv.Atoi(strings.TrimSpace(digits)); err == nil && 1 <= n && n <= len(keys) {
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
	case unavailable[c], refused(text):
		return store.ErrUnavailable
	}
	return store.ErrScript
}

// Read returns what text, the reply to a command that only reads, means:
// [store.ErrCrossSlot] or [store.ErrUnavailable].
func Read(text string) error {
	if code(text) == "CROSSSLOT" {
		return store.ErrCrossSlot
	}
	return store.ErrUnavailable
}

// code returns the first word of text behind the wrapper.
func code(text string) string {
	word, _, _ := strings.Cut(text[len(wrapper.FindString(text)):], " ")
	return word
}

func refused(text string) bool {
	for _, prefix := range refusals {
		if strings.HasPrefix(strings.TrimPrefix(text, "ERR "), prefix) {
			return true
		}
	}
	text = strings.TrimPrefix(text[len(wrapper.FindString(text)):], "ERR ")
	for _, prefix := range aclRefusals {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}

// cutWord returns what stands in text behind word, and whether word stands
// there, as a word of its own.
func cutWord(text, word string) (rest string, found bool) {
	for {
		before, after, ok := strings.Cut(text, word)
		if !ok {
			return "", false
		}
		if (before == "" || !wordByte(before[len(before)-1])) && (after == "" || !wordByte(after[0])) {
			return after, true
		}
		text = after
	}
}

func wordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}
