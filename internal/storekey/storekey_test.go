package storekey

import (
	"fmt"
	"math"
	"testing"
)

// A keyText is a key in parts, and the same key as a text.
type keyText struct {
	Key
	text string
}

// someKeys returns keys of several frames and callers. Many texts are beginnings of others, and
// some callers look like a part of a frame.
func someKeys() (keys []keyText) {
	for _, head := range []string{"p:l:{", "p:l2:{", "{"} {
		for _, tail := range []string{"}:g2", "}:r.g2", "}:g3", "}:r.g3"} {
			frame := NewFrame(head, tail)
			for _, shared := range []string{"a", "ab", "a:b", "r.g2", "a:2", ":g2"} {
				for _, other := range []string{"", "a", "2", "a:b", "2:a", ":g2"} {
					text := head + shared + tail
					if other != "" {
						text += ":" + other
					}
					keys = append(keys, keyText{Key{Frame: &frame, Shared: shared, Other: other}, text})
				}
			}
		}
	}
	return keys
}

func TestKeyIs(t *testing.T) {
	keys := someKeys()
	framed := map[string]map[*Frame]bool{} // the frames that each text has
	for _, k := range keys {
		if framed[k.text] == nil {
			framed[k.text] = map[*Frame]bool{}
		}
		framed[k.text][k.Frame] = true
	}
	for _, k := range keys {
		for _, other := range keys {
			if got, want := k.Is(other.text, false), k.text == other.text; got != want {
				t.Fatalf("%q is %q: got %t, want %t", k.text, other.text, got, want)
			}
			if !framed[other.text][k.Frame] {
				continue
			}
			if got, want := k.Is(other.text, true), k.text == other.text; got != want {
				t.Fatalf("%q is %q, which has the same frame: got %t, want %t", k.text, other.text, got, want)
			}
			if got, want := k.IsFramed(other.text), k.text == other.text && k.Other == ""; got != want {
				t.Fatalf("IsFramed: %q is %q: got %t, want %t", k.text, other.text, got, want)
			}
		}
		for n := range k.text {
			if k.Is(k.text[:n], false) {
				t.Fatalf("%q is %q", k.text, k.text[:n])
			}
		}
	}
}

// A key has the same hashes in parts and as a text. Keys of one caller in the rules of one limiter
// have the same Caller.
func TestKeyHash(t *testing.T) {
	seen := map[uint64]string{}
	callers := map[string]uint64{}
	for _, k := range someKeys() {
		k.SetHash()
		if caller, hash := Hash(k.text); caller != k.Caller() || hash != k.Hash() {
			t.Fatalf("%q has the hashes %x and %x in parts, and %x and %x as a text", k.text, k.Caller(), k.Hash(), caller, hash)
		}
		if text, ok := seen[k.Hash()]; ok && text != k.text || k.Hash() == 0 {
			t.Fatalf("%q and %q have the hash %x", k.text, text, k.Hash())
		}
		seen[k.Hash()] = k.text
		who := fmt.Sprintf("%q %q %q", k.Frame.head, k.Shared, k.Other)
		if caller, ok := callers[who]; ok && caller != k.Caller() {
			t.Fatalf("the caller %s has two hashes", who)
		}
		callers[who] = k.Caller()
	}
	if want := 3 * 6 * 6; len(callers) != want {
		t.Fatalf("%d callers, want %d", len(callers), want)
	}
	different := map[uint64]bool{}
	for _, caller := range callers {
		different[caller] = true
	}
	if len(different) != len(callers) {
		t.Errorf("%d callers have %d hashes", len(callers), len(different))
	}
}

// SetHashAfter gives the result of SetHash.
func TestKeyHashEarlier(t *testing.T) {
	keys := someKeys()
	for _, earlier := range keys {
		earlier.SetHash()
		for _, k := range keys {
			if k.Shared != earlier.Shared || k.Frame.head != earlier.Frame.head {
				continue
			}
			want := k
			want.SetHash()
			if k.SetHashAfter(&earlier.Key); k != want {
				t.Fatalf("%q after %q: got %x, want %x", k.text, earlier.text, k.Hash(), want.Hash())
			}
		}
	}
}

// Keys of which any part differs have different callers, except for the names and the tags of rules.
func TestCallers(t *testing.T) {
	for _, format := range []string{"l%d:{all}:g2", "l:{%d}:g2", "l:{all}:g2:%d", "l:{all}:r.g2:%d", "{app}:user%d", "{app}:user.%d", "{app}user%d", "app:%d:{ann}", "{app}:user:%d", "{app}:u.x%d", "user%d"} {
		callers := map[uint64]bool{}
		for i := range 1000 {
			caller, _ := Hash(fmt.Sprintf(format, 100+i))
			callers[caller] = true
		}
		if len(callers) != 1000 {
			t.Errorf("%s: 1000 keys have %d callers", format, len(callers))
		}
	}
	one, _ := Hash("l:{all}:g2")
	for _, key := range []string{"l:{all}:r.g2", "l:{all}:r.x.f2", "l:{all}:1.s9"} {
		if caller, _ := Hash(key); caller != one {
			t.Errorf("%q has another caller than l:{all}:g2", key)
		}
	}
}

// Texts that are no keys of a limiter have different hashes too.
func TestHashAnyText(t *testing.T) {
	seen := map[uint64]string{}
	for _, text := range []string{"", "{", "}", "{}", "}{", "a", "{a", "a{", "a}", "}a", "{a}", "{a}:", "{a}:b", "{a}b:c", "a{b}:c:d", "a:b{c}:d", "a{b}:c:d{e}:f"} {
		_, hash := Hash(text)
		if other, ok := seen[hash]; ok {
			t.Errorf("%q and %q have one hash", text, other)
		}
		seen[hash] = text
		if _, again := Hash(text); again != hash {
			t.Errorf("%q has two hashes", text)
		}
	}
}

// A frame has an ID of its own, as long as there are few enough.
func TestFrameID(t *testing.T) {
	a, b := NewFrame("{", "}:g2"), NewFrame("{", "}:g2")
	if a.ID() == 0 || b.ID() == 0 || a.ID() == b.ID() {
		t.Errorf("two frames have the IDs %d and %d", a.ID(), b.ID())
	}
	before := frames.Load()
	defer frames.Store(before)
	for _, c := range []struct {
		made uint64
		want uint32
	}{
		{math.MaxUint32 - 1, math.MaxUint32},
		{math.MaxUint32, 0},
		{1 << 40, 0},
	} {
		frames.Store(c.made)
		if f := NewFrame("{", "}:g2"); f.ID() != c.want {
			t.Errorf("after %d frames: got the ID %d, want %d", c.made, f.ID(), c.want)
		}
	}
}
