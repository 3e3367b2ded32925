// Package sfvtest compares the structured fields of weirhttp with another implementation
// of RFC 9651, github.com/dunglas/httpsfv. It is a module of its own, so that users of
// weir do not download that implementation.
package sfvtest
