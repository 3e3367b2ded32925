package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-go/weir/store"
)

// The golden vectors are from the Redis Cluster specification, and from CLUSTER KEYSLOT
// of a server.
func TestSlot(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		key  string
		want int
	}{
		{"123456789", 0x31C3},
		{"", 0},
		{"foo", 12182},
		{"bar", 5061},
		{"hello", 866},
		{"somekey", 11058},
		{"foo{hash_tag}", 2515},
		{"hash_tag", 2515},
		{"{user1000}.following", 3443},
		{"{user1000}.followers", 3443},
		{"foo{}{bar}", 8363},
		{"foo{{bar}}zap", 4015},
	} {
		t.Run(tt.key, func(t *testing.T) {
			t.Parallel()
			if got := store.Slot(tt.key); got != tt.want {
				t.Errorf("Slot(%q) = %d, want %d", tt.key, got, tt.want)
			}
		})
	}
}

// bitwiseCRC16 computes CRC-16/XMODEM bit by bit, as it is defined.
func bitwiseCRC16(s string) int {
	crc := 0
	for i := range len(s) {
		for bit := 7; bit >= 0; bit-- {
			in := int(s[i]) >> bit & 1
			out := crc >> 15 & 1
			crc = crc << 1 & 0xFFFF
			if in != out {
				crc ^= 0x1021
			}
		}
	}
	return crc
}

// The slot of a key with a hash tag depends only on the tag. If there is no tag, or if
// the tag is empty or not closed, the slot depends on the whole key.
func FuzzSlot(f *testing.F) {
	for _, key := range []string{
		"", "a", "{user1000}.following", "foo{bar}{zap}", "foo{{bar}}zap", "{a}", "x{a}y", "}{a}", "{}}", "{ }", "{\x00}",
		"foo{}{bar}", "{}", "{}a", "{", "}", "foo{bar", "foo}bar{", "foo{bar{zap", "\xff{\xfe}",
	} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		got := store.Slot(key)
		if got < 0 || got >= store.Slots {
			t.Fatalf("Slot(%q) = %d, want 0 to %d", key, got, store.Slots-1)
		}
		hashed := key
		if _, after, ok := strings.Cut(key, "{"); ok {
			if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
				hashed = tag
			}
		}
		if want := bitwiseCRC16(hashed) % store.Slots; got != want {
			t.Errorf("Slot(%q) = %d, want %d", key, got, want)
		}
	})
}

func TestCheckKeys(t *testing.T) {
	t.Parallel()
	// Two different tags in one slot, found by counting.
	slots := map[int]string{}
	var one, other string
	for i := 0; one == ""; i++ {
		key := fmt.Sprint(i)
		if prev, ok := slots[store.Slot(key)]; ok {
			one, other = prev, key
		}
		slots[store.Slot(key)] = key
	}

	for _, tt := range []struct {
		name string
		keys []string
		want error
	}{
		{"one", []string{"a"}, nil},
		{"same key twice", []string{"a", "a"}, nil},
		{"same tag", []string{"{a}:x", "{a}:y", "z{a}"}, nil},
		{"a tag and its bare key", []string{"{a}", "a"}, nil},
		{"different tags of one slot", []string{"{" + one + "}", "{" + other + "}"}, nil},
		{"different slots", []string{"{a}:x", "{b}:x"}, store.ErrCrossSlot},
		{"the last alone differs", []string{"{a}1", "{a}2", "{a}3", "{b}"}, store.ErrCrossSlot},
		{"empty tags do not count", []string{"{}a", "{}b"}, store.ErrCrossSlot},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := store.CheckKeys(tt.keys)
			if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
				t.Fatalf("CheckKeys(%q) = %v, want %v", tt.keys, err, tt.want)
			}
			if err == nil {
				return
			}
			for _, key := range []string{tt.keys[0], tt.keys[len(tt.keys)-1]} {
				if !strings.Contains(err.Error(), fmt.Sprintf("%q", key)) {
					t.Errorf("error %q does not name %q", err, key)
				}
			}
		})
	}

	t.Run("no keys", func(t *testing.T) {
		t.Parallel()
		if err := store.CheckKeys(nil); err == nil || errors.Is(err, store.ErrCrossSlot) {
			t.Errorf("CheckKeys(nil) = %v, want an error of its own", err)
		}
	})
}
