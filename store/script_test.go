package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/weir-go/weir/store"
)

func TestScript(t *testing.T) {
	t.Parallel()
	form := func(_ store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		return append(reply, store.IntegerValue(17)), nil
	}
	for _, tt := range []struct {
		name     string
		script   *store.Script
		lua, sha string
		readOnly bool
		form     bool
	}{
		// The digests were computed with sha1sum.
		{"empty", store.NewScript("empty", "", nil), "", "da39a3ee5e6b4b0d3255bfef95601890afd80709", false, false},
		{"abc", store.NewScript("abc", "abc", form), "abc", "a9993e364706816aba3e25717850c26c9cd0d89d", false, true},
		{"read", store.NewReadOnlyScript("read", "return 1", form), "return 1", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", true, true},
		{"write", store.NewScript("write", "return 1", nil), "return 1", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := tt.script
			if got := s.Name(); got != tt.name {
				t.Errorf("Name() = %q, want %q", got, tt.name)
			}
			if got := s.Lua(); got != tt.lua {
				t.Errorf("Lua() = %q, want %q", got, tt.lua)
			}
			if got := s.SHA(); got != tt.sha {
				t.Errorf("SHA() = %q, want %q", got, tt.sha)
			}
			if got := s.ReadOnly(); got != tt.readOnly {
				t.Errorf("ReadOnly() = %v, want %v", got, tt.readOnly)
			}
			if got := s.GoForm() != nil; got != tt.form {
				t.Fatalf("has a Go form: %v, want %v", got, tt.form)
			}
			if !tt.form {
				return
			}
			other := s.WithForm(func(_ store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
				return append(reply, store.IntegerValue(18)), nil
			})
			if other.Name() != s.Name() || other.Lua() != s.Lua() || other.SHA() != s.SHA() || other.ReadOnly() != s.ReadOnly() {
				t.Errorf("WithForm changed more than the form: got %q, %q, %s, %v", other.Name(), other.Lua(), other.SHA(), other.ReadOnly())
			}
			for s, want := range map[*store.Script]int64{s: 17, other: 18} {
				if reply, err := s.Run(nil, nil, nil, nil); err != nil || len(reply) != 1 || reply[0].Int() != want {
					t.Errorf("the Go form replied %v, %v: want [%d]", reply, err, want)
				}
			}
			if s.WithForm(nil).GoForm() != nil {
				t.Error("WithForm(nil) has a Go form")
			}
		})
	}
}

func TestForeign(t *testing.T) {
	t.Parallel()
	buf := []byte("weir:{a\x00}:rule")
	err := store.Foreign(unsafe.String(&buf[0], len(buf)))
	wrapped := fmt.Errorf("memory: eval gcra: %w", err)
	clear(buf) // a caller can reuse the buffer of a borrowed key
	for _, err := range []error{err, wrapped} {
		if !errors.Is(err, store.ErrForeign) {
			t.Errorf("errors.Is(%v, ErrForeign) = false", err)
		}
		if !strings.Contains(err.Error(), `"weir:{a\x00}:rule"`) {
			t.Errorf("error %q does not name the key, quoted", err)
		}
	}
}

// ForeignAt is an ErrForeign, even before Run adds the name of the key.
func TestForeignAt(t *testing.T) {
	t.Parallel()
	if err := store.ForeignAt(3); !errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrScript) || !strings.Contains(err.Error(), "key 3") {
		t.Errorf("got %v, want an ErrForeign of key 3", err)
	}
}
