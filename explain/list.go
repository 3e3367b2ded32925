package explain

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/store"
)

// ErrMore ends a listing that has looked at [ListOptions].MaxKeys keys before its end.
var ErrMore = errors.New("explain: the listing is not complete: raise MaxKeys, or name more segments")

// ListOptions says what [List] and [Top] list. The zero value is everything.
type ListOptions struct {
	// Rule is the name of the rule. If it is empty, the callers of all rules are listed,
	// even of shadow rules.
	Rule string

	// Segments are the first segments of the callers to list, for example a tenant. A
	// segment can be a hash, as Segment.Value has it for a secret or a long one. Only
	// rules that have all of them in By are listed. If all rules do, the store need not
	// look at other keys.
	Segments []string

	// Usage asks for the state of each caller: see Caller.Usage. Top always does.
	Usage bool

	// Limiter returns the limiter for a caller, for example for its plan, which
	// weir.Limiter.With has made from the listed limiter. If it is nil or returns nil,
	// the caller has the limits of the listed limiter.
	Limiter func(c *Caller) *weir.Limiter

	// MaxKeys is the largest number of keys of the limiter to look at, including those
	// that decisions with an ID keep. 0 means no bound.
	MaxKeys int
}

// A Caller is a caller that has state in the store for a rule.
type Caller struct {
	Rule     string    `json:"rule"`
	Segments []Segment `json:"segments"` // the segments in By of the rule

	// Usage is the state of the rule for the caller. It is nil if ListOptions.Usage is
	// false, or if Error is set.
	*Usage

	// Error says why the state cannot be read: another program has written to the key.
	Error string `json:"error,omitempty"`

	// StoreKey is a key of the caller in the store. From it, weir.Limiter.ParseStoreKey
	// makes the Key.
	StoreKey string `json:"store_key"`

	// Key is for a decision of weir.Limiter.Only(Rule), for example to reset the rule for
	// the caller. It has all segments of the policy: see [weir.StoredKey].Key.
	Key weir.Key `json:"-"`
}

// listPage is the number of callers whose state is read together.
const listPage = 256

// List lists the callers that have state in the store of lim, in no order: each caller
// once for each rule for which it has state. If opts is nil, it lists all of them. A
// caller whose limits are fully reset may be listed or not. Callers may come and go
// during the listing.
//
//	for c, err := range explain.List(ctx, lim, &explain.ListOptions{Rule: "user", Usage: true}) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(c.Segments, c.State)
//	}
//
// Each call of the store does a bounded amount of work, so that it does not hold up
// decisions. But a Redis server looks at all its keys, even other programs', so give ctx
// a deadline. The listing remembers a hash of each caller, which takes about 40 bytes.
//
// If the listing fails, the last element has the error:
//   - [ErrMore] if the listing is not complete because of ListOptions.MaxKeys.
//   - [weir.ErrUnsupported] if the store is no [store.Lister].
//   - [weir.ErrInvalidRule] if there is no rule with that name.
//   - [weir.ErrInvalidKey] if there are more segments than the policy has, or an empty
//     one.
//   - an error of the store, for example [store.ErrUnavailable].
func List(ctx context.Context, lim *weir.Limiter, opts *ListOptions) iter.Seq2[Caller, error] {
	return func(yield func(Caller, error) bool) {
		l, err := newListing(lim, opts)
		for more := err == nil; more; {
			var page []Caller
			if page, more, err = l.next(ctx); err != nil {
				break
			}
			for _, c := range page {
				if !yield(c, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(Caller{}, err)
		}
	}
}

// A listing is the state of a List.
type listing struct {
	ListOptions
	lim    *weir.Limiter
	store  store.Lister
	prefix string
	want   []Segment // of Segments, as they are stored
	rules  map[string]*listedRule
	others map[otherRule]*listedRule // of ListOptions.Limiter

	cursor string
	keys   []string // of the store, not looked at yet
	looked int
	ended  bool
	seen   map[[16]byte]bool // hashes of callers: an algorithm.SlidingBuckets has several keys for each
}

// A listedRule is a rule whose callers are listed.
type listedRule struct {
	info  weir.RuleInfo
	only  *weir.Limiter
	costs weir.Costs // of a peek
}

// An otherRule is a rule of a limiter that ListOptions.Limiter has returned.
type otherRule struct {
	lim  *weir.Limiter
	name string
}

func newListing(lim *weir.Limiter, opts *ListOptions) (*listing, error) {
	if err := lim.Valid(); err != nil {
		return nil, err
	}
	l := &listing{lim: lim.Bare(), rules: map[string]*listedRule{}, others: map[otherRule]*listedRule{}, seen: map[[16]byte]bool{}}
	if opts != nil {
		l.ListOptions = *opts
	}
	var ok bool
	if l.store, ok = lim.Store().(store.Lister); !ok {
		return nil, fmt.Errorf("explain: %w: the store is a %T, which is no store.Lister: it cannot list keys", weir.ErrUnsupported, lim.Store())
	}
	infos := lim.Segments()
	switch {
	case len(l.Segments) > len(infos):
		return nil, fmt.Errorf("explain: %w: there are %d segments: a key has %d", weir.ErrInvalidKey, len(l.Segments), len(infos))
	case slices.Contains(l.Segments, ""):
		return nil, fmt.Errorf("explain: %w: segment %d is empty: leave it out with all after it", weir.ErrInvalidKey, slices.Index(l.Segments, ""))
	}
	for _, info := range lim.Rules() {
		if l.Rule != "" && l.Rule != info.Name {
			continue
		}
		only, err := l.lim.Only(info.Name)
		if err != nil {
			return nil, err
		}
		l.rules[info.Name] = &listedRule{info, only, gate.Each(only, 1)}
	}
	if len(l.rules) == 0 {
		_, err := lim.Only(l.Rule) // it says what is wrong
		return nil, err
	}
	k, n := weir.HashedKeyOf(l.Segments...), 0
	for n < len(l.Segments) && !k.Hashed(n) { // StorePrefix would hash a hash
		n++
	}
	l.want, l.prefix = segments(l.lim, k), l.lim.StorePrefix(k.Segments()[:n]...)
	return l, nil
}

// next returns the next page of callers. It returns false after the last one.
func (l *listing) next(ctx context.Context) (page []Caller, more bool, err error) {
	for len(page) < listPage {
		if len(l.keys) == 0 {
			if l.ended {
				break
			}
			if l.keys, l.cursor, err = l.store.List(ctx, l.prefix, l.cursor, l.keys[:0]); err != nil {
				return nil, false, err
			}
			l.ended = l.cursor == ""
			continue
		}
		if l.MaxKeys > 0 && l.looked >= l.MaxKeys {
			if len(page) > 0 {
				break // ErrMore follows the page
			}
			return nil, false, ErrMore
		}
		l.looked++
		if c, ok := l.caller(l.keys[0]); ok {
			page = append(page, c)
		}
		l.keys = l.keys[1:]
	}
	if l.Usage {
		if err := l.peek(ctx, page); err != nil {
			return nil, false, err
		}
	}
	return page, !l.ended || len(l.keys) > 0, nil
}

// caller returns the caller of a key in the store. It returns false if the caller is not
// to be listed, or was listed already.
func (l *listing) caller(stored string) (Caller, bool) {
	k, ok := l.lim.ParseStoreKey(stored)
	if !ok || l.rules[k.Rule] == nil {
		return Caller{}, false
	}
	c := Caller{Rule: k.Rule, StoreKey: stored, Key: k.Key}
	for _, s := range k.Segments {
		c.Segments = append(c.Segments, Segment(s))
	}
	for _, want := range l.want {
		if !slices.Contains(c.Segments, want) {
			return Caller{}, false
		}
	}
	id := c.id()
	if l.seen[id] {
		return Caller{}, false
	}
	l.seen[id] = true
	return c, true
}

// id returns a hash of what identifies c.
func (c *Caller) id() (id [16]byte) {
	text := strconv.AppendQuote(nil, c.Rule)
	for _, s := range c.Segments {
		text = strconv.AppendBool(strconv.AppendQuote(text, s.Value), s.Hashed)
	}
	sum := sha256.Sum256(text)
	copy(id[:], sum[:])
	return id
}

// peek sets the usage of the callers of a page.
func (l *listing) peek(ctx context.Context, page []Caller) error {
	at := map[*listedRule][]int{}
	for i := range page {
		rule, err := l.rule(&page[i])
		if err != nil {
			return err
		}
		at[rule] = append(at[rule], i)
	}
	for rule, list := range at {
		requests := make([]weir.Request, len(list))
		for j, i := range list {
			requests[j] = weir.Request{Key: page[i].Key, Op: weir.Peek, Costs: rule.costs}
		}
		for j, a := range rule.only.DoMany(ctx, requests) {
			c := &page[list[j]]
			switch {
			case a.Err == nil:
				u := usage(&rule.info, &a.Result)
				c.Usage = &u
			case errors.Is(a.Err, store.ErrForeign):
				c.Error = a.Err.Error()
			default:
				return a.Err
			}
		}
	}
	return nil
}

// rule returns the rule of c with the limits of c.
func (l *listing) rule(c *Caller) (*listedRule, error) {
	if l.Limiter == nil {
		return l.rules[c.Rule], nil
	}
	lim := l.Limiter(c)
	if lim == nil {
		return l.rules[c.Rule], nil
	}
	other := otherRule{lim, c.Rule}
	if l.others[other] == nil {
		only, err := lim.Bare().Only(c.Rule)
		if err != nil {
			return nil, fmt.Errorf("explain: the result of ListOptions.Limiter: %w", err)
		}
		l.others[other] = &listedRule{only.Rules()[0], only, gate.Each(only, 1)}
	}
	return l.others[other], nil
}

// A Ranking is the result of [Top].
type Ranking struct {
	// Callers is sorted by Usage.Share, highest first, then by ResetAfter, longest first.
	Callers []Caller `json:"callers"`

	// Listed is the number of callers that were listed.
	Listed int `json:"listed"`

	// Complete is false if ListOptions.MaxKeys has ended the listing.
	Complete bool `json:"complete"`
}

// Top lists callers as [List] does, and returns the n that use most of their limits. It
// leaves out callers that have consumed nothing, or whose state cannot be read. It
// returns the errors of [List], except [ErrMore].
func Top(ctx context.Context, lim *weir.Limiter, n int, opts *ListOptions) (*Ranking, error) {
	if n < 1 {
		return nil, fmt.Errorf("explain: Top: the number of callers is %d: it must be at least 1", n)
	}
	all := ListOptions{}
	if opts != nil {
		all = *opts
	}
	all.Usage = true
	r := &Ranking{Callers: []Caller{}, Complete: true}
	for c, err := range List(ctx, lim, &all) {
		switch {
		case errors.Is(err, ErrMore):
			r.Complete = false
			continue
		case err != nil:
			return nil, err
		}
		if r.Listed++; c.Usage == nil || c.Used == 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(r.Callers, c, byUse)
		if at < n {
			r.Callers = slices.Insert(r.Callers, at, c)
			r.Callers = r.Callers[:min(len(r.Callers), n)]
		}
	}
	return r, nil
}

// byUse compares two callers. The caller that uses more comes first.
func byUse(a, b Caller) int {
	return cmp.Or(
		cmp.Compare(b.Share(), a.Share()),
		cmp.Compare(time.Duration(b.ResetAfter), time.Duration(a.ResetAfter)),
		cmp.Compare(a.StoreKey, b.StoreKey),
	)
}
