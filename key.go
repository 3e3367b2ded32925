package weir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// MaxSegment is the length, in bytes, of the longest prefix, rule name or path
// segment that stands in a key as it is. A longer one is replaced by the mark
// "%sha256=", which escaping cannot produce, and its SHA-256 in hexadecimal.
const MaxSegment = 128

// maxSegments bounds what a rule can be by.
const maxSegments = 64

// A keySpace turns paths into keys: prefix:{shared segments}:rule:other segments.
type keySpace struct {
	head   string // prefix and opening brace
	shared []int  // the segments in the hash tag, ascending; nil: all
	rules  []ruleKey
	need   int  // the least number of segments
	exact  bool // and the most
}

type ruleKey struct {
	tail string // closing brace and rule name
	rest []int  // the segments behind the name, ascending
	all  bool   // and all segments from keySpace.need on
	full bool   // the first need segments identify the rule: rest and shared are all of them
}

func newKeySpace(prefix string, names []string, bys [][]int) (keySpace, error) {
	ks := keySpace{head: string(appendEscaped(nil, prefix)) + ":{", exact: true, need: 1}
	var everywhere bool // every rule is by all segments
	sets := make([][]int, len(bys))
	for i, by := range bys {
		set := slices.Clone(by)
		slices.Sort(set)
		switch {
		case by == nil:
			ks.exact = false
			continue
		case len(by) == 0:
			return ks, fmt.Errorf("rule %q is by no segment: list segments in By, or leave it nil for all", names[i])
		case set[0] < 0 || set[len(set)-1] >= maxSegments:
			return ks, fmt.Errorf("rule %q is by segments %v: they count from 0 to %d", names[i], by, maxSegments-1)
		case len(slices.Compact(slices.Clone(set))) < len(set):
			return ks, fmt.Errorf("rule %q is by a segment twice: %v", names[i], by)
		}
		ks.need = max(ks.need, set[len(set)-1]+1)
		sets[i] = set
	}
	everywhere = !slices.ContainsFunc(sets, func(s []int) bool { return s != nil })
	if !everywhere {
		for n := range ks.need {
			if !slices.ContainsFunc(sets, func(s []int) bool { return s != nil && !slices.Contains(s, n) }) {
				ks.shared = append(ks.shared, n)
			}
		}
		if ks.shared == nil {
			return ks, errors.New("the rules have no segment in common: all keys of one decision lie in one cluster slot, " +
				"which the shared segments choose; give every rule a segment that all have, an action or a tenant for instance, or use two limiters")
		}
	}
	for i, set := range sets {
		rk := ruleKey{tail: "}:" + string(appendEscaped(nil, names[i])), all: set == nil && !everywhere}
		rk.full = set == nil || len(set) == ks.need
		if !everywhere {
			for n := range ks.need {
				if (set == nil || slices.Contains(set, n)) && !slices.Contains(ks.shared, n) {
					rk.rest = append(rk.rest, n)
				}
			}
		}
		ks.rules = append(ks.rules, rk)
	}
	return ks, nil
}

// check returns an ErrInvalidKey unless keys can be made of path. It keeps
// path out of the error, so that a caller's path need not be on the heap.
func (ks *keySpace) check(path []string) error {
	switch {
	case len(path) < ks.need:
		return fmt.Errorf("%w: the path has %d segments, the rules need %d", ErrInvalidKey, len(path), ks.need)
	case len(path) > ks.need && ks.exact:
		return fmt.Errorf("%w: the path has %d segments, the rules use %d", ErrInvalidKey, len(path), ks.need)
	}
	for i, s := range path {
		if s == "" {
			return fmt.Errorf("%w: segment %d of the path is empty", ErrInvalidKey, i)
		}
	}
	return nil
}

// appendKey appends the key of rule n for a path that check allowed.
func (ks *keySpace) appendKey(b []byte, n int, path []string) []byte {
	b = append(b, ks.head...)
	if ks.shared == nil {
		for i, s := range path {
			if i > 0 {
				b = append(b, ':')
			}
			b = appendEscaped(b, s)
		}
	}
	for i, n := range ks.shared {
		if i > 0 {
			b = append(b, ':')
		}
		b = appendEscaped(b, path[n])
	}
	rk := &ks.rules[n]
	b = append(b, rk.tail...)
	for _, n := range rk.rest {
		b = appendEscaped(append(b, ':'), path[n])
	}
	if rk.all {
		for _, s := range path[ks.need:] {
			b = appendEscaped(append(b, ':'), s)
		}
	}
	return b
}

// appendNumber appends to the key of a rule with several keys the number of one
// of them, as a segment. Names and segments are escaped, and every key of such
// a rule ends in one number, so what stands before that is the rule's key of
// one path alone: no two of a rule's keys, nor those of two rules of one
// limiter, are the same.
func appendNumber(b []byte, n int) []byte {
	return strconv.AppendInt(append(b, ':'), int64(n), 10)
}

// appendID appends to the key of a rule what makes it the key of a marker: a mark
// that escaping cannot produce, and the decision's ID.
func appendID(b []byte, id string) []byte { return appendEscaped(append(b, ":%id="...), id) }

// noteKey makes the key of a rule that of its note: see appendID.
const noteKey = ":%refunds"

// identified reports whether the whole of path identifies rule n.
func (ks *keySpace) identified(n int, path []string) bool {
	rk := &ks.rules[n]
	return rk.full && (rk.all || ks.shared == nil || len(path) == ks.need)
}

// appendEscaped appends s with what has a meaning in a key, and the escape
// itself, as % and two hexadecimal digits.
func appendEscaped(b []byte, s string) []byte {
	if len(s) > MaxSegment {
		sum := sha256.Sum256([]byte(s))
		return hex.AppendEncode(append(b, "%sha256="...), sum[:])
	}
	from := 0
	for i := range len(s) {
		if escaped[s[i]] {
			b = append(b, s[from:i]...)
			b = append(b, '%', "0123456789ABCDEF"[s[i]>>4], "0123456789ABCDEF"[s[i]&15])
			from = i + 1
		}
	}
	return append(b, s[from:]...)
}

var escaped = [256]bool{'{': true, '}': true, ':': true, '%': true}
