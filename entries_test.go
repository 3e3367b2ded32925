package weir_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

func kept(name string) weir.Rule {
	return weir.Rule{Name: name, Algorithm: algorithm.MetadataWindow{Limit: 5, Window: time.Minute}}
}

// Entries says which rule it cannot list, and which it could.
func TestEntriesOfWhichRule(t *testing.T) {
	t.Parallel()
	rate := weir.Rule{Name: "rate", Algorithm: perSecond}
	for _, tt := range []struct {
		name  string
		rules []weir.Rule
		rule  string
		want  error
		says  string
	}{
		{"the only one", []weir.Rule{rate, kept("kept")}, "", nil, ""},
		{"by name", []weir.Rule{rate, kept("kept"), kept("other")}, "kept", nil, ""},
		{"two", []weir.Rule{kept("kept"), kept("other")}, "", weir.ErrInvalidRule, `"kept" and "other"`},
		{"none", []weir.Rule{rate}, "", weir.ErrUnsupported, "algorithm.MetadataWindow"},
		{"another algorithm", []weir.Rule{rate, kept("kept")}, "rate", weir.ErrUnsupported, `"rate" is a gcra`},
		{"no such rule", []weir.Rule{rate, kept("kept")}, "log", weir.ErrInvalidRule, `no rule "log"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := mustNew(t, memory.New(nil), tt.rules, nil)
			request := weir.Request{Path: []string{"u"}, Cost: 2, Metadata: "ann"}
			if _, err := l.Do(t.Context(), request); (err != nil) != (tt.name == "none") {
				t.Errorf("Do with metadata: %v", err)
			}
			list, err := l.Entries(t.Context(), tt.rule, "u")
			switch {
			case !errors.Is(err, tt.want):
				t.Errorf("Entries = %v, %v, want %v", list, err, tt.want)
			case err != nil && !strings.Contains(err.Error(), tt.says):
				t.Errorf("Entries: %v, want %s in it", err, tt.says)
			case err == nil && (len(list) != 1 || list[0] != algorithm.Entry{Cost: 2, Metadata: "ann"}):
				t.Errorf("Entries = %+v, want the one of ann", list)
			}
			if _, err := l.Entries(t.Context(), tt.rule); !errors.Is(err, weir.ErrInvalidKey) {
				t.Errorf("Entries of no path: %v, want ErrInvalidKey", err)
			}
		})
	}
}

// What no list holds is an error.
func TestNonsenseEntries(t *testing.T) {
	t.Parallel()
	texts := func(list ...string) []store.Value {
		var values []store.Value
		for _, text := range list {
			values = append(values, store.BulkValue(text))
		}
		return values
	}
	for name, reply := range map[string][]store.Value{
		"an integer":        integers(1),
		"a nil":             make([]store.Value, 1),
		"another tag":       texts("l1 0000000000000001"),
		"no metadata":       texts("m1 1 1"),
		"no number":         texts("m1 1 x ann"),
		"a count of none":   texts("m1 1 0 ann"),
		"a count that sank": texts("m1 1 2 ann", "m1 1 2 bob"),
		"beyond 2^53":       texts("m1 1 9007199254740992 ann"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := mustNew(t, liar{reply: reply}, []weir.Rule{kept("kept")}, nil)
			if list, err := l.Entries(t.Context(), "", "u"); !errors.Is(err, store.ErrScript) || list != nil {
				t.Errorf("Entries = %+v, %v, want ErrScript", list, err)
			}
		})
	}
}
