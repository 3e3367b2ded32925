package storekey

import "github.com/weir-go/weir/store"

// A Record is a value in the memory of the process: up to four integers.
type Record struct {
	Ints    [4]int64 // those after the first Len are 0
	Expires int64    // microseconds since the epoch
	Extra   uint32   // only the store uses it
	Tag     store.Tag
	Len     uint8 // the number of integers; a larger one marks a value that is not in Ints
	Denied  bool  // the last request that could have changed the value was denied
}

// Deny marks r, of which the request was denied at now.
func (r *Record) Deny(now int64) { r.Denied = r.Denied || r.Expires > now }

// A Place is a key, and the record that a store has found under it.
type Place struct {
	Key
	Record *Record // nil if the key is missing
}
