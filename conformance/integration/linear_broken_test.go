package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/conformance/integration/internal/linear"
	"github.com/weir-go/weir/store"
)

// A defect is what is wrong with a fragile store.
type defect int

const (
	none       defect = iota
	lostUpdate        // a script's reads and its writes are two steps
	staleRead         // scripts that only read, and MGet, read values that are old
	splitLock         // a script locks one key at a time
	twice             // a script runs twice at times, as if a client had sent it again
	openPause         // a script reads the pauses of a key before it has the lock
	anyResume         // a Resume ends all pauses of the key
)

// A fragile is a store that runs Go forms on a map. It lets other clients go on at the points
// at which its defect matters. It is only for [linear.Recorder.Drive], which runs one client
// at a time. So it needs no locks, and what happens between two calls of [linear.Yield] is
// atomic.
type fragile struct {
	defect defect
	held   map[string]store.Content
	old    map[string]store.Content // held as it was some calls ago
	calls  int
}

func (f *fragile) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	linear.Yield(ctx)
	defer linear.Yield(ctx)
	f.count()
	if f.defect == twice && f.calls%10 == 0 {
		if _, err := f.run(ctx, script, keys, args, nil); err != nil {
			return reply, err
		}
	}
	return f.run(ctx, script, keys, args, reply)
}

// count counts a call, and keeps old values at times.
func (f *fragile) count() {
	if f.calls++; f.calls%10 == 0 {
		f.old = maps.Clone(f.held)
	}
}

func (f *fragile) run(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	from := f.held
	if f.defect == staleRead && script.ReadOnly() {
		from = f.old
	}
	values := make([]store.Content, len(keys))
	for i, key := range keys {
		if f.defect == splitLock && i > 0 {
			linear.Yield(ctx)
		}
		values[i] = from[key]
	}
	if f.defect == lostUpdate || f.defect == openPause && pausing(script) {
		linear.Yield(ctx)
	}
	for i, key := range keys {
		if f.defect == openPause && values[i].Kind != store.Set && f.held[key].Kind != store.Set {
			values[i] = f.held[key]
		}
	}
	tx := store.NewLoaded(time.Now().UnixMicro(), values)
	reply, err := script.Run(tx, keys, args, reply)
	if err != nil {
		return reply, err
	}
	for i, c := range tx.Changes() {
		if f.defect == splitLock && i > 0 {
			linear.Yield(ctx)
		}
		if c.Deleted {
			delete(f.held, keys[c.Key])
		} else {
			f.held[keys[c.Key]] = c.Content
		}
	}
	if f.defect == anyResume && pausing(script) && strings.HasSuffix(script.Name(), ".resume") {
		for _, key := range keys {
			if f.held[key].Kind == store.Set {
				delete(f.held, key)
			}
		}
	}
	return reply, nil
}

// pausing reports whether script is of a policy that pauses keys. Its only sorted sets are those
// of the pauses.
func pausing(script *store.Script) bool { return strings.Contains(script.Name(), "pause") }

func (f *fragile) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	linear.Yield(ctx)
	defer linear.Yield(ctx)
	f.count()
	from := f.held
	if f.defect == staleRead {
		from = f.old
	}
	for _, key := range keys {
		var v store.Value
		if h := from[key]; h.Kind == store.Numbers {
			v = store.BulkValue(h.Nums.String())
		}
		values = append(values, v)
	}
	return values, nil
}

func (f *fragile) Time(context.Context) (time.Time, error) { return time.Now(), nil }

// TestLinearizableBroken checks that stores with a defect are found in every history, or in most
// histories if it is a defect of pauses, and that nothing is found without a defect. The seeds are
// fixed, and so are the interleavings.
func TestLinearizableBroken(t *testing.T) {
	notLight(t)
	t.Parallel()
	for name, defect := range map[string]defect{
		"None": none, "LostUpdate": lostUpdate, "StaleRead": staleRead, "SplitLock": splitLock, "Twice": twice,
		"OpenPause": openPause, "AnyResume": anyResume,
	} {
		t.Run(name, func(t *testing.T) {
			busyParallel(t)
			dir, seeds, missed := t.TempDir(), uint64(20), 0
			pauses := defect == openPause || defect == anyResume
			if pauses {
				seeds = 8 // their checks take longer
			}
			for seed := range seeds {
				rec, err := linear.New(&fragile{defect: defect, held: map[string]store.Content{}})
				if err != nil {
					t.Fatal(err)
				}
				rec.Pauses = pauses
				history, err := rec.Drive(t.Context(), seed)
				if err != nil {
					t.Fatal(err)
				}
				err = history.Check(dir)
				switch {
				case defect == none && err != nil:
					t.Error(err)
				case pauses && err == nil:
					missed++
				case defect != none && !errors.Is(err, linear.ErrNotLinearizable):
					t.Errorf("seed %d: got %v, want that the defect is found", seed, err)
				case defect != none:
					drawn(t, err, seed)
				}
			}
			if missed > 2 {
				t.Errorf("the defect was missed in %d histories, want at most 2", missed)
			}
		})
	}
}

// drawn checks that err names the seed and a file with a picture.
func drawn(t *testing.T, err error, seed uint64) {
	t.Helper()
	_, path, _ := strings.Cut(err.Error(), "it is drawn in ")
	text, readErr := os.ReadFile(path)
	if readErr != nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("seed %d,", seed)) {
		t.Fatalf("got error %q, %v, want one with the seed %d and the path of a file", err, readErr, seed)
	}
	for _, what := range []string{"<html", "Allowed:true"} {
		if !strings.Contains(string(text), what) {
			t.Errorf("%s does not contain %q", path, what)
		}
	}
}
