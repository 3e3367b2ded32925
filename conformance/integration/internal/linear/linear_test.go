package linear

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/conformance/integration/internal/requests"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A yielding store lets other clients go on before and after each call of Eval.
type yielding struct{ store.Store }

func (y yielding) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	Yield(ctx)
	defer Yield(ctx)
	return y.Store.Eval(ctx, script, keys, args, reply)
}

func drive(t *testing.T, seed uint64) *History {
	t.Helper()
	rec, err := New(yielding{memory.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	h, err := rec.Drive(t.Context(), seed)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A seed repeats a history, and another seed makes another one.
func TestDrive(t *testing.T) {
	if a, b := drive(t, 1), drive(t, 1); !reflect.DeepEqual(a, b) {
		t.Error("two histories of a seed differ")
	}
	if a, b := drive(t, 1), drive(t, 2); len(a.ops) == len(b.ops) && reflect.DeepEqual(a.ops, b.ops) {
		t.Error("the histories of two seeds are the same")
	}
}

// The histories have every policy, every op, and answers of every kind.
func TestAnswers(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(60) {
		h := drive(t, seed)
		if err := h.Check(t.TempDir()); err != nil {
			t.Error(err)
		}
		for _, op := range h.ops {
			in, out := op.Input.(input), op.Output.(output)
			what := fmt.Sprint(policies[in.policy].Name, " ", in.request.Op, " ")
			counts[what+fmt.Sprint(out.result.Allowed)]++
			if in.request.MaxWait > 0 && out.result.Delay > 0 && out.result.Allowed {
				counts["delayed"]++
			}
			if strings.Contains(out.err, "the decision asked for more") {
				counts["refund of too little"]++
			}
		}
	}
	want := []string{"delayed", "refund of too little"}
	for _, p := range policies {
		ops := []weir.Op{weir.Consume, weir.Peek}
		switch {
		case reflect.ValueOf(p.asks).Pointer() == reflect.ValueOf(requests.Leases).Pointer():
			ops = append(ops, weir.Renew, weir.Release)
		case reflect.ValueOf(p.asks).Pointer() == reflect.ValueOf(requests.Plain).Pointer():
			ops = append(ops, weir.TakeUpTo)
			want = append(want, fmt.Sprint(p.Name, " ", weir.Force, " true"))
		default:
			ops = append(ops, weir.TakeUpTo, weir.Refund, weir.Settle)
		}
		for _, op := range ops {
			for _, allowed := range []bool{true, false} {
				want = append(want, fmt.Sprint(p.Name, " ", op, " ", allowed))
			}
		}
		want = append(want, fmt.Sprint(p.Name, " ", weir.Reset, " true"))
	}
	for _, what := range want {
		if counts[what] == 0 {
			t.Errorf("no answer is: %s", what)
		}
	}
}

// A check with too few steps fails, and draws nothing.
func TestUnchecked(t *testing.T) {
	dir := t.TempDir()
	err := drive(t, 1).check(dir, 20)
	if files, _ := os.ReadDir(dir); !errors.Is(err, ErrUnchecked) || !strings.HasPrefix(err.Error(), "seed 1,") || len(files) > 0 {
		t.Errorf("got error %v and files %v, want that the check of seed 1 gave up", err, files)
	}
}

// An answer that differs in one field is found.
func TestFields(t *testing.T) {
	for field := range reflect.TypeFor[weir.Result]().NumField() {
		name := reflect.TypeFor[weir.Result]().Field(field).Name
		if name == "Degraded" || name == "Shadow" {
			continue // a store decides always, and no rule is a shadow rule
		}
		for _, each := range []bool{false, true} {
			h := drive(t, 3)
			i := slices.IndexFunc(h.ops, func(op porcupine.Operation) bool {
				in, out := op.Input.(input), op.Output.(output)
				return in.request.Op == weir.Consume && !in.many && out.result.Allowed
			})
			out := h.ops[i].Output.(output)
			result := &out.result
			if each {
				out.each = slices.Clone(out.each)
				result = &out.each[0]
			}
			switch v := reflect.ValueOf(result).Elem().Field(field); v.Kind() {
			case reflect.Bool:
				v.SetBool(!v.Bool())
			case reflect.String:
				v.SetString(v.String() + "x")
			case reflect.Uint8:
				v.SetUint(v.Uint() + 1)
			default:
				v.SetInt(v.Int() + 1)
			}
			h.ops[i].Output = out
			if err := h.Check(t.TempDir()); !errors.Is(err, ErrNotLinearizable) {
				t.Errorf("%s, of a rule: %v: got %v, want that the answer is wrong", name, each, err)
			}
		}
	}
}

// A request without an answer was made after its call began, or not at all.
func TestUnknown(t *testing.T) {
	key := weir.KeyOf("a")
	policy := 4 // a FixedWindow
	request := func(op weir.Op, call, returned int64, out output) porcupine.Operation {
		return porcupine.Operation{
			Input: input{policy: policy, request: weir.Request{Key: key, Op: op, Cost: 2}, now: start, many: true}, Call: call, Return: returned, Output: out,
		}
	}
	// left returns the answer to a peek after used tokens were consumed.
	left := func(used int64) output {
		s := newSequential()
		s.now = start
		if used > 0 {
			if _, err := s.limiters[policy].AllowN(t.Context(), used, "a"); err != nil {
				t.Fatal(err)
			}
		}
		res, err := s.limiters[policy].Decide(t.Context(), weir.Request{Key: key, Op: weir.Peek, Cost: 2}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return output{result: res}
	}
	for _, tt := range []struct {
		name  string
		peeks [2]output // before and after the call that was lost
		ok    bool
	}{
		{"made", [2]output{left(0), left(2)}, true},
		{"not made", [2]output{left(0), left(0)}, true},
		{"made too early", [2]output{left(2), left(2)}, false},
		{"made twice", [2]output{left(0), left(4)}, false},
	} {
		h := &History{ops: []porcupine.Operation{
			request(weir.Peek, 1, 2, tt.peeks[0]),
			request(weir.Consume, 3, math.MaxInt64, output{unknown: true}),
			request(weir.Peek, 5, 6, tt.peeks[1]),
		}}
		if err := h.Check(t.TempDir()); (err == nil) != tt.ok {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}
}
