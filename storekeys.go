package weir

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/internal/storekey"
)

// StoreKeys returns the keys in the store that a decision for k reads: one list for each
// rule, in the order of [Limiter.Rules]. Only an algorithm.SlidingBuckets has several.
// Markers of IDs are left out.
func (l *Limiter) StoreKeys(k Key) ([][]string, error) {
	if l == nil || l.ruleSet == nil {
		return nil, errNoLimiter
	}
	if err := l.ruleSet.space.check(&k); err != nil {
		return nil, err
	}
	lists := l.ruleSet.appendStoreKeys(nil, &k)
	for _, shadow := range l.ruleSet.shadows {
		lists = shadow.appendStoreKeys(lists, &k)
	}
	return lists, nil
}

// appendStoreKeys appends the keys of each rule of b for k to lists.
func (b *ruleSet) appendStoreKeys(lists [][]string, k *Key) [][]string {
	q := query{group: b.all}
	q.Program, q.Verb = b.all.program, script.Peek
	var s buffers
	b.setKeys(&s, &q, &Request{Key: *k}, false)
	for n, at := 0, 0; n < len(b.rules); n++ {
		end := at + q.Program.Keys(n)
		lists = append(lists, s.keys[at:end:end])
		at = end
	}
	return lists
}

// StorePrefix returns a prefix of every key of l in the store whose first segments are
// these. Other keys can begin with it too, so use [Limiter.ParseStoreKey].
func (l *Limiter) StorePrefix(segments ...string) string {
	if l == nil || l.ruleSet == nil {
		return ""
	}
	k := KeyOf(segments...)
	prefix := l.ruleSet.space.prefix(&k)
	for _, shadow := range l.ruleSet.shadows {
		other := shadow.space.prefix(&k)
		n := 0
		for n < min(len(prefix), len(other)) && prefix[n] == other[n] {
			n++
		}
		prefix = prefix[:n]
	}
	return prefix
}

// prefix returns the part of the keys that depends on the leading segments in k.
func (ks *keySpace) prefix(k *Key) string {
	b := []byte(ks.head)
	for i, n := range ks.shared.list {
		if n >= int(min(k.count, MaxSegments)) {
			return string(b)
		}
		last := i == len(ks.shared.list)-1
		if b = ks.appendSegment(b, n, k, !last); !last {
			b = append(b, ':')
		}
	}
	return string(append(b, "}:"...))
}

// A StoredKey is a parsed key of the store: see [Limiter.ParseStoreKey].
type StoredKey struct {
	Rule string // the name of the rule, as Limiter.Rules has it

	// Key has the segments in By of the rule, and "-" for the others. Use it with
	// Limiter.Only(Rule). It has a hash where the store has one. Decisions accept it, but
	// wrappers such as denycache treat it as another caller.
	Key Key

	// Segments are the segments of Key in By of the rule, in the order of By.
	Segments []StoredSegment
}

// A StoredSegment is a segment of a [StoredKey].
type StoredSegment struct {
	Name   string // as in Policy.Segments
	Value  string // the segment, or its hash as HashedKeyOf takes it
	Hashed bool   // Value is a hash
}

// HashedKeyOf is [KeyOf] for keys that operators type. A segment that looks like a hash,
// "%sha256=" and 64 hexadecimal digits, stands for the segment with that hash. To name a
// segment that itself looks like one, write %25 for its %. Do not use it for segments
// that callers choose, because one could name another's.
func HashedKeyOf(segments ...string) Key {
	k := KeyOf(segments...)
	for i, segment := range k.segments {
		if storekey.IsHash(segment) {
			k.hashed |= 1 << i
		} else if storekey.LooksHashed(segment) {
			k.segments[i] = "%" + segment[len("%25"):]
		}
	}
	return k
}

// ParseStoreKey returns the rule and the segments of a key that [Limiter.StoreKeys]
// returns, and false for any other key.
func (l *Limiter) ParseStoreKey(stored string) (StoredKey, bool) {
	if l == nil || l.ruleSet == nil {
		return StoredKey{}, false
	}
	if k, ok := l.ruleSet.parseStoreKey(stored); ok {
		return k, true
	}
	for _, shadow := range l.ruleSet.shadows {
		if k, ok := shadow.parseStoreKey(stored); ok {
			return k, true
		}
	}
	return StoredKey{}, false
}

func (b *ruleSet) parseStoreKey(stored string) (StoredKey, bool) {
	ks := b.space
	rest, ok := strings.CutPrefix(stored, ks.head)
	end := strings.IndexByte(rest, '}')
	if !ok || end < 0 {
		return StoredKey{}, false
	}
	shared, rest := rest[:end], rest[end:]
	for n := range b.rules {
		r := &b.rules[n]
		tail, ok := strings.CutPrefix(rest, r.key.tail)
		if !ok || tail != "" && tail[0] != ':' {
			continue
		}
		if keys := b.all.program.Keys(n); keys > 1 {
			colon := strings.LastIndexByte(tail, ':')
			if colon < 0 || !isNumber(tail[colon+1:], keys) {
				return StoredKey{}, false
			}
			tail = tail[:colon]
		}
		k := Key{count: int32(len(ks.segments))}
		for i := range ks.segments {
			k.segments[i] = "-"
		}
		if !ks.parse(&k, ks.shared.list, shared) || (tail == "") != (len(r.key.other.list) == 0) ||
			tail != "" && !ks.parse(&k, r.key.other.list, tail[1:]) {
			return StoredKey{}, false
		}
		out := StoredKey{Rule: r.name, Key: k}
		for _, i := range r.key.by.list() {
			hashed := k.hashed.has(i)
			out.Segments = append(out.Segments, StoredSegment{ks.segments[i], storekey.Typed(k.segments[i], hashed), hashed})
		}
		return out, true
	}
	return StoredKey{}, false
}

// isNumber reports whether text is what appendNumber writes for a number below limit.
func isNumber(text string, limit int) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= 0 && n < limit && strconv.Itoa(n) == text
}

// parse sets the segments of k in list. text is what appendSegments has appended for
// them. If it is another text, parse returns false.
func (ks *keySpace) parse(k *Key, list []int, text string) bool {
	parts := strings.SplitN(text, ":", len(list))
	if len(parts) != len(list) {
		return false
	}
	for i, n := range list {
		if storekey.IsHash(parts[i]) {
			k.segments[n], k.hashed = parts[i], k.hashed|1<<n
			continue
		}
		value, ok := unescape(parts[i], i < len(list)-1)
		if !ok || ks.secret.has(n) {
			return false
		}
		k.segments[n] = value
	}
	return true
}

// unescape returns the segment that appendEscaped has appended as text. It returns false
// if text is no such text.
func unescape(text string, colons bool) (string, bool) {
	var b []byte
	for rest := text; ; {
		before, after, found := strings.Cut(rest, "%")
		if b = append(b, before...); !found {
			break
		}
		if len(after) < 2 {
			return "", false
		}
		c, err := hex.DecodeString(after[:2])
		if err != nil {
			return "", false
		}
		b, rest = append(b, c[0]), after[2:]
	}
	segment := string(b)
	return segment, segment != "" && string(appendEscaped(nil, segment, colons)) == text
}
