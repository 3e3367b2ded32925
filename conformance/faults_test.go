package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A suffering store is a right one over a server that can be down, or be so slow
// that no call is answered in time. A mutant answers otherwise.
type suffering struct {
	store.Store
	down, hang atomic.Bool
	wrong      func(s *suffering, ctx context.Context, script *store.Script, keys []string, args []store.Arg) ([]store.Value, error)

	mu   sync.Mutex    // also of Store, which a fault can replace
	last []store.Value // that was replied
}

// inner returns what it has until it suffers a loss.
func (s *suffering) inner() store.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store
}

// lose forgets everything.
func (s *suffering) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Store = memory.New(nil)
}

func (s *suffering) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if s.wrong != nil && (s.down.Load() || s.hang.Load()) {
		return s.wrong(s, ctx, script, keys, args)
	}
	switch {
	case s.down.Load():
		return reply, fmt.Errorf("suffering: %w", store.ErrUnavailable)
	case s.hang.Load():
		<-ctx.Done()
		return reply, fmt.Errorf("suffering: %w", ctx.Err())
	}
	reply, err := s.inner().Eval(ctx, script, keys, args, reply)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = append(s.last[:0], reply...)
	return reply, err
}

// fault returns a maker of what sets flag for a while.
func (s *suffering) fault(flag func(*suffering) *atomic.Bool, change func(*Fault)) func(*testing.T, string) Fault {
	return func(*testing.T, string) Fault {
		s.lose()
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

func down(s *suffering) *atomic.Bool { return &s.down }
func hang(s *suffering) *atomic.Bool { return &s.hang }

// suffer runs the rule of that name and returns what it found.
func suffer(t *testing.T, name string, maker func(*testing.T, string) Fault) (*weather, FaultOutcome) {
	t.Helper()
	for _, r := range faultRules {
		if r.name == name {
			w := newWeather(r)
			var out FaultOutcome
			w.suffer(t, maker(t, w.key), &out)
			return w, out
		}
	}
	t.Fatalf("no rule %s", name)
	return nil, FaultOutcome{}
}

// A right store passes, and its calls are counted as what they are.
func TestFaultsPass(t *testing.T) {
	t.Parallel()
	for _, flag := range []func(*suffering) *atomic.Bool{down, hang} {
		w, out := suffer(t, "Restart", new(suffering).fault(flag, nil))
		if len(w.failures) > 0 {
			t.Errorf("failures: %s", w.failures)
		}
		if out.Allowed == 0 || out.Unavailable+out.Cancelled == 0 || out.Calls != out.Allowed+out.Unavailable+out.Cancelled || out.Excess != 0 {
			t.Errorf("got %+v", out)
		}
	}
}

// A strewn store notes the keys that are not in the slot of one.
type strewn struct {
	store.Store
	key string

	mu   sync.Mutex
	away []string
}

func (s *strewn) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	s.mu.Lock()
	for _, key := range keys {
		if store.Slot(key) != store.Slot(s.key) {
			s.away = append(s.away, key)
		}
	}
	s.mu.Unlock()
	return s.Store.Eval(ctx, script, keys, args, reply)
}

// All callers decide in the slot that the maker of a fault is told.
func TestFaultsOneSlot(t *testing.T) {
	t.Parallel()
	s := &strewn{Store: memory.New(nil)}
	w, _ := suffer(t, "ClusterFailover", func(_ *testing.T, key string) Fault {
		s.key = key
		return Fault{Open: func() (store.Store, func()) { return s, func() {} }, Begin: func() {}, End: func() {}}
	})
	if len(w.failures) > 0 {
		t.Errorf("failures: %s", w.failures)
	}
	if len(s.away) > 0 {
		t.Errorf("not in the slot of %q: %q", s.key, s.away[0])
	}
}

// A client that repeats what it has lost charges as often as it says, and no more.
func TestFaultsRepeats(t *testing.T) {
	t.Parallel()
	twice := func(s *suffering, ctx context.Context, script *store.Script, keys []string, args []store.Arg) ([]store.Value, error) {
		if _, err := s.inner().Eval(ctx, script, keys, args, nil); err != nil {
			return nil, err
		}
		return s.inner().Eval(ctx, script, keys, args, nil)
	}
	for repeats := range 2 {
		s := &suffering{wrong: twice}
		w, out := suffer(t, "Reset", s.fault(down, func(f *Fault) { f.Repeats = repeats }))
		if fails := len(w.failures) > 0; fails != (repeats == 0) || out.Unavailable > 0 {
			t.Errorf("%d repeats: got %+v, failures %q", repeats, out, w.failures)
		}
	}
}

// Each thing that a store can do wrong in bad weather is found.
func TestFaultsFail(t *testing.T) {
	t.Parallel()
	unavailable := fmt.Errorf("suffering: %w", store.ErrUnavailable)
	fails := func(err error) *suffering {
		return &suffering{wrong: func(*suffering, context.Context, *store.Script, []string, []store.Arg) ([]store.Value, error) {
			return nil, err
		}}
	}
	twice := func(*suffering) *suffering {
		return &suffering{wrong: func(s *suffering, ctx context.Context, script *store.Script, keys []string, args []store.Arg) ([]store.Value, error) {
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
	leak := make(chan struct{})
	t.Cleanup(func() { close(leak) })
	for _, tt := range []struct {
		name, rule string
		store      *suffering
		flag       func(*suffering) *atomic.Bool
		change     func(*Fault)
		says       string
	}{
		{"lets pass what it could not decide", "Restart", &suffering{wrong: func(s *suffering, _ context.Context, script *store.Script, keys []string, _ []store.Arg) ([]store.Value, error) {
			if len(keys) > 1 {
				return nil, unavailable
			}
			now := time.Now().UnixMicro()
			return []store.Value{store.IntegerValue(1), store.IntegerValue(now), store.IntegerValue(now + 1e6), store.IntegerValue(7)}, nil
		}}, down, nil, "was let pass"},
		{"gives a reply to another", "Latency", &suffering{wrong: func(s *suffering, _ context.Context, _ *store.Script, _ []string, _ []store.Arg) ([]store.Value, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return append([]store.Value(nil), s.last...), nil
		}}, down, nil, ""},
		{"denies", "Paused", &suffering{wrong: func(s *suffering, _ context.Context, _ *store.Script, keys []string, _ []store.Arg) ([]store.Value, error) {
			if len(keys) > 1 {
				return nil, unavailable
			}
			now := time.Now().UnixMicro()
			return []store.Value{store.IntegerValue(0), store.IntegerValue(now), store.IntegerValue(now + 1e6), store.IntegerValue(1 << 50)}, nil
		}}, down, nil, "was denied"},
		{"calls an outage a broken script", "Busy", fails(fmt.Errorf("suffering: %w", store.ErrScript)), down, nil, "want either ErrUnavailable"},
		{"calls an outage two things", "NoPermission", fails(fmt.Errorf("%w: %w", store.ErrUnavailable, context.DeadlineExceeded)), down, nil, "want either"},
		{"calls an outage nothing", "WrongPassword", fails(errors.New("suffering")), down, nil, "want either"},
		{"blames a context that is not done", "ClosedPort", fails(context.DeadlineExceeded), down, nil, "before its deadline"},
		{"waits on", "BlackHole", &suffering{wrong: func(*suffering, context.Context, *store.Script, []string, []store.Arg) ([]store.Value, error) {
			time.Sleep(16 * CallTime)
			return nil, context.DeadlineExceeded
		}}, hang, nil, "waited"},
		{"panics", "Reset", &suffering{wrong: func(*suffering, context.Context, *store.Script, []string, []store.Arg) ([]store.Value, error) {
			panic("suffering")
		}}, down, func(f *Fault) { f.Within = time.Millisecond }, "panic: suffering"},
		{"is not served again", "Loading", new(suffering), down, func(f *Fault) { f.End, f.Within = func() {}, time.Millisecond }, "not all callers were served"},
		{"charges a call twice", "HalfOpen", twice(nil), down, nil, "was charged"},
		{"notices a flush", "ScriptFlush", fails(unavailable), down, nil, "served all the time"},
		{"notices a migration", "Migration", fails(unavailable), down, nil, "served all the time"},
		{"leaves a goroutine", "Misconf", &suffering{wrong: func(*suffering, context.Context, *store.Script, []string, []store.Arg) ([]store.Value, error) {
			if never.Swap(false) {
				go func() { <-leak }()
			}
			return nil, unavailable
		}}, down, nil, "goroutines are left"},
		{"leaves a connection", "NoReplicas", new(suffering), down, func(f *Fault) { f.Conns = func() int { return 1 } }, "has 1 connections"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, _ := suffer(t, tt.rule, tt.store.fault(tt.flag, tt.change))
			if len(w.failures) == 0 || !strings.Contains(strings.Join(w.failures, "\n"), tt.says) {
				t.Errorf("got failures %q, want one that says %q", w.failures, tt.says)
			}
		})
	}
}

// Every rule finds a store that answers wrongly while its server suffers. (Nobody
// asks meanwhile under the rules that TestFaultsLoses breaks.)
func TestFaultsEveryRule(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for _, r := range faultRules {
		if r.still {
			continue
		}
		wg.Go(func() { // most of a rule's time is spent waiting
			s := &suffering{wrong: func(*suffering, context.Context, *store.Script, []string, []store.Arg) ([]store.Value, error) {
				return nil, fmt.Errorf("suffering: %w", store.ErrScript)
			}}
			if w, _ := suffer(t, r.name, s.fault(down, nil)); len(w.failures) == 0 {
				t.Errorf("%s passed", r.name)
			}
		})
	}
	wg.Wait()
}

// What a server forgets is at most what was not confirmed, and nothing if nobody
// asked when it was last confirmed.
func TestFaultsLoses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, rule string
		confirm    bool // rightly
		fails      bool
	}{
		{"nothing was confirmed", "MasterKilled", false, false},
		{"more was lost than unconfirmed", "MasterKilled", true, true},
		{"what was confirmed was lost", "MasterKilledStill", true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := new(suffering)
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
			w, out := suffer(t, tt.rule, maker)
			if out.Excess == 0 || (len(w.failures) > 0) != tt.fails {
				t.Errorf("got %+v, failures %q", out, w.failures)
			}
		})
	}
}

// Every rule is run by the name that it has, and what nobody makes is skipped.
func TestRunFaults(t *testing.T) {
	t.Parallel()
	names := FaultRules()
	if len(names) != len(faultRules) || names[0] != "Faults/ScriptFlush" {
		t.Errorf("FaultRules() = %v", names)
	}
	var mu sync.Mutex
	got := map[string]FaultOutcome{}
	t.Run("run", func(t *testing.T) {
		RunFaults(t, map[string]func(*testing.T, string) Fault{"Restart": new(suffering).fault(down, nil)}, func(o FaultOutcome) {
			mu.Lock()
			defer mu.Unlock()
			got[o.Rule] = o
		})
	})
	for _, name := range names {
		if o, ok := got[name]; !ok || o.Passed != (name == "Faults/Restart") || o.Passed == (o.Skipped != "") || o.Promise == "" {
			t.Errorf("%s: got %+v", name, o)
		}
	}
}
