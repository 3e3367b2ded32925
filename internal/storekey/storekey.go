// Package storekey hashes the keys of a store in parts, and compares them in parts. So a
// decision in memory does not build the keys of its rules:
//
//	weir:api:{acme}:user.g2:ann
//	~~~~~~~~~~    ~~~~~~~~~      the Frame: it is the same for all callers
//	          ~~~~          ~~~  Shared and Other: they identify the caller
//
// All rules of a limiter have the same head, which is the first part of the frame.
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
	head, tail         string
	headHash, tailHash uint64
	id                 uint32
}

// frames is the number of frames that NewFrame has returned.
var frames atomic.Uint64

// NewFrame returns a Frame. head ends with the first opening brace of the key. tail begins with
// the first closing brace and a colon, and ends with the tag of a kind.
func NewFrame(head, tail string) Frame {
	f := frameOf(head, tail)
	if n := frames.Add(1); n <= math.MaxUint32 {
		f.id = uint32(n)
	}
	return f
}

func frameOf(head, tail string) Frame {
	return Frame{head: head, tail: tail, headHash: bits.RotateLeft64(text(head), 1), tailHash: text(tail)}
}

// ID returns a number that no other frame has. It is 0 if there are too many frames.
func (f *Frame) ID() uint32 { return f.id }

// A Key is a key of a store in parts.
type Key struct {
	Frame  *Frame
	Shared string // the text between the braces
	Other  string // the text after the tail of the frame and a colon; "" if there is none

	shared uint64 // the hash of the head and Shared
	caller uint64 // the hash of the head, Shared and Other
}

// seed is one for the process, so that a Frame is hashed once for all stores.
var seed = maphash.MakeSeed()

func text(s string) uint64 { return maphash.String(seed, s) }

// SetHash sets the results of Caller and Hash.
func (k *Key) SetHash() {
	k.shared = text(k.Shared) ^ k.Frame.headHash
	if k.caller = k.shared; k.Other != "" {
		k.caller ^= otherHash(k.Other)
	}
}

// SetHashAfter is SetHash if earlier, whose hash is set, has the same head and the same Shared.
func (k *Key) SetHashAfter(earlier *Key) {
	if k.shared, k.caller = earlier.shared, earlier.shared; k.Other != "" {
		k.setOtherAfter(earlier)
	}
}

func (k *Key) setOtherAfter(earlier *Key) {
	if k.Other == earlier.Other {
		k.caller = earlier.caller
	} else {
		k.caller ^= otherHash(k.Other)
	}
}

func otherHash(s string) uint64 { return bits.RotateLeft64(text(s), 2) }

// Caller returns the hash of all parts except the tail of the frame. So it is the same for all
// rules of a limiter that limit the same caller.
func (k *Key) Caller() uint64 { return k.caller }

// Hash returns the hash of k. It is never 0.
func (k *Key) Hash() uint64 { return (k.caller ^ k.Frame.tailHash) | 1 }

// Hash returns the results of [Key.Caller] and [Key.Hash] for key.
func Hash(key string) (caller, hash uint64) {
	head, shared, tail, other := split(key)
	f := frameOf(head, tail)
	k := Key{Frame: &f, Shared: shared, Other: other}
	k.SetHash()
	return k.caller, k.Hash()
}

// split returns the parts of key. If key is not a key of a limiter, its tail is empty.
func split(key string) (head, shared, tail, other string) {
	open := strings.IndexByte(key, '{') + 1
	head, shared = key[:open], key[open:]
	end := strings.IndexByte(shared, '}')
	if end < 0 {
		return head, shared, "", ""
	}
	shared, tail = shared[:end], shared[end:]
	const before = len("}:")
	if n := len(tail); n > before {
		if i := strings.IndexByte(tail[before:], ':'); i >= 0 {
			tail, other = tail[:before+i], tail[before+i+1:]
		}
	}
	if !endsInTag(tail) { // a key of a script of the user: other keys of the script can differ in any part
		return head, shared, "", key[open+end:]
	}
	return head, shared, tail, other
}

// endsInTag reports whether tail is "}:", a name and a dot if there is a name, and the tag of a kind.
func endsInTag(tail string) bool {
	n := len(tail)
	if n < len("}:g2") || tail[1] != ':' {
		return false
	}
	letter, digit, before := tail[n-2], tail[n-1], tail[n-3]
	return 'a' <= letter && letter <= 'z' && '0' <= digit && digit <= '9' && (before == '.' || n == len("}:g2"))
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

// IsFramed is Is for a key with the frame of k. It returns false if k has an Other. A call of IsFramed is
// inlined, so it takes less time than a call of Is.
func (k *Key) IsFramed(key string) bool {
	f := k.Frame
	from := len(f.head)
	to := from + len(k.Shared) // the tail begins with the first closing brace
	return k.Other == "" && len(key) == to+len(f.tail) && key[to] == '}' && key[from:to] == k.Shared
}
