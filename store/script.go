package store

import (
	"crypto/sha1" //nolint:gosec // EVALSHA names scripts by SHA-1
	"encoding/hex"
)

// A Script is one atomic step over the keys of one slot, in two forms with one
// meaning. It cannot be changed, and is safe for concurrent use.
type Script struct {
	name     string
	lua      string
	sha      string
	readOnly bool
	form     GoForm
}

// A GoForm is a script in Go, for stores that run no Lua. It appends its reply
// to reply.
//
// It is deterministic: it depends on tx and args alone, and changes nothing but
// through tx. A store may run it more than once for one step, so it keeps
// nothing between runs. It retains neither args nor reply. When it returns an
// error, nothing that it wrote takes effect.
type GoForm func(tx Tx, args []Arg, reply []Value) ([]Value, error)

// NewScript returns the script called name, a short word for errors and
// metrics. The Lua form uses each key as a literal KEYS[n], replies with a flat
// array of integers and strings, and reads everything that it needs before its
// first write, as servers do not roll back. The Go form may be nil: then stores
// that run no Lua return [ErrNoGoForm].
func NewScript(name, lua string, form GoForm) *Script {
	sum := sha1.Sum([]byte(lua)) //nolint:gosec // see the import
	return &Script{name: name, lua: lua, sha: hex.EncodeToString(sum[:]), form: form}
}

// NewReadOnlyScript is [NewScript] for a script that writes nothing, which a
// store may run on a replica when its user allows that.
func NewReadOnlyScript(name, lua string, form GoForm) *Script {
	s := NewScript(name, lua, form)
	s.readOnly = true
	return s
}

// Name returns the script's name.
func (s *Script) Name() string { return s.name }

// Lua returns the script's source for Redis.
func (s *Script) Lua() string { return s.lua }

// SHA returns the SHA-1 of the Lua source, in lower-case hexadecimal.
func (s *Script) SHA() string { return s.sha }

// ReadOnly reports whether the script writes nothing.
func (s *Script) ReadOnly() bool { return s.readOnly }

// GoForm returns the script's Go form, or nil.
func (s *Script) GoForm() GoForm { return s.form }
