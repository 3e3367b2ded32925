package compose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// fixedWindow is the example in the documentation of package contract.
var fixedWindow = &contract.MeterKind{
	Head: contract.Head{
		Name: "fixedwindow",
		Tag:  store.Tag{'f', '1'},
		Cell: "edge count", // when the window ends; tokens consumed in it
		Args: "limit window",
		Lua: `
-- advance
if now >= $edge then $edge, $count = now + $window, 0 end
-- room
$room = $limit - $count
-- take
$count = $count + n
-- ends
$ends = $edge
`,
	},
	Meter: func(args []store.Arg) contract.Meter {
		return meter{limit: args[0].Int(), window: args[1].Int()}
	},
}

type meter struct{ limit, window int64 }

func (m meter) Advance(now int64, c contract.Cell) contract.Cell {
	if now >= c.A {
		c.A, c.B = now+m.window, 0
	}
	return c
}
func (m meter) Room(now, at int64, c contract.Cell) int64             { return m.limit - c.B }
func (m meter) Take(c contract.Cell, n int64) contract.Cell           { c.B += n; return c }
func (m meter) Ends(c contract.Cell) int64                            { return c.A }
func (m meter) Ready(now int64, c contract.Cell, n, wait int64) int64 { return c.A }

// A refunder is a meter whose tokens can be refunded.
type refunder struct{ meter }

func (refunder) Refund(now int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
	if c.A == ch.Was.A {
		c.B = max(c.B-ch.N, 0)
	}
	return c, note
}

const refundLua = "-- refund\nif $edge == $was_edge then $count = math.max($count - n, 0) end\n"

// quota is a kind with a Step. Its tokens are not refilled. Its key expires an hour after
// the last request.
var quota = &contract.StepKind{
	Head: contract.Head{
		Name: "quota",
		Tag:  store.Tag{'q', '1'},
		Cell: "used",
		Args: "tokens",
		Lua: `
-- read
local v = redis.pcall('GET', $key1)
if v then
  if v.err then return $foreign1 end
  $used = string.match(v, '^q1 (%d+)$')
  if not $used then return $foreign1 end
  $used = $used + 0
end
$room = $tokens - $used
-- write
redis.call('SET', $key1, string.format('q1 %d', $used + n), 'PX', string.format('%d', 3600000 + slack))
`,
	},
	Step: func(args []store.Arg) contract.Step { return quotaStep{args[0].Int()} },
}

type quotaStep struct{ tokens int64 }

func (quotaStep) Read(tx store.Tx, key int, now int64, a contract.Ask) (contract.State, error) {
	n, ok, err := tx.Get(key)
	if err == nil && ok && (n.Tag != quota.Tag || n.Len != 1) {
		err = store.ForeignAt(key)
	}
	return contract.State{n.N[0]}, err
}

func (q quotaStep) Room(now int64, s contract.State, a contract.Ask) int64 { return q.tokens - s[0] }

func (quotaStep) Write(tx store.Tx, key int, now int64, s contract.State, n int64, a contract.Ask, gen int64, slack time.Duration) error {
	tx.Put(key, store.Nums{Tag: quota.Tag, Len: 1, N: [store.MaxNums]int64{s[0] + n}}, time.Hour+slack)
	return nil
}

func (q quotaStep) Answer(now int64, s contract.State, n int64, a contract.Ask) contract.Answer {
	ans := contract.Answer{Limit: q.tokens, Remaining: max(q.tokens-s[0]-n, 0), ResetAfter: time.Hour}
	if s[0] > q.tokens-a.Cost {
		ans.RetryAfter = contract.Never
	}
	return ans
}

func consts(numbers ...int64) (args []store.Arg) {
	for _, n := range numbers {
		args = append(args, store.ConstArg(n))
	}
	return args
}

func windowLimit(k contract.Kind) *contract.Limit {
	return &contract.Limit{Kind: k, Args: consts(5, 1_000_000), Capacity: 5, Window: time.Second}
}

func quotaLimit(k contract.Kind) *contract.Limit {
	return &contract.Limit{Kind: k, Args: consts(4), Capacity: 4}
}

// If a kind or a limit has a mistake, New returns an error. The error names the mistake,
// and says what would be right.
func TestBadKinds(t *testing.T) {
	t.Parallel()
	kind := func(f func(k *contract.MeterKind)) *contract.Limit {
		k := *fixedWindow
		f(&k)
		return windowLimit(&k)
	}
	step := func(f func(k *contract.StepKind)) *contract.Limit {
		k := *quota
		f(&k)
		return quotaLimit(&k)
	}
	limit := func(f func(l *contract.Limit)) *contract.Limit {
		l := windowLimit(fixedWindow)
		f(l)
		return l
	}
	lua := func(old, with string) *contract.Limit {
		if !strings.Contains(fixedWindow.Lua, old) {
			t.Fatalf("the Lua has no %q", old)
		}
		return kind(func(k *contract.MeterKind) { k.Lua = strings.Replace(k.Lua, old, with, 1) })
	}
	for _, tt := range []struct {
		name  string
		limit *contract.Limit
		says  string // "": it is right
	}{
		{"right", windowLimit(fixedWindow), ""},
		{"right, a step", quotaLimit(quota), ""},
		{"no limit", nil, "limit 1 is nil, or has no Kind: NewLimit must return a Limit with a Kind"},
		{"no kind", &contract.Limit{}, "has no Kind"},

		{"no name", kind(func(k *contract.MeterKind) { k.Name = "" }), `Name is "": it must be lower-case letters and digits`},
		{"a name with a space", kind(func(k *contract.MeterKind) { k.Name = "fixed window" }), `Name is "fixed window"`},
		{"no tag", kind(func(k *contract.MeterKind) { k.Tag = store.Tag{} }), `it must be a lower-case letter and a digit`},
		{"the tag of markers", kind(func(k *contract.MeterKind) { k.Tag = store.Tag{'i', '2'} }), "and not i2, i3 or i4"},
		{"no form", kind(func(k *contract.MeterKind) { k.Meter = nil }), "it is a *contract.MeterKind without a Meter or a Step: it must be a *contract.MeterKind with a Meter, or a *contract.StepKind with a Step"},
		{"a meter of nil", kind(func(k *contract.MeterKind) { k.Meter = func([]store.Arg) contract.Meter { return nil } }), "returned nil"},

		{"no cell", kind(func(k *contract.MeterKind) { k.Cell = "" }), `Cell is "": it must name from 1 to 4 integers`},
		{"five integers", kind(func(k *contract.MeterKind) { k.Cell = "edge count a b c" }), "from 1 to 4"},
		{"eight integers of a step", step(func(k *contract.StepKind) { k.Cell = "used a b c d e f g" }), "from 1 to 7"},
		{"four notes", kind(func(k *contract.MeterKind) { k.Note = "a b c d" }), "at most 3 names in Note"},
		{"too many constants", kind(func(k *contract.MeterKind) { k.Args = "limit window" + strings.Repeat(" x", contract.MaxArgs) }), "16 in Args"},
		{"too many keys", step(func(k *contract.StepKind) { k.Keys = contract.MaxKeys + 1 }), "from 0 to 128 Keys"},
		{"four integers and a note", kind(func(k *contract.MeterKind) { k.Cell, k.Note = "edge count a b", "moved" }), "if Note is not empty, Cell must name at most 3"},

		{"a name twice", kind(func(k *contract.MeterKind) { k.Args = "limit window edge" }), `the name "edge"`},
		{"a name with a digit", kind(func(k *contract.MeterKind) { k.Cell = "edge count1" }), `the name "count1"`},
		{"a name that is given", kind(func(k *contract.MeterKind) { k.Cell = "edge room" }), "none is a name that sections are given"},
		{"a name like the frame's", kind(func(k *contract.MeterKind) { k.Note = "t_edge" }), `the name "t_edge"`},

		{"no Lua", kind(func(k *contract.MeterKind) { k.Lua = "" }), `begins with the line "-- `},
		{"no advance", lua("-- advance\n", ""), `Lua has no section "advance": it begins with the line "-- advance"`},
		{"an empty section", lua("$ends = $edge\n", "-- nothing\n"), `no section "ends"`},
		{"more on the line", lua("-- room\n", "-- room left\n"), `no section "room"`},
		{"a section of a step", lua("-- room\n", "-- read\n"), `no section "room"`},
		{"an unknown name", lua("$limit -", "$limits -"), `section room uses $limits: it must be a name of Cell, Note, Locals or Args, or a name that sections are given`},
		{"no room", lua("$room = $limit - $count", "local room = $limit"), `section "room" does not set $room`},

		{"a local that the script uses", lua("-- ends\n", "-- ends\nlocal x,\n\tnow = 1, 2\n"), `section "ends" declares the local now, a name that the generated script uses after the section: rename it`},
		{"a function that a refund uses", lua("-- ends\n", refundLua+"-- ends\nlocal function m() end\n"), `section "ends" declares the local m`},
		{"a local of the script's own number", lua("-- room\n", "-- room\nlocal tail1\n"), `section "room" declares the local tail1`},
		{"a local of a step", step(func(k *contract.StepKind) { k.Lua = strings.Replace(k.Lua, "-- read\n", "-- read\nlocal rooms\n", 1) }), `section "read" declares the local rooms`},
		{"locals in blocks", lua("-- room\n", "-- room\nfor now = 1, 2 do local now = 3 end\nif now then local now elseif now then local now end -- a local now\nlocal text = 'local now'\n"), ""},
		{"a local in a section of its own", lua("-- advance\n", "-- advance\nlocal now = 1\n"), ""},

		{"refund in Lua alone", lua("-- ends\n", refundLua+"-- ends\n"), `both must be true, or both false`},
		{"refund in Go alone", kind(func(k *contract.MeterKind) { k.Meter = func([]store.Arg) contract.Meter { return refunder{} } }), `both must be true, or both false`},
		{"refund in both", kind(func(k *contract.MeterKind) {
			k.Lua += refundLua
			k.Meter = func([]store.Arg) contract.Meter { return refunder{meter{5, 1_000_000}} }
		}), ""},
		{"refund of a step in Lua alone", step(func(k *contract.StepKind) { k.Lua += "-- refund\n$gave = 1\n" }), "contract.StepRefunder"},
		{"a mark without refund", step(func(k *contract.StepKind) { k.Lua += "-- mark\n$mark, $ends = '0 0 0 0', now\n" }), `must have a section "refund"`},
		{"leases without refund", step(func(k *contract.StepKind) { k.Leases = true }), `must have a section "refund"`},
		{"entries without section", step(func(k *contract.StepKind) { k.Entries = true }), `Entries is true`},
		{"entries without Entries", step(func(k *contract.StepKind) { k.Lua += "-- entries\n$entries = {}\n" }), `Entries is false`},
		{"entries without Lister", step(func(k *contract.StepKind) { k.Entries = true; k.Lua += "-- entries\n$entries = {}\n" }), `contract.Lister`},
		{"a third key", step(func(k *contract.StepKind) {
			k.Keys, k.Lua = 2, strings.ReplaceAll(k.Lua, "$key1", "$key3")
		}), "uses $key3"},

		{"too few constants", limit(func(l *contract.Limit) { l.Args = l.Args[:1] }), "has 1 Args: it must have one for each of the 2 names"},
		{"a text for a number", limit(func(l *contract.Limit) { l.Args[1] = store.StringArg("1s") }), `the constant window is "1s": it must be an integer`},
		{"a constant too large", limit(func(l *contract.Limit) { l.Args[1] = store.ConstArg(1 << 53) }), `an integer below 2^53`},
		{"no capacity", limit(func(l *contract.Limit) { l.Capacity = 0 }), "Limit.Capacity is 0: it must be from 1 to 9007199254740991"},
		{"a largest cost below 0", limit(func(l *contract.Limit) { l.MaxCost = -1 }), "Limit.MaxCost is -1: it must be 0, which means no bound, or more"},
		{"a debt below 0", limit(func(l *contract.Limit) { l.MaxDebt = -1 }), "Limit.MaxDebt is -1: it must be from 0 to 9007199254740986"},
		{"a debt that is too large", limit(func(l *contract.Limit) { l.MaxDebt = contract.MaxTokens - 4 }), "Limit.MaxDebt is 9007199254740987: it must be from 0 to 9007199254740986"},
		{"a negative wait", limit(func(l *contract.Limit) { l.MaxWait = -1 }), "Limit.MaxWait is -1: it must be from 0 to 4503599627370496"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := compose.New([]compose.Rule{{Limit: tt.limit}})
			switch {
			case tt.says == "" && (err != nil || p == nil):
				t.Errorf("New = %v, %v, want a program", p, err)
			case tt.says != "" && (err == nil || p != nil || !strings.Contains(err.Error(), tt.says)):
				t.Errorf("New = %v, %v, want an error that says %q", p, err, tt.says)
			case err != nil && tt.limit != nil && !strings.Contains(tt.says, "has no Kind") && !strings.Contains(err.Error(), "kind "+tt.limit.Kind.Common().Name):
				t.Errorf("%v does not name the kind", err)
			}
		})
	}
}

// New rejects lists of rules that are empty, longer than 16, or need more locals than Lua
// has.
func TestHowManyRules(t *testing.T) {
	t.Parallel()
	wide := *quota
	wide.Locals = "aa bb cc dd ee ff gg hh ii"
	for _, tt := range []struct {
		limit *contract.Limit
		n     int
		says  string
	}{
		{windowLimit(fixedWindow), 0, "0 rules: there must be from 1 to 16"},
		{windowLimit(fixedWindow), 16, ""},
		{windowLimit(fixedWindow), 17, "17 rules"},
		{quotaLimit(&wide), 14, ""},
		{quotaLimit(&wide), 15, "use fewer rules"},
	} {
		rules := make([]compose.Rule, tt.n)
		for i := range rules {
			rules[i].Limit = tt.limit
		}
		_, err := compose.New(rules)
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%d rules of %s: %v, want %q", tt.n, tt.limit.Kind.Common().Name, err, tt.says)
		}
	}
}

// Each $name becomes a local or an argument of its rule, at any position of the rule. A $
// in a Lua pattern stays, and comments are left out.
func TestNames(t *testing.T) {
	t.Parallel()
	k := *quota
	k.Name, k.Keys, k.Locals, k.Args = "named", 2, "log at_", "tokens name:text"
	k.Lua = `What stands here, $nobody, is for readers.
-- read
-- $nobody is in a comment.
$log, $at_ = redis.call('GET', $key2), $name
if $log == '$' then return $foreign2 end
$used = $tokens
$room = $used
-- write
redis.call('SET', $key1, $text .. n, 'PX', slack)
`
	k.Entries, k.Step = true, func([]store.Arg) contract.Step { return lister{} }
	k.Lua += "-- entries\n$entries = {$log}\n"
	named := &contract.Limit{Kind: &k, Args: []store.Arg{store.ConstArg(9), store.StringArg("x")}, Capacity: 9}
	p, err := compose.New([]compose.Rule{{Limit: windowLimit(fixedWindow), Cost: 3}, {Limit: named}, {Limit: named, Cost: 2}})
	if err != nil {
		t.Fatal(err)
	}
	lua := p.Script(script.Consume).Lua()
	for _, want := range []string{
		"log2, at_2 = redis.call('GET', KEYS[3]), ARGV[5]\nif log2 == '$' then return redis.error_reply('WEIRFOREIGN 3') end\nused2 = (ARGV[4]+0)\nroom = used2\n",
		"log3, at_3 = redis.call('GET', KEYS[5]), ARGV[7]\nif log3 == '$' then return redis.error_reply('WEIRFOREIGN 5') end\nused3 = (ARGV[6]+0)\nroom = used3\n",
		"redis.call('SET', KEYS[2], ARGV[9] .. n, 'PX', slack)",
		"local n = own3\nredis.call('SET', KEYS[4], ARGV[9] .. n, 'PX', slack)",
		"if now >= edge1 then edge1, count1 = now + (ARGV[2]+0), 0 end",
		"local n = own1\ncount1 = count1 + n",
	} {
		if !strings.Contains(lua, want) {
			t.Errorf("no\n%s\nin\n%s", want, lua)
		}
	}
	if strings.Contains(lua, "nobody") {
		t.Errorf("a comment is in\n%s", lua)
	}
}

type lister struct{ quotaStep }

func (lister) Entries(tx store.Tx, key int, s contract.State) ([]string, error) { return nil, nil }
func (lister) Parse(texts []string) ([]contract.Entry, error)                   { return nil, nil }
