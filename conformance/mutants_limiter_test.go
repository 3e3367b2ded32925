package conformance

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

// digest matches the end of a marker's key.
var leadingZeros = regexp.MustCompile(` 0+(\d)`)

var digest = regexp.MustCompile(`:%id=[0-9a-f]{32}$`)

// oneMarker gives all markers of a key that has tag in it one name, whatever the
// decision.
func oneMarker(tag string) mutation {
	return mutation{keys: func(key string) string {
		if strings.Contains(key, tag) {
			return digest.ReplaceAllString(key, ":%id=one")
		}
		return key
	}}
}

func undoes(s *store.Script) bool { return strings.HasSuffix(s.Name(), ".refund") }

// lasting keeps the TTL of every key that exists.
type lasting struct{ store.Tx }

func (k lasting) Put(i int, n store.Nums, ttl time.Duration) {
	if _, ok, err := k.Get(i); ok && err == nil {
		k.Keep(i, n)
		return
	}
	k.Tx.Put(i, n, ttl)
}

// markerReads changes what a script reads from the marker of its only rule.
func markerReads(change func(n *store.Nums)) func(*fake, store.Tx) store.Tx {
	return func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(i int, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if i == 1 && ok {
				change(&n)
			}
			return n, ok, err
		}}
	}
}

var limiterMutants = []mutant{
	{"the time of a mix is off", "Limiter/Mix", []string{"SlidingBuckets/Peek", "SlidingBuckets/Sixteen", "Limiter/PeekMany", "MetadataWindow/Same", "Limiter/PeekMany", "Limiter/Many", "Limiter/Modes", "Limiter/Mix", "/Mix", "/Sixteen"}, changed(func(s *store.Script, _ []string, reply []store.Value) {
		if composed(s) {
			reply[1] = store.IntegerValue(reply[1].Int() + 1)
		}
	})},
	{"a denial charges", "Limiter/Mix", []string{"Limiter/Writes", "Limiter/Mix", "Limiter/Modes", "Limiter/Refund", "Limiter/Mix", "/Mix", "/Sixteen", "/Ask"}, mutation{after: func(_ *fake, s *store.Script, tx store.Tx, reply []store.Value) {
		if composed(s) && !asks(s) && !undoes(s) && reply[0].Int() == 0 {
			spend(tx)
		}
	}}},
	{"a rule with a Cost of its own consumes 1", "Limiter/Mix", []string{"/Mix", "/Sixteen"}, mutation{policy: func(p *weir.Policy) {
		if len(p.Rules) == 1 || p.Name == "" {
			return // it is what the others are compared with, or the limits of With
		}
		p.Rules = slices.Clone(p.Rules)
		for i := range p.Rules {
			p.Rules[i].Cost = min(p.Rules[i].Cost, 1)
		}
	}}},
	{"asking charges", "GCRA/Ask", []string{"Limiter/", "/Ask"}, mutation{after: func(_ *fake, s *store.Script, tx store.Tx, _ []store.Value) {
		if composed(s) && asks(s) {
			spend(tx)
		}
	}}},
	{"many values are off by one", "Limiter/PeekMany", nil, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		values, err := f.Store.MGet(ctx, keys, values)
		if err == nil && len(keys) > 0 && strings.HasSuffix(keys[0], "{tenant0}:a.f2") {
			values = append(values[1:], values[0])
		}
		return values, err
	}}},
	{"a batch answers the wrong caller", "Limiter/PeekMany", []string{"Batch/"}, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		for i := range calls {
			c := &calls[i]
			keys := c.Keys
			if len(keys) > 10 && i > 0 && c.Script != scripts.Clean {
				keys = calls[i-1].Keys
			}
			c.Reply, c.Err = f.right(ctx, c.Script, keys, c.Args, c.Reply)
		}
	}}},
	{"a reset of several rules does nothing", "Limiter/Reset", []string{"Limiter/Limits", "SlidingBuckets/Reset", "SlidingBuckets/Sixteen"}, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if composed(s) && strings.HasSuffix(s.Name(), ".reset") {
			return txFunc{Tx: tx, del: func(int) {}}
		}
		return tx
	}}},
	{"a foreign value passes for missing", "GCRA/Foreign", []string{"GCRA/ForeignType", "SlidingBuckets/", "MetadataWindow/Layout", "Limiter/PeekMany", "Limiter/Many", "Limiter/Refund", "/Foreign", "/ForeignType", "/Layout"}, ofLimiters(func(_ *fake, s *store.Script, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(_ int, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if composed(s) && (err != nil || n.Tag == scripts.PutTag) {
				return store.Nums{}, false, nil
			}
			return n, ok, err
		}}
	})},
	{"leading zeros are ignored", "GCRA/Layout", []string{"SlidingBuckets/Layout", "/Layout"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if s == scripts.PutText {
			args = []store.Arg{store.StringArg(leadingZeros.ReplaceAllString(args[0].String(), " $1"))}
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"a set passes for missing", "GCRA/ForeignType", []string{"SlidingBuckets/ForeignType", "MetadataWindow/Layout", "/ForeignType", "/Layout"}, ofLimiters(func(_ *fake, s *store.Script, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(_ int, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if composed(s) {
				err = nil
			}
			return n, ok, err
		}}
	})},
	{"a value with too many integers passes for missing", "GCRA/Layout", []string{"/Layout"}, ofLimiters(func(_ *fake, _ *store.Script, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(_ int, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			return n, ok && n.Len < 8, err
		}}
	})},
	{"a reset deletes foreign values", "GCRA/Layout", []string{"GCRA/ForeignType", "GCRA/Foreign", "SlidingBuckets/", "MetadataWindow/", "/Foreign", "/ForeignType", "/Layout"}, ofLimiters(func(_ *fake, s *store.Script, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(_ int, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if strings.HasSuffix(s.Name(), ".reset") {
				return store.Nums{}, false, nil
			}
			return n, ok, err
		}}
	})},
	{"names are not part of keys", "Limiter/Names", []string{"Limiter/Secret"}, mutation{policy: func(p *weir.Policy) { p.Name = suite.Name }}},
	{"tags are not part of keys", "Limiter/Changed", nil, mutation{keys: func(key string) string {
		before, _, _ := strings.Cut(key, "}:changes.")
		return before
	}}},
	{"secrets are not hashed", "Limiter/Secret", nil, mutation{policy: func(p *weir.Policy) { p.Secret = nil }}},
	{"a refund goes to whatever the key holds now", "FixedWindow/Refund", nil, onlyFor("fixedwindow.refund", func(_ *fake, tx store.Tx) store.Tx {
		gen := int64(0)
		return txFunc{Tx: tx, get: func(i int, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			switch {
			case i == 0 && n.Len == 3:
				gen = n.N[2]
			case i == 1 && gen > 0:
				n.N[0] = gen
			}
			return n, ok, err
		}}
	})},
	{"a repeat is charged again", "FixedWindow/Refund", nil, onlyFor("fixedwindow.mark", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(i int, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			return n, ok && i == 0, err
		}}
	})},
	{"a Settle charges one token more", "FixedWindow/Refund", nil, oneMore("fixedwindow.settle", "", func(n *store.Nums) { n.N[1]++ })},
	{"a repeated Settle charges again", "FixedWindow/Refund", nil, onlyFor("fixedwindow.settle", markerReads(func(n *store.Nums) { n.N[2] = n.N[3] }))},
	{"a refund after a Settle returns the first cost", "SlidingCounter/Refund", nil, onlyFor("slidingcounter.refund", markerReads(func(n *store.Nums) { n.N[1] = n.N[3] }))},
	{"a marker is of an ID, not of a key", "Limiter/RefundKeys", nil, oneMarker("{twokeys")},
	{"a marker is of the limits", "Limiter/RefundLimits", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if len(keys) > 0 && strings.Contains(keys[0], "{limits") && strings.Contains(keys[len(keys)-1], ":%id=") {
			keys = slices.Clone(keys)
			for i := len(keys) / 2; i < len(keys); i++ {
				keys[i] += args[0].String()
			}
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"a refund ignores that the rate has changed", "Limiter/RefundLimits", nil, mutation{tx: func(_ *fake, s *store.Script, args []store.Arg, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(i int, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if ok && i == 2 && s.Name() == "gcra+gcra.settle" {
				n.N[4] = args[len(args)-3].Int() // FIT of the first marker; the second's and the time follow
			}
			return n, ok, err
		}}
	}}},
	{"a refund that returns nothing ends the ID", "Limiter/RefundLimits", []string{"GCRA/"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		start := len(reply)
		reply, err := f.right(ctx, s, keys, args, reply)
		if err == nil && s.Name() == "gcra.refund" && reply[start].Int() == 0 {
			reply[start+2], reply[start+3] = store.IntegerValue(0), store.IntegerValue(0)
			_, err = f.right(ctx, scripts.Clean, keys[1:], []store.Arg{store.IntArg(1)}, nil)
		}
		return reply, err
	}}},
	{"a Settle that returns nothing names no rule", "Limiter/RefundLimits", []string{"GCRA/"}, changed(func(s *store.Script, _ []string, reply []store.Value) {
		if s.Name() == "gcra.settle" {
			reply[3] = store.IntegerValue(0)
		}
	})},
	{"seconds are rounded down", "Limiter/Throttle", nil, changed(func(_ *store.Script, keys []string, reply []store.Value) {
		if strings.HasSuffix(keys[0], "}:g2") {
			now := reply[1].Int()
			reply[1] = store.IntegerValue(now + (now/1_000_000+1)*1_000_000%now)
		}
	})},
	{"a decision writes one key more", "Limiter/Prefix", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		start := len(reply)
		got, err := f.right(ctx, s, keys, args, reply)
		if err == nil && composed(s) && !asks(s) && got[start].Int() == 1 {
			_, err = f.Store.Eval(ctx, scripts.Put, []string{keys[0] + ":more"}, []store.Arg{store.IntArg(1000), store.IntArg(1)}, nil)
		}
		return got, err
	}}},
	{"a denial writes", "GCRA/Ask", []string{"SlidingBuckets/Peek", "Limiter/Mix", "MetadataWindow/Same", "Limiter/PeekMany", "/Ask", "/Sixteen", "/Mix"}, mutation{after: func(_ *fake, s *store.Script, tx store.Tx, reply []store.Value) {
		if composed(s) && reply[0].Int() == 0 {
			if _, ok, err := tx.Get(0); !ok && err == nil {
				tx.Put(0, scripts.Nums(store.Tag{'g', '2'}, 1), time.Hour)
			}
		}
	}}},
	{"a TTL is a second short", "GCRA/TTL", []string{"/TTL", "/Same"}, ofLimiters(func(_ *fake, _ *store.Script, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			if ttl > 3*time.Second {
				ttl -= 1100 * time.Millisecond
			}
			return n, ttl
		}}
	})},
	{"a caller's clock lengthens nothing", "GCRA/TTL", []string{"GCRA/", "FixedWindow/", "SlidingBuckets/", "SlidingCounter/", "TokenBucket/", "LeakyBucket/", "Limiter/", "/TTL", "/Same"}, mutation{tx: func(_ *fake, s *store.Script, args []store.Arg, tx store.Tx) store.Tx {
		at := len(args) - 1 // the index of the time: last, or before the generation
		switch {
		case strings.Contains(s.Name(), ".force"), strings.HasSuffix(s.Name(), ".settle"):
			at -= 2
		case strings.HasSuffix(s.Name(), ".mark") || undoes(s):
			at--
		}
		if ofSuite(s) || at < 0 || args[at].Int()/1e15 != 1 {
			return tx
		}
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) { return n, ttl - time.Hour }}
	}}},
	{"a key keeps its TTL whenever it exists", "GCRA/TTL", []string{"/TTL", "/Same"}, ofLimiters(func(_ *fake, _ *store.Script, tx store.Tx) store.Tx { return lasting{tx} })},
}
