package algorithms

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/store"
)

func checkForeign(t *T) {
	t.foreign("value", func(key string) { t.Put(key, 1) })
	t.foreign("type", func(key string) { t.Change(key, scripts.SetChange{Add: scripts.Member}) })
}

// besides returns a rule with the algorithm a, between two other rules.
func besides(a algorithm.Algorithm) []weir.Rule {
	return []weir.Rule{
		{Name: "before", Algorithm: decisions.TenPerMinute}, decisions.One(a),
		{Name: "behind", Algorithm: algorithm.FixedWindow{Limit: 5, Window: time.Minute}},
	}
}

// foreign calls spoil for one missing key of a decision over 3 or 16 rules, and checks every
// verb.
func (t *T) foreign(name string, spoil func(key string)) {
	r := t.Rand()
	for h := range t.Times(16) {
		a := t.Draw(r)
		rules := besides(a)
		for h%4 == 0 && len(rules) < weir.MaxRules {
			rules = append(rules, weir.Rule{Name: "more" + strconv.Itoa(len(rules)), Algorithm: decisions.TenPerMinute})
		}
		r.Shuffle(len(rules), func(i, j int) { rules[i], rules[j] = rules[j], rules[i] })
		l := t.Limiter(decisions.NewClock(), rules...)
		name := name + strconv.Itoa(h)
		var all []string
		for _, rule := range rules {
			all = append(all, t.KeysOf(name, rule.Name, rule.Algorithm)...)
		}
		keys := t.KeysOf(name, "one", a)
		if len(keys) > 1 && h%2 == 1 { // one of its keys exists, and others do not
			t.Do(l, t.request(r, a, 1, name))
			held := t.MGet(keys...)
			if keys = slices.DeleteFunc(keys, func(string) bool { v := held[0]; held = held[1:]; return v.Kind() != store.Nil }); len(keys) == 0 {
				continue
			}
		}
		key := model.Pick(r, keys...)
		spoil(key)
		before := t.MGet(all...)
		t.refused(l, a, name, key)
		for i, v := range t.MGet(all...) {
			if v != before[i] {
				t.Errorf("%+v, with a foreign value at key %q: key %q held %q, and now %q", a, key, all[i], before[i].Str(), v.Str())
			}
		}
	}
}

// refused checks that every verb on name rejects the foreign value at key, a key of a.
func (t *T) refused(l *weir.Limiter, a algorithm.Algorithm, name, key string) {
	foreign := func(what string, err error) {
		if !errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), `"`+key+`"`) {
			t.Errorf("%+v: %s with a foreign value: got error %v, want an ErrForeign that names %q", a, what, err, key)
		}
	}
	ops := []weir.Op{weir.Consume, weir.Peek, weir.TakeUpTo, weir.Reset}
	req := weir.Request{Key: weir.KeyOf(name)}
	if t.Leases {
		ops, req.ID = []weir.Op{weir.Consume, weir.Peek, weir.Renew, weir.Release, weir.Reset}, "a"
	}
	for _, op := range ops {
		if req.Op = op; op == weir.Reset {
			req.ID = ""
		}
		_, err := l.Decide(t.Ctx, req, nil)
		foreign(op.String(), err)
	}
	if t.KindOf(a).Entries {
		_, err := l.Entries(t.Ctx, name)
		foreign("Entries", err)
	}
	if t.MGet(key)[0].Kind() != store.Nil { // a store of Go forms may hold a set, which MGet does not see
		foreign("DoMany", l.DoMany(t.Ctx, decisions.Peeks([][]string{{name}}))[0].Err)
	}
}

// checkLayout writes values to a key that no decision can have written. A store that runs Go
// forms cannot hold most of these texts: PutText then writes a sorted set.
func checkLayout(t *T) {
	r := t.Rand()
	for h := range t.Times(8) {
		a := t.Draw(r)
		texts := layouts(t.KindOf(a))
		n := len(texts) // the members follow
		texts = append(texts, t.subject.members...)
		order := r.Perm(len(texts))
		switch {
		case t.Brief:
			order = order[:len(order)/4]
		case h > 0 && t.subject.builtIn():
			order = order[:len(order)/2]
		}
		c := decisions.NewClock()
		l := t.Limiter(c, besides(a)...)
		for _, i := range order {
			name := "layout" + strconv.Itoa(h) + "." + strconv.Itoa(i)
			key := []string{t.KeyOf(name, "one", a)}
			switch {
			case i < n:
				t.Eval(scripts.PutText, key, store.StringArg(texts[i]))
			case t.subject.list:
				t.Eval(scripts.PushText, key, store.StringArg(texts[i]))
			default:
				t.Change(key[0], scripts.SetChange{Add: store.Member{Score: c.Micros + 1, Text: texts[i]}})
			}
			before := t.MGet(key...)[0]
			t.refused(l, a, name, key[0])
			if v := t.MGet(key...)[0]; v != before {
				t.Errorf("it became %q", v.Str())
			}
			if before.Kind() == store.Nil && !t.subject.list {
				if n := t.Eval(scripts.Count, key)[0].Int(); n != 1 {
					t.Errorf("a set of one member has %d now", n)
				}
			}
			t.StopFailed("%+v: the value %q", a, texts[i])
		}
		if t.subject.list {
			checkOldEntry(t, c, a, "old"+strconv.Itoa(h))
		}
	}
}

// checkOldEntry puts a foreign entry before the newest entry of a list. Decisions do not read
// it, and Entries does.
func checkOldEntry(t *T, c *decisions.Clock, a algorithm.Algorithm, name string) {
	key, l := t.KeyOf(name, "one", a), t.Limiter(c, decisions.One(a))
	for _, text := range []string{"a private entry", "m2 " + strconv.FormatInt(c.Micros+1, 10) + " 1 who"} {
		t.Eval(scripts.PushText, []string{key}, store.StringArg(text))
	}
	if list, err := l.Entries(t.Ctx, name); !errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrScript) || !strings.Contains(err.Error(), `"`+key+`"`) || strings.Contains(err.Error(), "private") {
		t.Errorf("%+v: Entries with a foreign entry before the newest: got %v, %v, want an ErrForeign that names %q, and not the entry", a, list, err, key)
	}
}

// layouts returns texts that resemble the values of k, and are not valid values.
func layouts(k decisions.Kind) []string {
	tag, nines := string(k.Tag[:]), strings.Repeat("9", 26)
	texts := []string{
		"", tag, tag + " ", tag + " x", tag + " -1", tag + " 1 -2", tag + " 1.5", tag + " 1.5 1", tag + " 1e3", tag + " 1e3 1", tag + " 0x10 1",
		tag + ":1:1", tag + "  1 1", tag + " 1 1\n", " " + tag + " 1", " " + tag + " 1 1", tag + "1 1", tag + " 1 2 3 4 5 6 7 8", "x",
		tag + " " + nines + " " + nines + " " + nines,
		tag + " 00 1", tag + " 1 00", tag + " 01 1", tag + " 1 01",
		string([]byte{k.Tag[0], k.Tag[1] + 1}) + " 1 1", string([]byte{k.Tag[0], k.Tag[1] - 1}) + " 1 2",
	}
	if k.Meter == nil {
		return texts
	}
	cell, optional, _ := strings.Cut(k.Cell, "[")
	short := len(strings.Fields(cell))
	long := short + len(strings.Fields(strings.TrimSuffix(optional, "]")))
	full := long + 1 + len(strings.Fields(k.Note))
	for n := range full + 2 {
		right := tag + strings.Repeat(" 1", n)
		if n != short && n != long && n != full {
			texts = append(texts, right)
			continue
		}
		for at := range n {
			for _, number := range []string{"9007199254740992", nines, "01", "00"} { // 2^53 and more, and leading zeros
				texts = append(texts, tag+strings.Repeat(" 1", at)+" "+number+strings.Repeat(" 1", n-at-1))
			}
		}
		texts = append(texts, right+" ", right+"\n", tag+" "+strings.Repeat(" 1", n))
	}
	return texts
}
