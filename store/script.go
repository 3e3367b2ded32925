package store

import (
	"crypto/sha1" //nolint:gosec // EVALSHA names scripts by SHA-1
	"encoding/hex"
	"fmt"
	"sync"
	"time"
)

// A Script is one atomic step over keys that share a cluster slot. It has two
// forms with one meaning: Lua, for servers, and Go, for stores that run no Lua.
// A Script is immutable and safe for concurrent use.
type Script struct {
	name     string
	lua      string
	sha      string
	readOnly bool
	form     GoForm
}

// A GoForm is a script in Go. It appends its reply to reply and returns it.
//
// A form must be deterministic: its result depends only on tx and args, and it
// changes nothing except through tx. A store may run a form more than once for
// one step, so a form keeps nothing between runs. It retains neither args nor
// reply.
//
// If a form returns an error, none of its changes takes effect. It returns
// [ForeignAt] if a key holds a value of another algorithm. Any other error makes
// the step fail with [ErrScript].
type GoForm func(tx Tx, args []Arg, reply []Value) ([]Value, error)

// NewScript returns a script. The name is a short word for errors and metrics.
//
// The Lua form uses each key as a literal KEYS[n] and replies with a flat array
// of integers and strings. It reads everything that it needs before its first
// write, because servers do not roll back.
//
// The form may be nil. Stores that run no Lua then return [ErrNoGoForm].
func NewScript(name, lua string, form GoForm) *Script {
	sum := sha1.Sum([]byte(lua)) //nolint:gosec // see the import
	return &Script{name: name, lua: lua, sha: hex.EncodeToString(sum[:]), form: form}
}

// NewReadOnlyScript is like [NewScript], for a script that writes nothing. A
// store may run such a script on a replica if its user allows that.
func NewReadOnlyScript(name, lua string, form GoForm) *Script {
	s := NewScript(name, lua, form)
	s.readOnly = true
	return s
}

// WithForm returns a script with another Go form, and with the name, the Lua
// source, the SHA-1 and the read-only flag of s.
func (s *Script) WithForm(form GoForm) *Script {
	other := *s
	other.form = form
	return &other
}

// Name returns the script's name.
func (s *Script) Name() string { return s.name }

// Lua returns the script's source for Redis.
func (s *Script) Lua() string { return s.lua }

// SHA returns the SHA-1 of the Lua source, in lower-case hexadecimal.
func (s *Script) SHA() string { return s.sha }

// ReadOnly reports whether the script writes nothing.
func (s *Script) ReadOnly() bool { return s.readOnly }

// GoForm returns the script's Go form, or nil. A store calls [Script.Run].
func (s *Script) GoForm() GoForm { return s.form }

// Run runs the script's Go form on tx, whose key i is keys[i], and appends its
// reply to reply. A store that runs no Lua calls Run in [Store.Eval], while it
// holds the locks of all keys, and discards the changes if Run returns an error.
// After an error, the returned slice is reply.
//
// The errors are those of [Store.Eval]:
//   - [ErrNoGoForm] if the script has no Go form.
//   - [ErrForeign], which names the key, if the form or tx returned [ForeignAt].
//   - [ErrScript] if the script is read-only and its form changed a key, or if
//     the form returned any other error.
//
// Run returns an ErrScript, an ErrForeign, an [ErrUnavailable] or a context's
// error of the form as it is.
func (s *Script) Run(tx Tx, keys []string, args []Arg, reply []Value) ([]Value, error) {
	switch {
	case s.form == nil:
		return reply, ErrNoGoForm
	case s.readOnly:
		return s.runReadOnly(tx, keys, args, reply)
	}
	out, err := s.form(tx, args, reply)
	if err != nil {
		return reply, formError(err, keys)
	}
	return out, nil
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
		return reply, fmt.Errorf("%w: the script is read-only, and its Go form changed a key", ErrScript)
	}
	return out, nil
}

// A readTx notes changes and does not make them.
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
