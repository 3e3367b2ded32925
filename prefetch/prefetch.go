// Package prefetch consumes tokens ahead of the requests of busy keys, and then allows
// those requests without a round trip:
//
//	pre := prefetch.New(&prefetch.Options{MaxTokens: 1000})
//	lim, err = lim.Wrap(pre.Wrap)
//	if err != nil {
//		return err
//	}
//	// … after the last request:
//	err = pre.Return(ctx)
//
// A prefetch is one round trip, a TakeUpTo. It asks for as many tokens as the key
// recently used in half of Options.MaxAge, at most MaxTokens, and at most twice as many
// as the previous prefetch. The process holds the tokens until requests use them.
//
// # Promise
//
// All processes together never allow more than the store granted, because a token is
// consumed in the store before it is used. But it can be used up to MaxAge later. So in
// any span of time, requests may use as much as the limit grants in that span plus
// MaxAge. Tokens of an algorithm.FixedWindow end with their window, so each window allows
// at most the limit.
//
// If a process dies, the tokens that it holds, at most MaxTokens of a key, are lost until
// they are refilled. Until they are used or returned, no other process can use them, so a
// request can be denied although tokens are held elsewhere. To keep this rare, a process
// prefetches at most a quarter of its share of the remaining tokens, and returns the
// surplus. Its share follows its recent use. When few tokens remain, requests consume
// them one by one.
//
// # Requests
//
// Held tokens answer a Consume without Costs, ID, MaxWait and Metadata, if they cover its
// cost.
// Every other request is passed on, and does not change held tokens. The store, and
// therefore Peek, counts held tokens as consumed.
//
// In an answer from held tokens, Remaining and ResetAfter count down from the values that
// the prefetch returned. If other processes consume tokens, Remaining is too high, for
// less than MaxAge.
//
// Denials come from the store. To remember them, wrap the Pool in a denycache.Cache,
// which forgets a denial when the Pool returns tokens of its key.
//
// While a prefetch is under way, requests for its key wait, at most one for each token
// that it asks for. No request waits for another key.
//
// A Reset ends the use of the tokens that this Pool holds for the key. Other processes,
// and other keys that share the limit of a rule, can use theirs in addition to the reset
// limit, for less than MaxAge.
//
// # Unused tokens
//
// A Pool has no goroutine and no timer. After MaxAge, unused tokens are returned with the
// next call that reaches the store, for any key, which then takes a second round trip of
// at most one second. [Pool.Return] returns all tokens at once. Tokens that have been
// refilled in the meantime are not returned: see [weir.Limiter.Refund].
//
// The store keeps one more key for each rule and prefetch, until the tokens have been
// refilled. If a window is hours or days long, choose a longer MaxAge, so that it has
// fewer of these keys.
//
// # Errors
//
// If a prefetch fails, its caller gets the error, and the Pool later returns any tokens
// that it consumed. During an outage, requests use up the held tokens. Then an
// outage.Breaker inside the Pool answers.
//
// Of the requests of DoMany, those that held tokens do not answer are one batch. An
// observer inside the Pool sees each TakeUpTo and Settle, and one around it sees every
// answer.
package prefetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/internal/prose"
)

// The defaults of [Options].
const (
	DefaultMaxTokens = 1000
	DefaultMaxAge    = time.Second
	DefaultMaxKeys   = 4096
)

const (
	maxTokens  = 1 << 20
	maxAge     = time.Hour
	maxKeys    = 1 << 24
	maxKeySize = 1024 // bytes
)

// Options are the settings of a [Pool]. The zero value is the default.
type Options struct {
	// MaxTokens is the largest number of tokens that the process holds for a key, from 2
	// to 2^20. 0 means DefaultMaxTokens, 1,000.
	MaxTokens int64

	// MaxAge is how long a prefetched token can be used, at most one hour. 0 means
	// DefaultMaxAge, 1 s. A longer MaxAge saves more round trips, but tokens can be used
	// that much later than the limit granted them. Only a key that uses more than four
	// tokens in each MaxAge is prefetched.
	MaxAge time.Duration

	// MaxKeys is the number of keys for which the process holds tokens, at most 2^24. It
	// is rounded up to a power of two, at least 4. 0 means DefaultMaxKeys, 4,096. A key
	// takes about 650 bytes, plus 120 for each rule. Further keys, and keys with more
	// than 1,024 bytes of segments, are decided as if there was no Pool.
	MaxKeys int

	// Now is the clock by which tokens age. nil means time.Now. Set it in tests that set
	// Options.Clock or the clock of the store.
	Now func() time.Time
}

// A Pool holds tokens for the limiters that it wraps. Make one with [New]. It is safe for
// concurrent use. Limiters over one store can share it, if the wrappers inside of it
// treat their requests alike.
type Pool struct {
	opts    Options   // with the defaults; MaxKeys is a power of two
	invalid error     // the error of Wrap if the Options are not valid
	start   time.Time // times are measured from it
	seed    maphash.Seed
	making  sync.Mutex                // of holdings
	places  []atomic.Pointer[holding] // MaxKeys of them
	away    atomic.Bool               // the last answer was made without the store
	owed    owed
	failed  atomic.Pointer[failedReturn] // the last return that failed; nil if none did
	store   gate.OneStore
}

// New returns a Pool. nil opts means the defaults. If a field is not valid, [Pool.Wrap]
// returns an error that names it.
func New(opts *Options) *Pool {
	p := &Pool{seed: maphash.MakeSeed()}
	if opts != nil {
		p.opts = *opts
	}
	if p.invalid = p.opts.complete(); p.invalid == nil {
		p.places = make([]atomic.Pointer[holding], p.opts.MaxKeys)
	}
	if p.start = time.Now(); p.opts.Now != nil {
		p.start = p.opts.Now()
	}
	return p
}

// complete checks o, and replaces zero values by the defaults.
func (o *Options) complete() error {
	switch {
	case o.MaxTokens != 0 && (o.MaxTokens < 2 || o.MaxTokens > maxTokens):
		return fmt.Errorf("prefetch: Options.MaxTokens is %d: it must be from 2 to %d, or 0 for %d", o.MaxTokens, maxTokens, DefaultMaxTokens)
	case o.MaxAge != 0 && (o.MaxAge < time.Millisecond || o.MaxAge > maxAge):
		return fmt.Errorf("prefetch: Options.MaxAge is %v: it must be from 1ms to %v, or 0 for %v", o.MaxAge, maxAge, DefaultMaxAge)
	case o.MaxKeys < 0 || o.MaxKeys > maxKeys:
		return fmt.Errorf("prefetch: Options.MaxKeys is %d: it must be from 1 to %d, or 0 for %d", o.MaxKeys, maxKeys, DefaultMaxKeys)
	}
	o.MaxTokens = cmp.Or(o.MaxTokens, DefaultMaxTokens)
	o.MaxAge = cmp.Or(o.MaxAge, DefaultMaxAge)
	o.MaxKeys = max(1<<bits.Len(uint(cmp.Or(o.MaxKeys, DefaultMaxKeys)-1)), ways)
	return nil
}

// Wrap is a [weir.Wrapper]. Pass it to [weir.Limiter.Wrap] before an outage.Breaker, so
// that held tokens are used during an outage, and after a denycache.Cache, which
// remembers the denials. The limiters that With and Only return share the Pool, and hold
// tokens of a key for each set of limits.
//
// The error is [weir.ErrUnsupported] if a rule has a Cost or a Unit, is a shadow rule or
// an algorithm.Pause, queues its requests as an algorithm.LeakyBucket does, or cannot be
// settled, because unused tokens are returned with [weir.Limiter.Settle]. Wrap also
// rejects Options that are not valid, a next that has a Pool, and a limiter over another
// store than the first.
func (p *Pool) Wrap(lim *weir.Limiter, next weir.Decider) (weir.Decider, error) {
	switch {
	case p == nil || p.start.IsZero():
		return nil, errNoPool
	case p.invalid != nil:
		return nil, p.invalid
	}
	if _, twice := weir.Find[*decider](next); twice {
		return nil, errors.New("prefetch: the limiter already has a Pool: wrap it in one, once")
	}
	rules := lim.Rules()
	if err := supported(rules); err != nil {
		return nil, err
	}
	if !p.store.Is(lim.Store()) {
		return nil, errors.New("prefetch: the Pool already holds tokens of a limiter over another store: make a Pool for each store")
	}
	return &decider{Pool: p, next: next, rules: rules, limits: lim.Digest()}, nil
}

// supported returns an error if tokens of a rule cannot be consumed ahead of requests.
func supported(rules []weir.RuleInfo) error {
	for i := range rules {
		why := ""
		switch r := &rules[i]; {
		case r.Shadow:
			why = "is a shadow rule, which decides each request by itself: remove the rule, or do not prefetch"
		case r.Type == weir.PauseRule:
			why = "is a " + r.Kind + ", which requests with held tokens would not see: leave the rule out, or do not prefetch"
		case r.Type == weir.LeaseRule:
			why = "is a " + r.Kind + ", which holds leases: put the other rules in another limiter"
		case r.CostBy == weir.CostOwn:
			why = fmt.Sprintf("has the Cost %d for each request, but a prefetch would consume it once: leave Cost out, and give each request its cost", r.Cost)
		case r.CostBy == weir.CostUnit:
			why = fmt.Sprintf("counts the unit %q, of which each request has its own amount: put the rules with a Unit in another limiter", r.Unit)
		case r.Queues:
			why = "is a " + r.Kind + ", whose requests leave one by one: use algorithm.GCRA or TokenBucket"
		case !r.Refunds:
			why = "is a " + r.Kind + ", which cannot take unused tokens back: use another algorithm"
		case !r.Debt:
			why = "is a " + r.Kind + ", " + prose.NoDebt(r.Limit, r.Window)
		}
		if why != "" {
			return prose.Errorf(weir.ErrUnsupported, "prefetch: rule %q %s", rules[i].Name, why)
		}
	}
	return nil
}

// Return returns all unused tokens to the store. Call it after the last request, or when
// a process becomes idle: later requests prefetch again.
//
// If a return fails or takes longer than one second, for example because one master of a
// cluster is away, Return goes on with the others until ctx ends, and returns the first
// error of [weir.Limiter.Settle]. Call it again after an error.
func (p *Pool) Return(ctx context.Context) error {
	if p == nil || p.start.IsZero() {
		return errNoPool
	}
	return p.returnAll(ctx)
}

var errNoPool = errors.New("prefetch: the Pool is nil or a zero value: make one with New")

// now returns the time since p.start.
func (p *Pool) now() time.Duration {
	if p.opts.Now != nil {
		return p.opts.Now().Sub(p.start)
	}
	return time.Since(p.start) // quicker than time.Now
}
