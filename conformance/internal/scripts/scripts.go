// Package scripts holds the scripts that the checks of stores run, in both forms.
package scripts

import (
	"cmp"
	"errors"
	"time"

	"github.com/weir-go/weir/store"
)

// Clean deletes its keys. ARGV[1] is their number.
var Clean = store.NewScript("clean", `
return {redis.call('UNLINK', unpack(KEYS))}
`, func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	for i := range int(args[0].Int()) {
		tx.Del(i)
	}
	return append(reply, store.IntegerValue(0)), nil
})

// LongTTL is the TTL of keys that must outlive a check.
const LongTTL = 10 * time.Minute

var (
	CounterTag = store.Tag{'c', '1'}
	PutTag     = store.Tag{'p', '1'}
)

// Nums returns the Nums of tag and list.
func Nums(tag store.Tag, list ...int64) store.Nums {
	n := store.Nums{Tag: tag, Len: uint8(len(list))}
	copy(n.N[:], list)
	return n
}

// newCounter returns a script that adds 1 to each of its keys. It replies with their old
// numbers and the time. If ARGV[i] is given, it deletes key i if that would reach it.
func newCounter(keys int) *store.Script {
	return store.NewScript("counter", `
local n = {}
for i = 1, #KEYS do n[i] = tonumber(string.match(redis.call('GET', KEYS[i]) or '', '^c1 (%d+)$') or 0) end
for i = 1, #KEYS do
  if n[i] + 1 == tonumber(ARGV[i] or 0) then redis.call('UNLINK', KEYS[i])
  else redis.call('SET', KEYS[i], string.format('c1 %d', n[i] + 1), 'PX', 600000) end
end
local time = redis.call('TIME')
n[#KEYS + 1] = time[1] * 1000000 + time[2]
return n
`, func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		for i := range keys {
			n, _, err := tx.Get(i)
			if err != nil {
				return nil, err
			}
			reply = append(reply, store.IntegerValue(n.N[0]))
			if i < len(args) && n.N[0]+1 == args[i].Int() {
				tx.Del(i)
				continue
			}
			tx.Put(i, Nums(CounterTag, n.N[0]+1), LongTTL)
		}
		if n := reply[len(reply)-keys:]; n[1] != n[0] && n[1] != n[keys-1] {
			return nil, errors.New("the form read different numbers from keys that always change together")
		}
		return append(reply, store.IntegerValue(tx.Now())), nil
	})
}

// The two keys of counter always hold the same number, and so do two of counterThree: the
// first two or the last two. The third can hold another.
var Counter, CounterThree = newCounter(2), newCounter(3)

// Look is a read-only script of ARGV[1] keys. It replies with the first number of each, or
// -1 if the key is missing, and the time.
var Look = store.NewReadOnlyScript("look", `
local n = {}
for i = 1, #KEYS do n[i] = tonumber(string.match(redis.call('GET', KEYS[i]) or '', '^%a1 (%d+)') or -1) end
local time = redis.call('TIME')
n[#KEYS + 1] = time[1] * 1000000 + time[2]
return n
`, func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	for i := range int(args[0].Int()) {
		n, ok, err := tx.Get(i)
		if err != nil {
			return nil, err
		}
		if !ok {
			n.N[0] = -1
		}
		reply = append(reply, store.IntegerValue(n.N[0]))
	}
	return append(reply, store.IntegerValue(tx.Now())), nil
})

// held returns the value of key i as a form reads it: its text, or nil.
func held(tx store.Tx, i int) (store.Value, error) {
	n, ok, err := tx.Get(i)
	if !ok || err != nil {
		return store.Value{}, err
	}
	return store.BulkValue(n.String()), nil
}

// Steps writes and deletes its key, and replies with what it reads after each change.
var Steps = store.NewScript("steps", `
redis.call('SET', KEYS[1], 'c1 1', 'PX', 600000)
local one = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], 'd1 2', 'PX', 600000)
local two = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], 'c1 3', 'XX', 'KEEPTTL')
local three = redis.call('GET', KEYS[1])
redis.call('UNLINK', KEYS[1])
local none = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], 'c1 4', 'XX', 'KEEPTTL')
local still = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], 'c1 5', 'PX', 600000)
return {one, two, three, none, still}
`, func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	for _, change := range []func(){
		func() { tx.Put(0, Nums(CounterTag, 1), LongTTL) },
		func() { tx.Put(0, Nums(store.Tag{'d', '1'}, 2), LongTTL) },
		func() { tx.Keep(0, Nums(CounterTag, 3)) },
		func() { tx.Del(0) },
		func() { tx.Keep(0, Nums(CounterTag, 4)) },
	} {
		change()
		v, err := held(tx, 0)
		if err != nil {
			return nil, err
		}
		reply = append(reply, v)
	}
	tx.Put(0, Nums(CounterTag, 5), LongTTL)
	return reply, nil
})

// Wide sets its key to "c1" and its arguments, and replies with the old value.
var Wide = store.NewScript("wide", `
local before = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], table.concat({'c1', unpack(ARGV)}, ' '), 'PX', 600000)
return {before}
`, func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	v, err := held(tx, 0)
	if err != nil {
		return nil, err
	}
	var list []int64
	for _, a := range args {
		list = append(list, a.Int())
	}
	tx.Put(0, Nums(CounterTag, list...), LongTTL)
	return append(reply, v), nil
})

// Echo replies with its arguments as strings.
var Echo = store.NewScript("echo", `
return ARGV
`, func(_ store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	for _, a := range args {
		reply = append(reply, store.BulkValue(a.String()))
	}
	return reply, nil
})

// Kinds replies with values of every kind.
var Kinds = store.NewScript("kinds", `
return {0, -1, 9007199254740991, -9007199254740991, '', 'a\0\r\n\255', false, 7}
`, func(_ store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	return append(reply, KindsReply...), nil
})

var KindsReply = []store.Value{
	store.IntegerValue(0), store.IntegerValue(-1), store.IntegerValue(1<<53 - 1), store.IntegerValue(-(1<<53 - 1)),
	store.BulkValue(""), store.BulkValue("a\x00\r\n\xff"), {}, store.IntegerValue(7),
}

// Put sets key n to "p1 ARGV[n+1]". ARGV[1] is the TTL in milliseconds. It replies with the
// time.
var Put = store.NewScript("put", `
local time = redis.call('TIME')
for i = 1, #KEYS do redis.call('SET', KEYS[i], 'p1 ' .. ARGV[i + 1], 'PX', ARGV[1]) end
return {time[1] * 1000000 + time[2]}
`, func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	for i, a := range args[1:] {
		tx.Put(i, Nums(PutTag, a.Int()), time.Duration(args[0].Int())*time.Millisecond)
	}
	return append(reply, store.IntegerValue(tx.Now())), nil
})

// Spread puts ARGV[1] keys. The first has a TTL of ARGV[2] milliseconds, and each further
// key one millisecond more. It has only a Go form, and replies with the time, or nil.
var Spread = store.NewScript("put", "return {false}\n", func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	for i := range args[0].Int() {
		tx.Put(int(i), Nums(PutTag, 0), time.Duration(args[1].Int()+i)*time.Millisecond)
	}
	return append(reply, store.IntegerValue(tx.Now())), nil
})

// Moments takes a millisecond, and replies with the time before and after.
var Moments = store.NewScript("moments", `
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
return {now, now}
`, func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	reply = append(reply, store.IntegerValue(tx.Now()))
	time.Sleep(time.Millisecond)
	return append(reply, store.IntegerValue(tx.Now())), nil
})

// LongMillis is LongTTL as an argument.
var LongMillis = store.IntArg(LongTTL.Milliseconds())

// Keep sets its key to "p1 ARGV[1]" if it is not missing. The key keeps its TTL. If there
// is an ARGV[2], it first sets the key to another value, with this TTL in milliseconds.
var Keep = store.NewScript("keep", `
if ARGV[2] then redis.call('SET', KEYS[1], 'p1 0', 'PX', ARGV[2]) end
redis.call('SET', KEYS[1], 'p1 ' .. ARGV[1], 'XX', 'KEEPTTL')
return {1}
`, func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if len(args) > 1 {
		tx.Put(0, Nums(PutTag, 0), time.Duration(args[1].Int())*time.Millisecond)
	}
	tx.Keep(0, Nums(PutTag, args[0].Int()))
	return append(reply, store.IntegerValue(1)), nil
})

// PutText sets its key to ARGV[1], which can be any text on a server. A store that runs
// Go forms can hold only Nums and sets: if the text is not that of Nums, it gets a set.
var PutText = store.NewScript("text", `
redis.call('SET', KEYS[1], ARGV[1], 'PX', 600000)
return {1}
`, func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if n, ok := store.ParseNums(args[0].String()); ok {
		tx.Put(0, n, LongTTL)
	} else {
		tx.Add(0, store.Member{Score: 1, Text: "x"}, LongTTL)
	}
	return append(reply, store.IntegerValue(1)), nil
})

// Broken fails. The Lua form fails before it writes. The Go form fails after it has
// written, and the write must not take effect.
var Broken = store.NewScript("broken", `
return redis.error_reply('ERR broken on purpose')
`, func(tx store.Tx, _ []store.Arg, _ []store.Value) ([]store.Value, error) {
	tx.Put(0, Nums(CounterTag), time.Minute)
	return nil, errors.New("broken on purpose")
})

// Panics fails like Broken, but its Go form panics.
var Panics = store.NewScript("panics", Broken.Lua(), func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	_, err := Broken.GoForm()(tx, args, reply)
	panic(err)
})

// LuaOnly has no Go form.
var LuaOnly = store.NewScript("lua-only", "return {1}\n", nil)

var Member = store.Member{Score: 1, Text: "x"}

// Methods are the methods of store.Tx with which Read reads. The first reads Nums, and the
// others read a sorted set.
var Methods = []string{"Get", "At", "Count", "Score"}

// Read reads its second key with method ARGV[1], and then writes its first key. It finds a
// foreign value if the second key holds another type, or Nums of another tag than PutTag.
var Read = store.NewScript("read", `
local calls = {{'GET'}, {'ZRANGE', -1, -1}, {'ZCOUNT', 0, 1}, {'ZSCORE', 'y'}}
local call = calls[ARGV[1] + 1]
table.insert(call, 2, KEYS[2])
local v = redis.pcall(unpack(call))
if type(v) == 'table' and v.err then return redis.error_reply('WEIRFOREIGN 2') end
if ARGV[1] == '0' and v and string.sub(v, 1, 3) ~= 'p1 ' then return redis.error_reply('WEIRFOREIGN 2') end
redis.call('SET', KEYS[1], 'c1 1', 'PX', 600000)
return {1}
`, func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	tx.Put(0, Nums(CounterTag, 1), LongTTL) // must not take effect if the read fails
	var n store.Nums
	ok, err := false, error(nil)
	switch Methods[args[0].Int()] {
	case "Get":
		n, ok, err = tx.Get(1)
	case "At":
		_, _, err = tx.At(1, 0)
	case "Count":
		_, _, err = tx.Count(1, 0)
	case "Score":
		_, _, err = tx.Score(1, "x")
	}
	if ok && n.Tag != PutTag {
		err = store.ForeignAt(1)
	}
	return append(reply, store.IntegerValue(1)), err
})

// SetStep removes the member with text ARGV[1], adds a member of score ARGV[2] and text
// ARGV[3] with a TTL of ARGV[8] ms, and removes the ARGV[4] lowest members. An empty text
// and 0 mean none. It first reads the number of members with a score above ARGV[5], the
// number of all members, the score of the member with text ARGV[7], or -1, and the member
// ARGV[6] places before the last, if there is one.
var SetStep = store.NewScript("setstep", `
local above, all = redis.call('ZCOUNT', KEYS[1], '(' .. ARGV[5], '+inf'), redis.call('ZCARD', KEYS[1])
local score = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[7]) or -1)
local rank = string.format('%d', -1 - ARGV[6])
local member = redis.call('ZRANGE', KEYS[1], rank, rank, 'WITHSCORES')
if ARGV[1] ~= '' then redis.call('ZREM', KEYS[1], ARGV[1]) end
if ARGV[3] ~= '' then
  redis.call('ZADD', KEYS[1], ARGV[2], ARGV[3])
  redis.call('PEXPIRE', KEYS[1], ARGV[8])
end
if ARGV[4] ~= '0' then redis.call('ZREMRANGEBYRANK', KEYS[1], '0', string.format('%d', ARGV[4] - 1)) end
if not member[1] then return {above, all, score} end
return {above, all, score, member[1], tonumber(member[2])}
`, func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	above, all, err := tx.Count(0, args[4].Int())
	m, ok, err1 := tx.At(0, args[5].Int())
	score, held, err2 := tx.Score(0, args[6].String())
	if err := cmp.Or(err, err1, err2); err != nil {
		return nil, err
	}
	if !held {
		score = -1
	}
	if text := args[0].String(); text != "" {
		tx.Remove(0, text)
	}
	if text := args[2].String(); text != "" {
		tx.Add(0, store.Member{Score: args[1].Int(), Text: text}, time.Duration(args[7].Int())*time.Millisecond)
	}
	if n := args[3].Int(); n > 0 {
		tx.Trim(0, n)
	}
	reply = append(reply, store.IntegerValue(above), store.IntegerValue(all), store.IntegerValue(score))
	if ok {
		reply = append(reply, store.BulkValue(m.Text), store.IntegerValue(m.Score))
	}
	return reply, nil
})

// A SetChange describes a call of SetStep: its changes, and what it reads before them.
type SetChange struct {
	Remove string        // first: the member with this text
	Add    store.Member  // then, unless its text is empty
	TTL    time.Duration // of Add; 0 means LongTTL
	Trim   int64         // and then: the lowest members

	After, At int64
	Find      string
}

// Args returns the arguments of the call.
func (c SetChange) Args() []store.Arg {
	if c.TTL == 0 {
		c.TTL = LongTTL
	}
	return []store.Arg{
		store.StringArg(c.Remove), store.IntArg(c.Add.Score), store.StringArg(c.Add.Text), store.IntArg(c.Trim),
		store.IntArg(c.After), store.IntArg(c.At), store.StringArg(c.Find), store.IntArg(c.TTL.Milliseconds()),
	}
}

// Fill adds members with the texts ARGV[2], ARGV[3] and so on to its sorted set. The
// first has the score ARGV[1], and each other one a score that is higher by 1.
var Fill = store.NewScript("fill", `
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], string.format('%d', ARGV[1] + i - 2), ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], 600000)
return {1}
`, func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	for i, text := range args[1:] {
		tx.Add(0, store.Member{Score: args[0].Int() + int64(i), Text: text.String()}, LongTTL)
	}
	return append(reply, store.IntegerValue(1)), nil
})

// Count replies with the number of members of its sorted set.
var Count = store.NewScript("count", `
return {redis.call('ZCARD', KEYS[1])}
`, func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	_, all, err := tx.Count(0, 0)
	return append(reply, store.IntegerValue(all)), err
})

// PushText makes its key a list with only ARGV[1]. In a Go form a list is a sorted set.
var PushText = store.NewScript("push", `
redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], 600000)
return {1}
`, func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	tx.Add(0, store.Member{Score: 1, Text: args[0].String()}, LongTTL)
	return append(reply, store.IntegerValue(1)), nil
})
