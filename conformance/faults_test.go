package conformance

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/internal/report"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A failing store is a correct store on a server that can be down, or so slow that no
// call is answered in time. A mutant answers otherwise.
type failing struct {
	store.Store
	down, hang atomic.Bool
	wrong      func(s *failing, ctx context.Context, script *store.Script, keys []string, args []store.Arg) ([]store.Value, error)

	mu   sync.Mutex    // of last, of away, and of Store, which a fault can replace
	last []store.Value // the last reply
	key  string        // that the maker of the fault was told
	away []string      // keys that are not in the slot of key
}

// inner returns the store that it has now.
func (s *failing) inner() store.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store
}

// lose loses all state.
func (s *failing) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Store = memory.New(nil)
}

func (s *failing) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if s.wrong != nil && (s.down.Load() || s.hang.Load()) {
		return s.wrong(s, ctx, script, keys, args)
	}
	switch {
	case s.down.Load():
		return reply, fmt.Errorf("failing: %w", store.ErrUnavailable)
	case s.hang.Load():
		<-ctx.Done()
		return reply, fmt.Errorf("failing: %w", ctx.Err())
	}
	reply, err := s.inner().Eval(ctx, script, keys, args, reply)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = append(s.last[:0], reply...)
	for _, key := range keys {
		if store.Slot(key) != store.Slot(s.key) {
			s.away = append(s.away, key)
		}
	}
	return reply, err
}

// fault returns a maker of a fault that sets flag.
func (s *failing) fault(flag func(*failing) *atomic.Bool, change func(*Fault)) func(*testing.T, string) Fault {
	return func(_ *testing.T, key string) Fault {
		s.lose()
		s.key = key
		f := Fault{
			Open:   func() (store.Store, func()) { return s, func() {} },
			Begin:  func() { flag(s).Store(true) },
			End:    func() { flag(s).Store(false) },
			Within: time.Second,
		}
		if change != nil {
			change(&f)
		}
		return f
	}
}

func down(s *failing) *atomic.Bool { return &s.down }

func hang(s *failing) *atomic.Bool { return &s.hang }

// runFault runs the check of that name and returns it, with its outcome. The time is virtual:
// the checks make allowances for a busy machine, and so find less on one.
func runFault(t *testing.T, name string, maker func(*testing.T, string) Fault) (*faultRun, FaultOutcome) {
	t.Helper()
	checks := Backend{Faults: map[string]func(*testing.T, string) Fault{name: maker}}.faults()
	w := newFaultRun(checks[0])
	synctest.Test(t, func(t *testing.T) {
		w.run(t, maker(t, w.key))
		time.Sleep(2 * leak)
	})
	return w, w.out
}

// leak is how long a goroutine lives that a test leaves.
const leak = time.Hour

// A correct store passes, and its calls are counted by how they ended. All keys are in one
// slot. A goroutine that Confirm starts is not the client's.
func TestFaultsPass(t *testing.T) {
	t.Parallel()
	for _, flag := range []func(*failing) *atomic.Bool{down, hang} {
		var confirmed sync.Once
		s := new(failing)
		w, out := runFault(t, "Restart", s.fault(flag, func(f *Fault) {
			f.Confirm = func() error {
				confirmed.Do(func() { go time.Sleep(leak) })
				return nil
			}
		}))
		if len(w.failures) > 0 || len(s.away) > 0 {
			t.Errorf("failures: %s; not in the slot of %q: %q", w.failures, s.key, s.away)
		}
		if out.Allowed == 0 || out.Unavailable+out.Cancelled == 0 || out.Calls != out.Allowed+out.Unavailable+out.Cancelled || out.Excess != 0 {
			t.Errorf("got %+v", out)
		}
	}
}

// A client that repeats calls whose reply was lost consumes no more than Repeats says.
func TestFaultsRepeats(t *testing.T) {
	t.Parallel()
	twice := func(s *failing, ctx context.Context, script *store.Script, keys []string, args []store.Arg) ([]store.Value, error) {
		if _, err := s.inner().Eval(ctx, script, keys, args, nil); err != nil {
			return nil, err
		}
		return s.inner().Eval(ctx, script, keys, args, nil)
	}
	for repeats := range 2 {
		s := &failing{wrong: twice}
		w, out := runFault(t, "Reset", s.fault(down, func(f *Fault) { f.Repeats = repeats }))
		if fails := len(w.failures) > 0; fails != (repeats == 0) || out.Unavailable > 0 {
			t.Errorf("%d repeats: got %+v, failures %q", repeats, out, w.failures)
		}
	}
}

// untilOver waits until the fault is over, whatever the context.
func untilOver(s *failing, _ context.Context, _ *store.Script, _ []string, _ []store.Arg) ([]store.Value, error) {
	for s.down.Load() || s.hang.Load() {
		time.Sleep(time.Millisecond)
	}
	return nil, fmt.Errorf("failing: %w", store.ErrUnavailable)
}

// uncommitted runs a script and loses its changes, as if a commit had failed, and returns no
// error.
func uncommitted(s *failing, ctx context.Context, script *store.Script, keys []string, args []store.Arg) ([]store.Value, error) {
	texts, err := s.inner().MGet(ctx, keys, nil)
	if err != nil {
		return nil, err
	}
	held := make([]store.Content, len(keys))
	for i, text := range texts {
		if n, ok := store.ParseNums(text.Str()); ok {
			held[i] = store.Content{Kind: store.Numbers, Nums: n}
		}
	}
	return script.Run(store.NewLoaded(time.Now().UnixMicro(), held), keys, args, nil)
}

// Each thing that a store can do wrong during a fault is found.
func TestFaultsFail(t *testing.T) {
	t.Parallel()
	unavailable := fmt.Errorf("failing: %w", store.ErrUnavailable)
	fails := func(err error) *failing {
		return &failing{wrong: func(*failing, context.Context, *store.Script, []string, []store.Arg) ([]store.Value, error) {
			return nil, err
		}}
	}
	twice := func(*failing) *failing {
		return &failing{wrong: func(s *failing, ctx context.Context, script *store.Script, keys []string, args []store.Arg) ([]store.Value, error) {
			for range 2 {
				if _, err := s.inner().Eval(ctx, script, keys, args, nil); err != nil {
					return nil, err
				}
			}
			return nil, unavailable
		}}
	}
	var never atomic.Bool
	never.Store(true)
	// Whatever is wrong is found under faults that the suite does not know.
	own := &failing{wrong: func(s *failing, ctx context.Context, _ *store.Script, _ []string, _ []store.Arg) ([]store.Value, error) {
		<-ctx.Done()
		return nil, errors.New("failing: interrupted")
	}}
	for _, tt := range []struct {
		name, check string
		store       *failing
		flag        func(*failing) *atomic.Bool
		change      func(*Fault)
		says        string
	}{
		{"allows what it could not decide", "Restart", &failing{wrong: func(s *failing, _ context.Context, script *store.Script, keys []string, _ []store.Arg) ([]store.Value, error) {
			if len(keys) > 1 {
				return nil, unavailable
			}
			now := time.Now().UnixMicro()
			return []store.Value{store.IntegerValue(1), store.IntegerValue(now), store.IntegerValue(now + 1e6), store.IntegerValue(7)}, nil
		}}, down, nil, "was granted"},
		{"gives a reply to another call", "Latency", &failing{wrong: func(s *failing, _ context.Context, _ *store.Script, _ []string, _ []store.Arg) ([]store.Value, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return append([]store.Value(nil), s.last...), nil
		}}, down, nil, ""},
		{"peeks at nothing", "ConnectionsKilled", &failing{wrong: func(_ *failing, ctx context.Context, script *store.Script, keys []string, args []store.Arg) ([]store.Value, error) {
			if !script.ReadOnly() {
				return nil, unavailable
			}
			return memory.New(nil).Eval(ctx, script, keys, args, nil)
		}}, down, nil, "the last answer says"},
		{"denies", "Paused", &failing{wrong: func(s *failing, _ context.Context, _ *store.Script, keys []string, _ []store.Arg) ([]store.Value, error) {
			if len(keys) > 1 {
				return nil, unavailable
			}
			now := time.Now().UnixMicro()
			return []store.Value{store.IntegerValue(0), store.IntegerValue(now), store.IntegerValue(now + 1e6), store.IntegerValue(1 << 50)}, nil
		}}, down, nil, "was denied"},
		{"returns a failed script for an outage", "Busy", fails(fmt.Errorf("failing: %w", store.ErrScript)), down, nil, "want either ErrUnavailable"},
		{"returns two errors for an outage", "NoPermission", fails(fmt.Errorf("%w: %w", store.ErrUnavailable, context.DeadlineExceeded)), down, nil, "want either"},
		{"returns an unknown error for an outage", "WrongPassword", fails(errors.New("failing")), down, nil, "want either"},
		{"blames a context that is not done", "ClosedPort", fails(context.DeadlineExceeded), down, nil, "before its deadline"},
		{"does not mark the error of a context", "Locked", own, hang, nil, "want either"},
		{"returns the error of a closed database", "Closed", fails(errors.New("database is closed")), down, nil, "want either ErrUnavailable"},
		{"swallows the error of a commit", "DiskFull", &failing{wrong: uncommitted}, down, nil, "the last answer says"},
		{"waits until a server is no longer busy", "Busy", &failing{wrong: untilOver}, down, nil, "waits on"},
		{"waits until a file is no longer locked", "Locked", &failing{wrong: untilOver}, hang, nil, "waits on"},
		{"waits for a lock for 5 s", "Locked", &failing{wrong: func(s *failing, _ context.Context, _ *store.Script, _ []string, _ []store.Arg) ([]store.Value, error) {
			time.Sleep(5 * time.Second)
			return nil, unavailable
		}}, hang, nil, "waits on"},
		{"does not fail", "Locked", &failing{wrong: func(s *failing, ctx context.Context, script *store.Script, keys []string, args []store.Arg) ([]store.Value, error) {
			return s.inner().Eval(ctx, script, keys, args, nil)
		}}, hang, nil, "no call failed"},
		{"waits on", "BlackHole", &failing{wrong: func(*failing, context.Context, *store.Script, []string, []store.Arg) ([]store.Value, error) {
			time.Sleep(16 * CallTime)
			return nil, context.DeadlineExceeded
		}}, hang, nil, "waited"},
		{"panics", "Reset", &failing{wrong: func(*failing, context.Context, *store.Script, []string, []store.Arg) ([]store.Value, error) {
			panic("failing")
		}}, down, func(f *Fault) { f.Within = time.Millisecond }, "panic: failing"},
		{"is not served again", "Loading", new(failing), down, func(f *Fault) { f.End, f.Within = func() {}, time.Millisecond }, "not all callers were served"},
		{"consumes twice for a call", "HalfOpen", twice(nil), down, nil, "consumed"},
		{"notices a flush", "ScriptFlush", fails(unavailable), down, nil, "every call served"},
		{"notices a migration", "Migration", fails(unavailable), down, nil, "every call served"},
		{"leaves a goroutine", "Misconf", &failing{wrong: func(*failing, context.Context, *store.Script, []string, []store.Arg) ([]store.Value, error) {
			if never.Swap(false) {
				go time.Sleep(leak)
			}
			return nil, unavailable
		}}, down, nil, "goroutines are left"},
		{"leaves a connection", "NoReplicas", new(failing), down, func(f *Fault) { f.Conns = func() int { return 1 } }, "has 1 connections"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, _ := runFault(t, tt.check, tt.store.fault(tt.flag, tt.change))
			if len(w.failures) == 0 || !strings.Contains(strings.Join(w.failures, "\n"), tt.says) {
				t.Errorf("got failures %q, want one that says %q", w.failures, tt.says)
			}
		})
	}
	// Every check finds a wrong answer, unless nobody calls during the fault: see TestFaultsLoses.
	for _, c := range faultChecks {
		if w, _ := runFault(t, c.name, fails(store.ErrScript).fault(down, nil)); !c.still && len(w.failures) == 0 {
			t.Errorf("%s passed", c.name)
		}
	}
}

// A server may lose at most the tokens that were not confirmed, and none if nobody called
// after the last confirmation.
func TestFaultsLoses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, check string
		confirm     bool
		fails       bool
	}{
		{"nothing was confirmed", "MasterKilled", false, false},
		{"more was lost than unconfirmed", "MasterKilled", true, true},
		{"what was confirmed was lost", "MasterKilledStill", true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := new(failing)
			maker := s.fault(down, func(f *Fault) {
				f.Loses = true
				f.Confirm = func() error {
					if !tt.confirm {
						return errors.New("not in time")
					}
					return nil
				}
				end := f.End
				f.End = func() {
					s.lose()
					end()
				}
			})
			w, out := runFault(t, tt.check, maker)
			if out.Excess == 0 || (len(w.failures) > 0) != tt.fails {
				t.Errorf("got %+v, failures %q", out, w.failures)
			}
		})
	}
}

// RunFaults runs the faults that the backend has, those that it knows first, and records
// them.
func TestRunFaults(t *testing.T) {
	t.Parallel()
	names := FaultChecks()
	if len(names) != len(faultChecks) || names[0] != "Faults/ScriptFlush" {
		t.Errorf("FaultChecks() = %v", names)
	}
	file := filepath.Join(t.TempDir(), "faults.json")
	outcomes := map[string]Outcome{}
	t.Run("run", func(t *testing.T) {
		RunFaults(t, Backend{
			Faults: map[string]func(*testing.T, string) Fault{
				"Locked":  new(failing).fault(hang, nil),
				"Closed":  (&failing{wrong: untilOver}).fault(down, nil),
				"Restart": new(failing).fault(down, nil),
			},
			Unsupported: map[string]string{"Store/Atomic": "for Run", "Faults/Closed": "it waits"},
			Strict:      true,
			Record:      func(o Outcome) { outcomes[o.Check] = o },
			Report:      &Report{File: file, Store: "failing"},
		})
	})
	r := readReport(t, file)
	if !r.Settings.Faults || r.Result != report.Passed || len(outcomes) != 3 {
		t.Errorf("got the report %+v and the outcomes %+v", r, outcomes)
	}
	for i, name := range []string{"Restart", "Closed", "Locked"} {
		o, passed := outcomes["Faults/"+name], name != "Closed"
		if o.Passed != passed || passed == (o.Skipped != "") || o.Promise == "" || o.Fault.Calls == 0 {
			t.Errorf("%s: got %+v", name, o)
		}
		if c := r.Checks[i]; c.Name != o.Check || c.Reason != o.Skipped || c.Fault != o.Fault.String() || (c.Result == report.Passed) != passed {
			t.Errorf("%s: the report has %+v", name, c)
		}
	}
}
