package store

import (
	"crypto/sha1" // EVALSHA names scripts by SHA-1
	"encoding/hex"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// A Script is a program that a [Store] runs atomically on keys of one cluster slot. It
// has two forms that do the same: Lua, for servers, and Go, for stores that run no Lua. A
// Script is immutable and safe for concurrent use.
type Script struct {
	name     string
	lua      string
	sha      string
	readOnly bool
	form     GoForm
}

// A GoForm is a script in Go. It appends its reply to reply, and returns the extended
// slice.
//
// A form must be deterministic: its result depends only on tx and args, and it changes
// state only through tx. A store can run a form more than once for one call, so a form
// keeps no state between runs. It does not keep args or reply.
//
// If a form returns an error, none of its changes takes effect. If a key holds a value of
// another algorithm, the form returns [ForeignAt]. Other errors, and panics, become an
// [ErrScript].
type GoForm func(tx Tx, args []Arg, reply []Value) ([]Value, error)

// NewScript returns a script. The name is a short name for errors and metrics.
//
// The Lua form must use each key as a literal KEYS[n], and reply with an integer, a
// string, or a flat array of them. One value counts as an array of one. It must do all
// reads before the first write, because a server does not undo the writes of a script
// that fails.
//
// The Go form can be nil. Stores that run no Lua then return [ErrNoGoForm].
func NewScript(name, lua string, form GoForm) *Script {
	sum := sha1.Sum([]byte(lua))
	return &Script{name: name, lua: lua, sha: hex.EncodeToString(sum[:]), form: form}
}

// NewReadOnlyScript is like [NewScript], for a script that writes nothing. A store can
// run it on a replica, if its user allows that.
func NewReadOnlyScript(name, lua string, form GoForm) *Script {
	s := NewScript(name, lua, form)
	s.readOnly = true
	return s
}

// WithForm returns a copy of s with another Go form.
func (s *Script) WithForm(form GoForm) *Script {
	other := *s
	other.form = form
	return &other
}

// Name returns the script's name.
func (s *Script) Name() string { return s.name }

// Lua returns the Lua source of the script.
func (s *Script) Lua() string { return s.lua }

// SHA returns the SHA-1 of the Lua source, in lower-case hexadecimal.
func (s *Script) SHA() string { return s.sha }

// ReadOnly reports whether the script writes nothing.
func (s *Script) ReadOnly() bool { return s.readOnly }

// GoForm returns the script's Go form, or nil. A store calls [Script.Run].
func (s *Script) GoForm() GoForm { return s.form }

// Run runs the Go form of the script on tx, and appends its reply to reply. Key i of tx
// is keys[i]. A store that runs no Lua calls Run in [Store.Eval], while it holds the
// locks of all keys. If Run returns an error, the store must discard the changes. Run
// then returns the unchanged reply.
//
// The errors are:
//   - [ErrNoGoForm] if the script has no Go form.
//   - [ErrForeign], which names the key, if the form returned [ForeignAt].
//   - [ErrScript] if the script is read-only and its form changed a key.
//   - the error of the form, if it is an ErrScript, an ErrForeign, an [ErrUnavailable] or
//     an error of a context.
//   - [ErrScript] if the form returned any other error.
//   - [ErrScript], which says where, if the form or tx panicked.
func (s *Script) Run(tx Tx, keys []string, args []Arg, reply []Value) (out []Value, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			out, err = reply, fmt.Errorf("%w: its Go form panicked%s: %v", ErrScript, panicLine(), reason)
		}
	}()
	switch {
	case s.form == nil:
		return reply, ErrNoGoForm
	case s.readOnly:
		return s.runReadOnly(tx, keys, args, reply)
	}
	if out, err = s.form(tx, args, reply); err != nil {
		return reply, formError(err, keys)
	}
	return out, nil
}

// panicLine returns the source line that panicked. Only a deferred function can call it.
func panicLine() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs[:])])
	for panicked, more := false, true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		switch inRuntime := strings.HasPrefix(f.Function, "runtime."); {
		case f.Function == "runtime.gopanic":
			panicked = true
		case panicked && !inRuntime:
			return fmt.Sprintf(" at %s:%d", filepath.Base(f.File), f.Line)
		}
	}
	return ""
}

func (s *Script) runReadOnly(tx Tx, keys []string, args []Arg, reply []Value) ([]Value, error) {
	r := reads.Get().(*readTx)
	defer reads.Put(r)
	defer func() { r.Tx = nil }() // the pool must keep no store alive
	r.Tx, r.wrote = tx, false
	out, err := s.form(r, args, reply)
	switch {
	case err != nil:
		return reply, formError(err, keys)
	case r.wrote:
		return reply, fmt.Errorf("%w: the script is read-only, and its Go form changed a key: make the script with NewScript", ErrScript)
	}
	return out, nil
}

// A readTx records that a form made a change, and does not make the change.
type readTx struct {
	Tx
	wrote bool
}

var reads = sync.Pool{New: func() any { return new(readTx) }}

func (r *readTx) Put(int, Nums, time.Duration)   { r.wrote = true }
func (r *readTx) Keep(int, Nums)                 { r.wrote = true }
func (r *readTx) Del(int)                        { r.wrote = true }
func (r *readTx) Add(int, Member, time.Duration) { r.wrote = true }
func (r *readTx) Remove(int, string)             { r.wrote = true }
func (r *readTx) Trim(int, int64)                { r.wrote = true }
