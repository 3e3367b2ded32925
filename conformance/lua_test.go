package conformance

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A tape records the scripts that are sent to a store, and the calls of them, as Lua.
type tape struct {
	store.Store
	clock   *decisions.Clock
	scripts map[string]string
	steps   strings.Builder
}

func (t *tape) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	t.scripts[s.SHA()] = s.Lua()
	texts := make([]string, len(args))
	for i, a := range args {
		texts[i] = a.String()
	}
	fmt.Fprintf(&t.steps, "{ at = %d, sha = %s, keys = { %s }, args = { %s } },\n", t.clock.Micros, luaList(s.SHA()), luaList(keys...), luaList(texts...))
	return t.Store.Eval(ctx, s, keys, args, reply)
}

// luaList returns texts as strings of Lua.
func luaList(texts ...string) string {
	special := regexp.MustCompile(`[^0-9A-Za-z;:._{}-]`)
	list := make([]string, len(texts))
	for i, text := range texts {
		list[i] = `"` + special.ReplaceAllStringFunc(text, func(c string) string {
			escaped := ""
			for _, b := range []byte(c) {
				escaped += fmt.Sprintf(`\%03d`, b)
			}
			return escaped
		}) + `"`
	}
	return strings.Join(list, ", ")
}

// record makes random requests of a limiter with rules, and returns the calls.
func record(t *testing.T, rules ...weir.Rule) *tape {
	r, c := rand.New(rand.NewPCG(1, 2)), decisions.NewClock()
	rec := &tape{Store: memory.New(nil), clock: c, scripts: map[string]string{}}
	l, err := weir.NewPolicy(rec, weir.Policy{Name: "lua", Rules: rules}, &weir.Options{Clock: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		c.Advance(max(model.Pause(r, model.Unit(rules[0].Algorithm)), 0))
		req := weir.Request{
			Key: weir.KeyOf("ann"), Cost: 1 + r.Int64N(3), ID: model.Pick(r, "", "a", "b"), MaxWait: model.Pick(r, 0, 0, time.Hour),
			Op: model.Pick(r, weir.Consume, weir.Consume, weir.TakeUpTo, weir.Force, weir.Peek, weir.Refund, weir.Settle, weir.Renew, weir.Release, weir.Pause, weir.Resume, weir.Reset),
		}
		switch req.Op {
		case weir.Settle:
			req.Actual, req.Cost = weir.ActualCost(r.Int64N(5)), 0
		case weir.Pause:
			req.For = time.Second
		}
		_, _ = l.Decide(t.Context(), req, nil) // what the rules do not support sends nothing
	}
	return rec
}

// run replays the calls with a version of Lua, and returns what testdata/replay.lua writes.
func (t *tape) run(lua, file, mode string, change func(text string) string) (string, error) {
	var program strings.Builder
	program.WriteString("return { scripts = {\n")
	for _, sha := range slices.Sorted(maps.Keys(t.scripts)) {
		fmt.Fprintf(&program, "[%s] = %s,\n", luaList(sha), luaList(change(t.scripts[sha])))
	}
	program.WriteString("}, steps = {\n" + t.steps.String() + "} }\n")
	if err := os.WriteFile(file, []byte(program.String()), 0o600); err != nil {
		return "", err
	}
	cmd := exec.Command(lua, "replay.lua", file, mode)
	cmd.Dir = "testdata"
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestLua replays the calls of limiters on a fake server in each version of Lua that servers
// have: the replies, and what the keys hold, must be the same. In the mode edges, the keys hold
// other values than were written, for example numbers around 2^53 and 2^63, and the clock is the
// server's. The other rows make the scripts unportable, and some history must show it.
func TestLua(t *testing.T) {
	t.Parallel()
	old, newest := weirtest.NeedProgram(t, "lua5.1"), weirtest.NeedProgram(t, "lua5.4")
	r := rand.New(rand.NewPCG(1, 1))
	thirds := algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}
	var tapes []*tape
	for _, maker := range append(model.Usual.All(), model.Usual.Calendar, func(*rand.Rand) algorithm.Algorithm { return thirds }) {
		tapes = append(tapes, record(t, weir.Rule{Algorithm: maker(r)}))
	}
	tapes = append(tapes,
		record(t, weir.Rule{Name: "a", Algorithm: thirds}, weir.Rule{Name: "b", Algorithm: algorithm.SlidingLog{Limit: 5, Window: time.Minute}}),
		record(t, weir.Rule{Name: "a", Algorithm: thirds}, weir.Rule{Name: "b", Algorithm: algorithm.Pause{}}))
	for _, m := range []struct{ name, mode, old, new string }{
		{"portable", "exact", "", ""},
		{"portable", "edges", "", ""},
		{"unpack is a global", "exact", "(table.unpack or unpack)(", "unpack("},
		{"%d of a number with a fraction", "exact", "life - life % 1 + slack", "life + slack"},
		{"a number as text", "exact", "string.format('%d;', n > 0 and n or 0)", "((n > 0 and n or 0) .. ';')"},
		{"an infinite score is a number", "edges", "score == 'inf' or score == '-inf'", "false"},
		{"a number from text is an integer", "edges", "+ 0.0", "+ 0"},
	} {
		t.Run(m.name+" "+m.mode, func(t *testing.T) {
			t.Parallel()
			differs := false
			for i, rec := range tapes {
				change := func(text string) string { return strings.ReplaceAll(text, m.old, m.new) }
				file := filepath.Join(t.TempDir(), "history.lua")
				want, err := rec.run(old, file, m.mode, change)
				if err != nil || m.mode == "exact" && strings.Contains(want, "failed: ") {
					t.Fatalf("history %d, Lua 5.1: %v\n%s", i, err, want)
				}
				got, err := rec.run(newest, file, m.mode, change)
				if differs = err != nil || got != want; differs && m.old == "" {
					t.Errorf("history %d: %v\nLua 5.4 %s\nLua 5.1 %s", i, err, got, want)
				} else if differs {
					return
				}
			}
			if m.old != "" {
				t.Error("no history shows it")
			}
		})
	}
}
