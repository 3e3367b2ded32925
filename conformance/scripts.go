package conformance

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/store"
)

// The scripts that the rules on stores run, in both forms.

var counterTag = store.Tag{'c', '1'}

// counter adds 1 to each of its two keys, which count alike, and replies with
// what they held before, and with the time.
var counter = store.NewScript("counter", `
local a, b = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])
local m = a and tonumber(string.match(a, '^c1 (%d+)$')) or 0
local n = b and tonumber(string.match(b, '^c1 (%d+)$')) or 0
redis.call('SET', KEYS[1], string.format('c1 %d', m + 1), 'PX', 600000)
redis.call('SET', KEYS[2], string.format('c1 %d', n + 1), 'PX', 600000)
local time = redis.call('TIME')
return {m, n, time[1] * 1000000 + time[2]}
`, func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	for i := range 2 {
		n, _, err := tx.Get(i, counterTag)
		if err != nil {
			return nil, err
		}
		reply = append(reply, store.IntegerValue(n.N[0]))
		n.Tag, n.Len = counterTag, 1
		n.N[0]++
		tx.Put(i, n, 10*time.Minute)
	}
	return append(reply, store.IntegerValue(tx.Now())), nil
})

// steps puts and deletes its key and replies with what it sees between.
var steps = store.NewScript("steps", `
redis.call('SET', KEYS[1], 'c1 1', 'PX', 600000)
local one = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], 'c1 2', 'PX', 600000)
local two = redis.call('GET', KEYS[1])
redis.call('UNLINK', KEYS[1])
local none = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], 'c1 3', 'PX', 600000)
return {one, two, none}
`, func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	see := func() {
		var v store.Value
		if n, ok, err := tx.Get(0, counterTag); ok && err == nil {
			v = store.BulkValue(n.String())
		}
		reply = append(reply, v)
	}
	put := func(n int64) {
		tx.Put(0, store.Nums{Tag: counterTag, Len: 1, N: [store.MaxNums]int64{n}}, 10*time.Minute)
	}
	put(1)
	see()
	put(2)
	see()
	tx.Del(0)
	see()
	put(3)
	return reply, nil
})

// wide sets its key to "c1" and its arguments, and replies with what it held.
var wide = store.NewScript("wide", `
local before = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], table.concat({'c1', unpack(ARGV)}, ' '), 'PX', 600000)
return {before}
`, func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	var v store.Value
	n, ok, err := tx.Get(0, counterTag)
	if err != nil {
		return nil, err
	}
	if ok {
		v = store.BulkValue(n.String())
	}
	n = store.Nums{Tag: counterTag, Len: uint8(len(args))}
	for i, a := range args {
		n.N[i] = a.Int()
	}
	tx.Put(0, n, 10*time.Minute)
	return append(reply, v), nil
})

// echo replies with its arguments as strings.
var echo = store.NewScript("echo", `
return ARGV
`, func(_ store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	for _, a := range args {
		reply = append(reply, store.BulkValue(a.String()))
	}
	return reply, nil
})

// kinds replies with values of every kind.
var kinds = store.NewScript("kinds", `
return {0, -1, 9007199254740991, -9007199254740991, '', 'a\0\r\n\255', false, 7}
`, func(_ store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	return append(reply, kindsReply...), nil
})

var kindsReply = []store.Value{
	store.IntegerValue(0), store.IntegerValue(-1), store.IntegerValue(1<<53 - 1), store.IntegerValue(-(1<<53 - 1)),
	store.BulkValue(""), store.BulkValue("a\x00\r\n\xff"), {}, store.IntegerValue(7),
}

// putScript returns a script that sets each key to "p1 ARGV[n]", where ARGV[1]
// is the TTL in milliseconds and the others are the keys' numbers; it replies
// with the time.
func putScript(keys int) *store.Script {
	var lua strings.Builder
	lua.WriteString("local time = redis.call('TIME')\n")
	for i := range keys {
		fmt.Fprintf(&lua, "redis.call('SET', KEYS[%d], 'p1 ' .. ARGV[%d], 'PX', ARGV[1])\n", i+1, i+2)
	}
	lua.WriteString("return {time[1] * 1000000 + time[2]}\n")
	return store.NewScript("put", lua.String(),
		func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
			for i, a := range args[1:] {
				n := store.Nums{Tag: store.Tag{'p', '1'}, Len: 1, N: [store.MaxNums]int64{a.Int()}}
				tx.Put(i, n, time.Duration(args[0].Int())*time.Millisecond)
			}
			return append(reply, store.IntegerValue(tx.Now())), nil
		})
}

var (
	putOne = putScript(1)
	putTwo = putScript(2)
)

// keepOne sets its key to "p1 ARGV[1]", and leaves it the time that it has.
var keepOne = store.NewScript("keep", `
redis.call('SET', KEYS[1], 'p1 ' .. ARGV[1], 'KEEPTTL')
return {1}
`, func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	tx.Put(0, store.Nums{Tag: store.Tag{'p', '1'}, Len: 1, N: [store.MaxNums]int64{args[0].Int()}}, 0)
	return append(reply, store.IntegerValue(1)), nil
})

// put sets key to "p1 n" for a while.
func (t *T) put(key string, n int64) {
	t.eval(putOne, []string{key}, store.IntArg(600_000), store.IntArg(n))
}

// del deletes its key.
var del = store.NewScript("del", `
redis.call('UNLINK', KEYS[1])
return {1}
`, func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	tx.Del(0)
	return append(reply, store.IntegerValue(1)), nil
})

// broken fails, before it writes.
var broken = store.NewScript("broken", `
return redis.error_reply('ERR broken on purpose')
`, func(tx store.Tx, _ []store.Arg, _ []store.Value) ([]store.Value, error) {
	tx.Put(0, store.Nums{Tag: counterTag, Len: 1}, time.Minute) // must not take effect
	return nil, fmt.Errorf("%w: on purpose", store.ErrScript)
})

// luaOnly has no Go form.
var luaOnly = store.NewScript("lua-only", "return {1}\n", nil)

// setScript makes its key a sorted set.
var setScript = store.NewScript("set", `
redis.call('ZADD', KEYS[1], 1, 'x')
redis.call('PEXPIRE', KEYS[1], 600000)
return {1}
`, func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	tx.Add(0, store.Member{Score: 1, Text: "x"})
	tx.Expire(0, 10*time.Minute)
	return append(reply, store.IntegerValue(1)), nil
})

// setStep removes ARGV[2] members from rank ARGV[1] on, adds a member of score
// ARGV[3] and text ARGV[4], unless that is empty, and removes the first ARGV[5].
// Before that it reads: how many members have a score above ARGV[6], and how many
// there are; the rank of the member with text ARGV[8], -1 for none; and the member
// of rank ARGV[7], if any.
var setStep = store.NewScript("setstep", `
local above, all = redis.call('ZCOUNT', KEYS[1], '(' .. ARGV[6], '+inf'), redis.call('ZCARD', KEYS[1])
local found = -1
for rank, text in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if text == ARGV[8] then found = rank - 1 end
end
local member = redis.call('ZRANGE', KEYS[1], ARGV[7], ARGV[7], 'WITHSCORES')
if ARGV[2] ~= '0' then redis.call('ZREMRANGEBYRANK', KEYS[1], ARGV[1], ARGV[1] + ARGV[2] - 1) end
if ARGV[4] ~= '' then redis.call('ZADD', KEYS[1], ARGV[3], ARGV[4]) end
if ARGV[5] ~= '0' then redis.call('ZREMRANGEBYRANK', KEYS[1], 0, ARGV[5] - 1) end
redis.call('PEXPIRE', KEYS[1], 600000)
if not member[1] then return {above, all, found} end
return {above, all, found, member[1], tonumber(member[2])}
`, func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	above, all, err := tx.Count(0, args[5].Int())
	if err != nil {
		return nil, err
	}
	m, ok, err := tx.At(0, args[6].Int())
	if err != nil {
		return nil, err
	}
	found, held, err := tx.Find(0, args[7].String())
	if err != nil {
		return nil, err
	}
	if !held {
		found = -1
	}
	tx.Remove(0, args[0].Int(), args[1].Int())
	if text := args[3].String(); text != "" {
		tx.Add(0, store.Member{Score: args[2].Int(), Text: text})
	}
	tx.Remove(0, 0, args[4].Int())
	tx.Expire(0, 10*time.Minute)
	reply = append(reply, store.IntegerValue(above), store.IntegerValue(all), store.IntegerValue(found))
	if ok {
		reply = append(reply, store.BulkValue(m.Text), store.IntegerValue(m.Score))
	}
	return reply, nil
})

// A setChange is what one setStep does to its key, and asks of it.
type setChange struct {
	rank, remove int64        // first: so many members from that rank on
	add          store.Member // then, unless it has no text
	trim         int64        // and then: so many of the first

	after, at int64
	find      string
}

// setStep runs one on key.
func (t *T) setStep(key string, c setChange) []store.Value {
	return t.eval(setStep, []string{key}, store.IntArg(c.rank), store.IntArg(c.remove),
		store.IntArg(c.add.Score), store.StringArg(c.add.Text), store.IntArg(c.trim),
		store.IntArg(c.after), store.IntArg(c.at), store.StringArg(c.find))
}

// count replies with the number of members of its sorted set.
var count = store.NewScript("count", `
return {redis.call('ZCARD', KEYS[1])}
`, func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	_, all, err := tx.Count(0, 0)
	return append(reply, store.IntegerValue(all)), err
})
