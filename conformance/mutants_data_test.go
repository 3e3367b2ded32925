package conformance

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/store"
)

// fold returns a function that takes each old text of pairs for the new text that follows
// it.
func fold(pairs ...string) func(string) string { return strings.NewReplacer(pairs...).Replace }

// accents are letters with accents, and the letters without.
var accents = fold("\u00e9", "e", "e\u0301", "e", "\u00c9", "E", "\u00e1", "a")

// lowerTag returns key with its hash tag in lower case.
func lowerTag(key string) string {
	open, end := strings.IndexByte(key, '{'), strings.IndexByte(key, '}')
	if open < 0 || end < open {
		return key
	}
	return key[:open] + strings.ToLower(key[open:end]) + key[end:]
}

func trimRight(cutset string) func(string) string {
	return func(s string) string { return strings.TrimRight(s, cutset) }
}

// texts changes the texts of members that scripts.Fill adds.
func texts(change func(string) string) mutation {
	return onlyFor("fill", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, add: func(i int, m store.Member, ttl time.Duration) {
			m.Text = change(m.Text)
			tx.Add(i, m, ttl)
		}}
	})
}

// full drops members when a set has as many as members, or as many bytes as size.
func full(members, size int) mutation {
	return onlyFor("fill", func(f *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, add: func(i int, m store.Member, ttl time.Duration) {
			held, _ := f.memo.([2]int)
			if held[0] < members && held[1]+len(m.Text) <= size {
				tx.Add(i, m, ttl)
				f.memo = [2]int{held[0] + 1, held[1] + len(m.Text)}
			}
		}}
	})
}

// firstCalls runs only the first n calls of a batch.
func firstCalls(n int) mutation {
	return mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		f.rightBatch(ctx, calls[:min(n, len(calls))])
	}}
}

// writesAt counts a write of each call of a limiter for which at returns true.
func writesAt(at func(s *store.Script, err error) bool) mutation {
	return mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if !ofSuite(s) && at(s, err) {
			f.writes.Add(1)
		}
		return got, err
	}}
}

// dataMutants lose or mix up what they hold.
var dataMutants = []mutant{
	{"sets have at most 64 KiB", "Store/Large", nil, full(1<<30, 64<<10)},
	{"sets have at most 1 MiB", "Store/Large", nil, full(1<<30, 1<<20)},
	{"sets have at most 5,000 members", "Store/Large", nil, full(5000, 1<<30)},

	{"a value that the store cannot read is missing", "Store/Unreadable", nil, onlyFor("read", func(f *fake, tx store.Tx) store.Tx {
		if len(f.planted) == 0 {
			return tx
		}
		return txFunc{Tx: tx,
			get:   func(int, store.Nums, bool, error) (store.Nums, bool, error) { return store.Nums{}, false, nil },
			at:    func(int, int64) (store.Member, bool, error) { return store.Member{}, false, nil },
			count: func(int, int64) (above, all int64, err error) { return 0, 0, nil },
			score: func(int, string) (int64, bool, error) { return 0, false, nil },
		}
	})},
	{"a value that the store cannot read is replaced", "Store/Unreadable", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if s == scripts.Read && errors.Is(err, store.ErrForeign) && f.planted[keys[1]] {
			_, _ = f.right(ctx, scripts.Put, keys[1:], []store.Arg{scripts.LongMillis, store.IntArg(1)}, nil)
		}
		return got, err
	}}},
	{"a value that the store cannot read is not deleted", "Store/Unreadable", nil, onlyFor("clean", func(f *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, del: func(i int) {
			if len(f.planted) == 0 {
				tx.Del(i)
			}
		}}
	})},

	{"keys are paths, which are cleaned", "Store/Keys", nil, mutation{keys: path.Clean}},
	{"keys have no accents", "Store/Keys", []string{"List/Prefix", "Store/CrossSlot"}, mutation{keys: accents}},
	{"keys are composed", "Store/Keys", nil, mutation{keys: fold("e\u0301", "\u00e9")}},
	{"a sharp s in a key is two letters", "Store/Keys", nil, mutation{keys: fold("\u00df", "ss", "\u1e9e", "SS")}},
	{"keys have no case", "Store/Keys", []string{"List/Prefix", "Limiter/Names", "Limiter/Prefix", "Store/CrossSlot", "Store/Foreign"}, mutation{keys: strings.ToLower}},
	{"hash tags have no case", "Store/Keys", []string{"Limiter/Prefix", "Store/CrossSlot", "Store/Foreign"}, mutation{keys: lowerTag}},
	{"keys end before spaces", "Store/Keys", []string{"List/Prefix"}, mutation{keys: trimRight(" ")}},
	{"NULs at the end of keys are lost", "Store/Keys", []string{"List/Prefix"}, mutation{keys: trimRight("\x00")}},
	{"keys are cut at 16 KiB", "Store/Keys", nil, mutation{keys: func(key string) string { return key[:min(len(key), 16<<10)] }}},
	{"keys are cut at 64 KiB", "Store/Keys", nil, mutation{keys: func(key string) string { return key[:min(len(key), 64<<10-1)] }}},

	{"slots have no case", "Store/CrossSlot", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if s == scripts.Put && errors.Is(err, store.ErrCrossSlot) && strings.EqualFold(keys[0], keys[1]) {
			for i := range keys {
				if got, err = f.right(ctx, scripts.Put, keys[i:i+1], []store.Arg{args[0], args[i+1]}, reply); err != nil {
					return got, err
				}
			}
		}
		return got, err
	}}},

	{"texts have no case", "Store/Set", nil, texts(strings.ToLower)},
	{"texts have no accents", "Store/Set", nil, texts(accents)},
	{"a sharp s in a text is two letters", "Store/Set", nil, texts(fold("\u00df", "ss"))},
	{"texts end before spaces", "Store/Set", nil, texts(trimRight(" "))},
	{"NULs at the end of texts are lost", "Store/Set", nil, texts(trimRight("\x00"))},
	{"a member with an empty text is dropped", "Store/Set", nil, onlyFor("fill", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, add: func(i int, m store.Member, ttl time.Duration) {
			if m.Text != "" {
				tx.Add(i, m, ttl)
			}
		}}
	})},

	{"a denied request writes", "Limiter/Writes", nil, writesAt(func(s *store.Script, err error) bool { return !s.ReadOnly() && err == nil })},
	{"a peek writes", "Limiter/Writes", nil, writesAt(func(s *store.Script, err error) bool { return s.ReadOnly() && err == nil })},
	{"a foreign value is noted in the database", "Limiter/Writes", nil, writesAt(func(_ *store.Script, err error) bool { return errors.Is(err, store.ErrForeign) })},
	{"a batch writes, even if its calls do not", "Limiter/Writes", nil, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		f.rightBatch(ctx, calls)
		f.writes.Add(1)
	}}},
	{"writes are not counted", "Limiter/Writes", nil, mutation{after: func(f *fake, _ *store.Script, _ store.Tx, _ []store.Value) { f.writes.Store(0) }}},

	{"a read-only script's clock is read before its snapshot", "Store/Atomic", []string{"Store/Peer"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		now := time.Now().UnixMicro()
		if s != scripts.Look || len(keys) != 2 {
			return f.right(ctx, s, keys, args, reply)
		}
		time.Sleep(50 * time.Microsecond)
		got, err := f.right(ctx, s, keys, args, reply)
		if err == nil {
			got[len(got)-1] = store.IntegerValue(now)
		}
		return got, err
	}}},
	{"the clock of scripts is cached for a millisecond", "Store/Time", []string{"Store/Atomic", "Store/Peer", "Store/Expiry"}, onlyFor("look", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, now: func() int64 { return tx.Now()/1000*1000 + 1 }}
	})},
	{"MGet loses the values before its own if it fails", "Store/Cancelled", nil, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		got, err := f.Store.MGet(ctx, keys, values)
		if err != nil {
			return nil, err
		}
		return got, nil
	}}},
	{"CheckDeadline always returns an error", "Store/Cancelled", nil, mutation{deadline: errors.New("the client ignores deadlines: set Timeout")}},
	{"every store borrows strings", "Store/Borrowed", nil, mutation{lends: true}},

	{"calls of a batch above 100 are ignored", "Batch/Independent", nil, firstCalls(100)},
	{"calls of a batch above 1,000 are ignored", "Batch/Independent", nil, firstCalls(1000)},
	{"an earlier Err of a call is kept", "Batch/Independent", []string{"Batch/ScriptLoss"}, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		for i := range calls {
			c := &calls[i]
			var err error
			if c.Reply, err = f.right(ctx, c.Script, c.Keys, c.Args, c.Reply); err != nil {
				c.Err = err
			}
		}
	}}},
	{"calls of a batch are grouped by their joined keys", "Batch/Independent", nil, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		groups := map[string][]string{}
		for i := range calls {
			c := &calls[i]
			joined := strings.Join(c.Keys, "")
			if groups[joined] == nil {
				groups[joined] = c.Keys
			}
			c.Reply, c.Err = f.right(ctx, c.Script, groups[joined], c.Args, c.Reply)
		}
	}}},
	{"the replies of a batch are not appended", "Batch/Independent", []string{"Batch/ScriptLoss", "Store/Panic"}, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		for i := range calls {
			c := &calls[i]
			c.Reply, c.Err = f.right(ctx, c.Script, c.Keys, c.Args, slices.Clip(c.Reply[:0]))
		}
	}}},
}
