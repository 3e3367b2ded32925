// Package storekey hashes the keys of a store in parts, and compares them in parts. So a
// decision in memory does not build the keys of its rules:
//
//	weir:api:{acme}:user.g2:ann
//	~~~~~~~~~~    ~~~~~~~~~      the Frame: it is the same for all callers
//	          ~~~~          ~~~  Shared and Other: they identify the caller
package storekey

import (
	"hash/maphash"
	"math"
	"math/bits"
	"strings"
	"sync/atomic"
)

// A Frame is the part of a key that is the same for all callers.
type Frame struct {
	head, tail string
	hash       uint64
	id         uint32
}

// frames is the number of frames that NewFrame has returned.
var frames atomic.Uint64

// NewFrame returns a Frame. head ends with the first opening brace of the key. tail begins with
// the first closing brace, and has at most one colon, which is its second byte.
func NewFrame(head, tail string) Frame {
	f := Frame{head: head, tail: tail, hash: frameHash(head, tail)}
	if n := frames.Add(1); n <= math.MaxUint32 {
		f.id = uint32(n)
	}
	return f
}

// ID returns a number that no other frame has. It is 0 if there are too many frames.
func (f *Frame) ID() uint32 { return f.id }

func frameHash(head, tail string) uint64 { return bits.RotateLeft64(text(head), 1) ^ text(tail) }

// A Key is a key of a store in parts.
type Key struct {
	Frame  *Frame
	Shared string // the text between the braces
	Other  string // the text after the tail of the frame and a colon; "" if there is none

	shared uint64 // the hash of Shared
	caller uint64 // the hash of Shared and Other
}

// seed is one for the process, so that a Frame is hashed once for all stores.
var seed = maphash.MakeSeed()

func text(s string) uint64 { return maphash.String(seed, s) }

// SetHash sets k.Caller. earlier is nil, or another key with the same Shared, whose hash is set.
func (k *Key) SetHash(earlier *Key) {
	switch {
	case earlier == nil:
		k.shared = text(k.Shared)
	case earlier.Other == k.Other:
		k.shared, k.caller = earlier.shared, earlier.caller
		return
	default:
		k.shared = earlier.shared
	}
	if k.caller = k.shared; k.Other != "" {
		k.caller ^= bits.RotateLeft64(text(k.Other), 2)
	}
}

// Caller returns the hash of the parts that identify the caller. The keys of one caller have
// the same one in all frames.
func (k *Key) Caller() uint64 { return k.caller }

// Hash returns the hash of k. It is never 0.
func (k *Key) Hash() uint64 { return (k.caller ^ k.Frame.hash) | 1 }

// Hash returns the results of [Key.Caller] and [Key.Hash] for key.
func Hash(key string) (caller, hash uint64) {
	head, shared, tail, other := split(key)
	k := Key{Frame: &Frame{hash: frameHash(head, tail)}, Shared: shared, Other: other}
	k.SetHash(nil)
	return k.caller, k.Hash()
}

// split returns the parts of key. Parts that it does not have are empty.
func split(key string) (head, shared, tail, other string) {
	open := strings.IndexByte(key, '{') + 1
	head, shared = key[:open], key[open:]
	if end := strings.IndexByte(shared, '}'); end >= 0 {
		shared, tail = shared[:end], shared[end:]
	}
	const after = len("}:")
	if len(tail) > after {
		if end := strings.IndexByte(tail[after:], ':'); end >= 0 {
			tail, other = tail[:after+end], tail[after+end+1:]
		}
	}
	return head, shared, tail, other
}

// Is reports whether k is key. framed is true if an earlier call with another Key of the same
// Frame returned true for key. The frame is then not compared again.
func (k *Key) Is(key string, framed bool) bool {
	f := k.Frame
	from := len(f.head)
	to := from + len(k.Shared)
	end := to + len(f.tail)
	switch {
	case k.Other == "":
		if len(key) != end {
			return false
		}
	case len(key) != end+1+len(k.Other) || key[end] != ':' || key[end+1:] != k.Other:
		return false
	}
	if framed { // the tail begins with the first closing brace
		return key[to] == '}' && key[from:to] == k.Shared
	}
	return key[from:to] == k.Shared && key[:from] == f.head && key[to:end] == f.tail
}
