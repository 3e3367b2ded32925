package conformance

import (
	"context"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/store"
)

// dataMutants lose or mix up what they hold.
var dataMutants = []mutant{
	{"numbers are cut to eight", "Store/Nums", []string{"Limiter/", "/Refund", "/Same", "/Layout"}, puts(every, func(_ int, n *store.Nums, _ *time.Duration) {
		if !slices.Contains(markTags, n.Tag) { // a marker has nine too: every check of refunds would fail
			n.Len = min(n.Len, 8)
		}
	})},
	{"a missing key that keeps its TTL is written", "Store/Nums", nil, keeps(every, func(tx store.Tx, i int, n store.Nums) {
		if _, ok, err := tx.Get(i); !ok && err == nil {
			tx.Put(i, n, scripts.LongTTL)
			return
		}
		tx.Keep(i, n)
	})},
	{"a script does not see what it wrote", "Store/Nums", nil, gets(named("steps"), func(_ int, _ *store.Nums, ok *bool, _ *error) { *ok = false })},
	{"a foreign value of the second key names the first", "Store/Foreign", []string{"Store/Unreadable"}, foreign(func(c call, _ error) error { return store.Foreign(c.keys[0]) })},
	{"a foreign value is a failed script", "Store/Foreign", []string{"Store/Unreadable"}, as(named("read"), store.ErrForeign, store.ErrScript)},
	{"a number passes for a set without members", "Store/Foreign", []string{"Store/Unreadable"}, scores(named("read"), func(_ string, _ *int64, _ *bool, err *error) { *err = nil })},
	{"a form that finds a foreign value writes before", "Store/Foreign", []string{"Store/Unreadable"}, foreign(func(c call, err error) error {
		put(c, c.keys[0])
		return err
	})},
	{"a value that the store cannot read is missing", "Store/Unreadable", nil, mutation{tx: func(c call, tx store.Tx) store.Tx {
		if c.s != scripts.Read || len(c.f.planted) == 0 {
			return tx
		}
		return view{Tx: tx,
			get:   func(_ int, n *store.Nums, ok *bool, err *error) { *n, *ok, *err = store.Nums{}, false, nil },
			at:    func(_ int, _ int64, _ *store.Member, ok *bool, err *error) { *ok, *err = false, nil },
			count: func(int, int64) (above, all int64, err error) { return 0, 0, nil },
			score: func(_ int, _ string, _ *int64, ok *bool, err *error) { *ok, *err = false, nil },
		}
	}}},
	{"a value that the store cannot read is replaced", "Store/Unreadable", nil, foreign(func(c call, err error) error {
		if c.f.planted[c.keys[1]] {
			put(c, c.keys[1])
		}
		return err
	})},
	{"a value that the store cannot read is not deleted", "Store/Unreadable", nil, sees(named("clean"), func(c call, _ store.Tx) view {
		return view{del: func(int) bool { return len(c.f.planted) == 0 }}
	})},

	{"keys end at a NUL", "Store/Keys", []string{"List/Prefix"}, sends(every, func(c *call) {
		for i, key := range c.keys {
			c.keys[i], _, _ = strings.Cut(key, "\x00")
		}
	})},
	{"keys are paths, which are cleaned", "Store/Keys", nil, mutation{keys: path.Clean}},
	{"keys have no accents", "Store/Keys", []string{"List/Prefix", "Store/CrossSlot"}, mutation{keys: accents}},
	{"keys are composed", "Store/Keys", nil, mutation{keys: fold("e\u0301", "\u00e9")}},
	{"a sharp s in a key is two letters", "Store/Keys", nil, mutation{keys: fold("\u00df", "ss", "\u1e9e", "SS")}},
	{"keys have no case", "Store/Keys", []string{"List/Prefix", "Limiter/Prefix", "Store/CrossSlot", "Store/Foreign"}, mutation{keys: strings.ToLower}},
	{"hash tags have no case", "Store/Keys", []string{"Limiter/Prefix", "Store/CrossSlot", "Store/Foreign"}, mutation{keys: lowerTag}},
	{"keys end before spaces", "Store/Keys", []string{"List/Prefix"}, mutation{keys: trimRight(" ")}},
	{"NULs at the end of keys are lost", "Store/Keys", []string{"List/Prefix"}, mutation{keys: trimRight("\x00")}},
	{"keys lose what is not UTF-8", "Store/Keys", []string{"List/Prefix"}, mutation{keys: func(key string) string { return strings.ToValidUTF8(key, "\ufffd") }}},
	{"keys of 68 bytes are cut", "Store/Keys", []string{"List/Prefix"}, mutation{keys: func(key string) string { return key[:len(key)-map[bool]int{true: 1}[len(key) == 68]] }}},
	{"keys are cut at 16 KiB", "Store/Keys", nil, cutAt(16 << 10)},
	{"keys are cut at 64 KiB", "Store/Keys", nil, cutAt(64<<10 - 1)},

	{"values come in the order of slots", "Store/MGet", []string{"SlidingBuckets/Peek"}, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		if len(keys) > 250 {
			keys = slices.Clone(keys)
			slices.SortStableFunc(keys, func(a, b string) int { return store.Slot(a) - store.Slot(b) })
		}
		return f.Store.MGet(ctx, keys, values)
	}}},
	{"sets pass for strings", "Store/MGet", []string{"Store/Delete", "Store/Expiry", "/Foreign"}, values(func(f *fake, keys []string, got []store.Value) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, key := range keys {
			if f.sets[key] && got[i].Kind() == store.Nil && f.has(key) {
				got[i] = store.BulkValue("x")
			}
		}
	})},

	{"equal scores are not ordered by text", "Store/Set", nil, sees(named("setstep"), func(_ call, tx store.Tx) view {
		return view{at: func(i int, fromEnd int64, m *store.Member, ok *bool, _ *error) {
			if next, more, _ := tx.At(i, fromEnd+1); *ok && more && next.Score == m.Score {
				*m = next
			}
		}}
	})},
	{"a member that is added again keeps its score", "Store/Set", nil, sees(named("setstep"), func(_ call, tx store.Tx) view {
		return view{add: func(i int, m *store.Member, _ *time.Duration) {
			if score, ok, _ := tx.Score(i, m.Text); ok {
				m.Score = score
			}
		}}
	})},
	{"a removal removes the lowest member", "Store/Set", nil, sees(named("setstep"), func(_ call, tx store.Tx) view {
		return view{remove: func(i int, text string) {
			if _, ok, _ := tx.Score(i, text); ok {
				tx.Trim(i, 1)
			}
		}}
	})},
	{"a text is not found everywhere", "Store/Set", []string{"Store/Large"}, scores(named("setstep"), func(_ string, score *int64, ok *bool, _ *error) { *ok = *ok && *score >= 10 })},
	{"long texts are cut", "Store/Set", nil, adds(named("setstep"), func(m *store.Member, _ *time.Duration) { m.Text = m.Text[:min(len(m.Text), store.MaxText-1)] })},
	{"texts lose what is not UTF-8", "Store/Set", nil, sends(named("setstep"), func(c *call) {
		for _, i := range []int{0, 2, 6} {
			c.args[i] = store.StringArg(strings.ToValidUTF8(c.args[i].String(), "\ufffd"))
		}
	})},
	{"a trim leaves one more", "Store/Set", []string{"Store/Large", "Store/Expiry"}, trims(named("setstep"), func(_ store.Tx, n int64) int64 { return n - 1 })},
	{"a count includes its bound", "Store/Set", []string{"Store/Large", "SlidingLog/", "Concurrency/", "/Mix", "Limiter/", "Pause/"}, sees(every, func(_ call, tx store.Tx) view {
		return view{count: func(i int, after int64) (above, all int64, err error) { return tx.Count(i, after-1) }}
	})},
	{"texts have no case", "Store/Set", nil, texts(strings.ToLower)},
	{"texts have no accents", "Store/Set", nil, texts(accents)},
	{"a sharp s in a text is two letters", "Store/Set", nil, texts(fold("\u00df", "ss"))},
	{"NULs at the end of texts are lost", "Store/Set", nil, texts(trimRight("\x00"))},
	{"a member with an empty text is dropped", "Store/Set", nil, adds(named("fill"), func(m *store.Member, ttl *time.Duration) {
		if m.Text == "" {
			*ttl = lost
		}
	})},
	{"sets have at most 64 KiB", "Store/Large", nil, full(1<<30, 64<<10)},
	{"sets have at most 5,000 members", "Store/Large", nil, full(5000, 1<<30)},

	{"a key that keeps its TTL gets an hour", "Store/Expiry", nil, keeps(named("keep"), func(tx store.Tx, i int, n store.Nums) {
		if _, ok, _ := tx.Get(i); ok {
			tx.Put(i, n, time.Hour)
		}
	})},
	{"a Keep after a Put keeps the older TTL", "Store/Expiry", nil, mutation{tx: func(c call, tx store.Tx) store.Tx {
		if c.s != scripts.Keep {
			return tx
		}
		return lasting{tx}
	}}},
	{"a set keeps its first TTL", "Store/Expiry", nil, sees(named("setstep"), func(_ call, tx store.Tx) view {
		return view{add: func(i int, _ *store.Member, ttl *time.Duration) {
			if _, all, _ := tx.Count(i, 0); all > 0 {
				*ttl = scripts.LongTTL
			}
		}}
	})},
	{"a set of which members are removed never expires", "Store/Expiry", nil, sees(named("setstep"), func(_ call, tx store.Tx) view {
		return view{remove: func(i int, text string) {
			tx.Remove(i, text)
			if m, ok, _ := tx.At(i, 0); ok && m.Text != text {
				tx.Add(i, m, scripts.LongTTL)
			}
		}}
	})},
	{"members of an expired set come back", "Store/Expiry", []string{"Store/Delete"}, sees(named("setstep"), func(_ call, tx store.Tx) view {
		return view{add: func(i int, m *store.Member, ttl *time.Duration) {
			if m.Text == "new" {
				tx.Add(i, store.Member{Score: 1, Text: "x"}, *ttl)
			}
		}}
	})},
	{"keys expire early", "Store/Expiry", []string{"Store/Durable"}, puts(named("put"), func(_ int, _ *store.Nums, ttl *time.Duration) { *ttl /= 10 })},
	{"keys never expire", "Store/Expiry", []string{"Store/Durable"}, puts(named("put"), func(_ int, _ *store.Nums, ttl *time.Duration) { *ttl += time.Hour })},
	{"a key is found in the microsecond in which it expires", "Store/Expiry", nil, puts(named("put"), func(_ int, _ *store.Nums, ttl *time.Duration) { *ttl += time.Microsecond })},
	{"a TTL is not renewed", "Store/Expiry", []string{"Store/Keys"}, sees(named("put"), func(_ call, tx store.Tx) view {
		return view{put: func(i int, _ *store.Nums, ttl *time.Duration) {
			if _, held, _ := tx.Get(i); held {
				*ttl = 250 * time.Millisecond
			}
		}}
	})},
	{"a script finds an expired key", "Store/Expiry", nil, sees(named("look"), func(c call, _ store.Tx) view {
		return view{get: func(i int, _ *store.Nums, ok *bool, _ *error) { *ok = *ok || c.args[0].Int() == 7 && i == 2 }}
	})},
	{"TTLs are at most a week", "Limiter/Prefix", []string{"Calendar/"}, puts(every, func(_ int, _ *store.Nums, ttl *time.Duration) { *ttl = min(*ttl, 7*24*time.Hour) })},
	{"deleting does nothing", "Store/Delete", []string{"Store/Unreadable", "Store/Set", "Store/Foreign", "Store/Expiry", "/Refund", "List/Prefix", "Limiter/Histories"}, dels(named("clean"), none)},

	{"the state is lost on close", "Store/Durable", nil, mutation{reopen: func(f *fake) *fake { return newFake(f.mutation) }}},
	{"TTLs begin again on close", "Store/Durable", nil, reopened(func(tx store.Tx) {
		if n, ok, err := tx.Get(0); ok && err == nil {
			tx.Put(0, n, time.Hour)
		}
	})},
	{"sets are lost on close", "Store/Durable", nil, reopened(func(tx store.Tx) {
		if _, _, err := tx.Get(0); err != nil {
			tx.Del(0)
		}
	})},

	{"a denied request writes", "Limiter/Writes", nil, writesAt(func(s *store.Script, err error) bool { return !s.ReadOnly() && err == nil })},
	{"a peek writes", "Limiter/Writes", nil, writesAt(func(s *store.Script, err error) bool { return s.ReadOnly() && err == nil })},
	{"a foreign value is noted in the database", "Limiter/Writes", nil, writesAt(func(_ *store.Script, err error) bool { return errors.Is(err, store.ErrForeign) })},
	{"a batch writes, even if its calls do not", "Limiter/Writes", nil, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		f.rightBatch(ctx, calls)
		f.writes.Add(1)
	}}},
	{"writes are not counted", "Limiter/Writes", nil, mutation{after: func(c call, _ store.Tx, _ []store.Value) { c.f.writes.Store(0) }}},
}

var listMutants = []mutant{
	{"an underscore in the prefix stands for any character", "List/Prefix", nil, mutation{list: matching('_')}},
	{"a question mark in the prefix stands for any character", "List/Prefix", nil, mutation{list: matching('?')}},
	{"sorted sets are not listed", "List/Prefix", nil, lists(func(f *fake, _, key string) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return !f.sets[key]
	})},
	{"the key that is the prefix is not listed", "List/Prefix", nil, lists(func(_ *fake, prefix, key string) bool { return key != prefix })},
	{"the earlier keys are lost", "List/Prefix", []string{"List/"}, mutation{list: func(f *fake, ctx context.Context, prefix, cursor string, _ []string) ([]string, string, error) {
		return f.Store.List(ctx, prefix, cursor, nil)
	}}},
	{"a cursor is a number of keys", "List/Meanwhile", []string{"List/Misuse"}, mutation{list: func(f *fake, ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
		if err := ctx.Err(); err != nil {
			return keys, "", err
		}
		var all []string
		for key := range f.All() {
			if strings.HasPrefix(key, prefix) {
				all = append(all, key)
			}
		}
		slices.Sort(all)
		n, _ := strconv.Atoi(cursor)
		n = min(n, len(all))
		end := min(n+1000, len(all))
		if keys = append(keys, all[n:end]...); end == len(all) {
			return keys, "", nil
		}
		return keys, strconv.Itoa(end), nil
	}}},
	{"a listing ends with its first call", "List/Meanwhile", []string{"List/"}, mutation{list: func(f *fake, ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
		list, _, err := f.Store.List(ctx, prefix, cursor, keys)
		return list, "", err
	}}},
	{"an unknown cursor begins again", "List/Misuse", nil, mutation{list: func(f *fake, ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
		list, next, err := f.Store.List(ctx, prefix, cursor, keys)
		if err != nil && ctx.Err() == nil {
			return f.Store.List(ctx, prefix, "", keys)
		}
		return list, next, err
	}}},
	{"the error of a context that is done is ErrUnavailable", "List/Misuse", nil, mutation{list: func(f *fake, ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
		if ctx.Err() != nil {
			return keys, "", store.ErrUnavailable
		}
		return f.Store.List(ctx, prefix, cursor, keys)
	}}},
}

// keeps replaces Keep.
func keeps(of which, keep func(tx store.Tx, i int, n store.Nums)) mutation {
	return mutation{tx: func(c call, tx store.Tx) store.Tx {
		if !of(c.s) {
			return tx
		}
		return keeper{tx, keep}
	}}
}

type keeper struct {
	store.Tx
	keep func(tx store.Tx, i int, n store.Nums)
}

func (k keeper) Keep(i int, n store.Nums) { k.keep(k.Tx, i, n) }

func scores(of which, change func(text string, score *int64, ok *bool, err *error)) mutation {
	return sees(of, func(call, store.Tx) view {
		return view{score: func(_ int, text string, score *int64, ok *bool, err *error) { change(text, score, ok, err) }}
	})
}

// foreign changes what happens if scripts.Read finds a foreign value.
func foreign(change func(c call, err error) error) mutation {
	return errs(named("read"), func(c call, err error) error {
		if errors.Is(err, store.ErrForeign) {
			return change(c, err)
		}
		return err
	})
}

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

func cutAt(size int) mutation {
	return mutation{keys: func(key string) string { return key[:min(len(key), size)] }}
}

// texts changes the texts of members that scripts.Fill adds.
func texts(change func(string) string) mutation {
	return adds(named("fill"), func(m *store.Member, _ *time.Duration) { m.Text = change(m.Text) })
}

// full drops members when a set has as many as members, or as many bytes as size.
func full(members, size int) mutation {
	return sees(named("fill"), func(c call, _ store.Tx) view {
		return view{add: func(_ int, m *store.Member, ttl *time.Duration) {
			held, _ := c.f.memo.([2]int)
			if held[0] >= members || held[1]+len(m.Text) > size {
				*ttl = lost
				return
			}
			c.f.memo = [2]int{held[0] + 1, held[1] + len(m.Text)}
		}}
	})
}

// writesAt counts a write of each call of a limiter for which at returns true.
func writesAt(at func(s *store.Script, err error) bool) mutation {
	return mutation{eval: func(c call) ([]store.Value, error) {
		got, err := c.right()
		if ofLimiters(c.s) && at(c.s, err) {
			c.f.writes.Add(1)
		}
		return got, err
	}}
}

// reopened changes each key when the store is opened again.
func reopened(change func(tx store.Tx)) mutation {
	return mutation{reopen: func(f *fake) *fake {
		script := store.NewScript("reopened", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
			change(tx)
			return reply, nil
		})
		for key := range f.All() {
			_, _ = f.Store.Eval(context.Background(), script, []string{key}, nil, nil)
		}
		return f
	}}
}

type listFunc = func(f *fake, ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error)

// lists returns a mutation whose List is a correct one, of which it keeps the keys for
// which keep returns true.
func lists(keep func(f *fake, prefix, key string) bool) mutation {
	return mutation{list: func(f *fake, ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
		list, next, err := f.Store.List(ctx, prefix, cursor, slices.Clone(keys))
		return slices.DeleteFunc(list, func(key string) bool { return !slices.Contains(keys, key) && !keep(f, prefix, key) }), next, err
	}}
}

// matching returns a List of the keys whose beginning matches prefix, in which one
// character stands for any.
func matching(wild byte) listFunc {
	return func(f *fake, ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
		head, _, _ := strings.Cut(prefix, string(wild))
		list, next, err := f.Store.List(ctx, head, cursor, nil)
		for _, key := range list {
			matches := len(key) >= len(prefix)
			for i := 0; matches && i < len(prefix); i++ {
				matches = prefix[i] == wild || prefix[i] == key[i]
			}
			if matches {
				keys = append(keys, key)
			}
		}
		return keys, next, err
	}
}
