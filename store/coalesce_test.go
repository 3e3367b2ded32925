package store_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/store"
)

// A server is a store whose calls take a second. It logs what it was sent: the keys of
// each trip.
type server struct {
	mu       sync.Mutex
	trips    []string
	deadline time.Time // of the last batch
	panics   bool
}

func (s *server) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	calls := []store.Eval{{Script: script, Keys: keys, Args: args, Reply: reply}}
	s.EvalBatch(ctx, calls)
	return calls[0].Reply, calls[0].Err
}

func (s *server) EvalBatch(ctx context.Context, calls []store.Eval) {
	var keys []string
	for i := range calls {
		keys = append(keys, calls[i].Keys...)
	}
	s.mu.Lock()
	s.trips = append(s.trips, strings.Join(keys, " "))
	s.deadline, _ = ctx.Deadline()
	s.mu.Unlock()
	if s.panics && len(calls) > 1 {
		panic("lost the plot")
	}
	if calls[0].Keys[0] == "exit" {
		runtime.Goexit()
	}
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	for i := range calls {
		c := &calls[i]
		if c.Err = ctx.Err(); c.Err == nil && c.Keys[0] == "bad" {
			c.Err = store.Foreign("bad")
		}
		if c.Err == nil {
			c.Reply = append(c.Reply, store.BulkValue(c.Keys[0]), store.BulkValue(c.Args[0].String()))
		}
	}
}

func (s *server) MGet(_ context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	return append(values, make([]store.Value, len(keys))...), nil
}

func (s *server) Time(context.Context) (time.Time, error) { return time.Unix(1, 0), nil }

var noop = store.NewScript("noop", "return 1", nil)

// ask calls Eval of st for key in a goroutine of wg, with an argument of its own, and
// checks the answer.
func ask(t *testing.T, wg *sync.WaitGroup, ctx context.Context, st store.Store, key string, want error) {
	t.Helper()
	wg.Go(func() {
		keys, args := []string{key}, []store.Arg{store.StringArg("arg of " + key)}
		before := []store.Value{store.IntegerValue(7)}
		reply, err := st.Eval(ctx, noop, keys, args, before)
		keys[0], args[0] = "reused", store.StringArg("reused")
		if !errors.Is(err, want) {
			t.Errorf("%s: got error %v, want %v", key, err, want)
		}
		if want != nil {
			if !slices.Equal(reply, before) {
				t.Errorf("%s: got reply %v, want the unchanged one", key, reply)
			}
			return
		}
		if len(reply) != 3 || reply[0] != before[0] || reply[1].Str() != key || reply[2].Str() != "arg of "+key {
			t.Errorf("%s: got reply %v", key, reply)
		}
	})
}

// check fails t if s was not sent these.
func (s *server) check(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.trips, want) {
		t.Errorf("got trips %q, want %q", s.trips, want)
	}
}

// The first call goes at once, and those that arrive meanwhile follow together.
func TestCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(server)
		st := store.Coalesce(s)
		start := time.Now()
		for round := range 3 { // the later ones reuse what the first ones made
			var wg sync.WaitGroup
			for _, key := range []string{"a", "b", "bad", "c", "d"} {
				want := error(nil)
				if key == "bad" {
					want = store.ErrForeign
				}
				ask(t, &wg, t.Context(), st, key, want)
				synctest.Wait()
			}
			time.Sleep(1500 * time.Millisecond)
			ask(t, &wg, t.Context(), st, "e", nil) // arrives while the second trip is under way
			wg.Wait()
			if got, want := time.Since(start), time.Duration(round+1)*3*time.Second; got != want {
				t.Errorf("round %d: got %v, want %v", round, got, want)
			}
			s.check(t, slices.Repeat([]string{"a", "b bad c d", "e"}, round+1)...)
		}
	})
}

// If 16 calls wait, they go at once, beside the call under way. A third trip waits for
// one of both.
func TestCoalesceCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(server)
		st := store.Coalesce(s)
		var trips []string
		for range 3 { // the store is idle in between
			var wg sync.WaitGroup
			start := time.Now()
			send := func(prefix string, n int) (keys string) {
				for i := range n {
					key := fmt.Sprint(prefix, i)
					ask(t, &wg, t.Context(), st, key, nil)
					synctest.Wait()
					keys += " " + key
				}
				return keys[1:]
			}
			trips = append(trips, send("first", 1))
			crowd := send("crowd", 15)
			s.check(t, trips...)
			crowd += " " + send("sixteenth", 1)
			trips = append(trips, crowd)
			s.check(t, trips...)
			third := send("third", 20)
			s.check(t, trips...)
			time.Sleep(time.Second) // both trips end, and one follows
			synctest.Wait()
			trips = append(trips, third)
			s.check(t, trips...)
			last := send("last", 15)
			s.check(t, trips...)
			wg.Wait()
			trips = append(trips, last)
			s.check(t, trips...)
			if got, want := time.Since(start), 3*time.Second; got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		}
	})
}

// An idle store sends each call with its own context.
func TestCoalesceIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(server)
		st := store.Coalesce(s)
		for _, key := range []string{"a", "b"} {
			var wg sync.WaitGroup
			ask(t, &wg, t.Context(), st, key, nil)
			wg.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		ask(t, &wg, ctx, st, "c", context.DeadlineExceeded)
		wg.Wait()
		s.check(t, "a", "b", "c")
	})
}

// A call whose context ends while it waits is not sent. One whose context ends later
// returns at once, and the others get their answers.
func TestCoalesceContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(server)
		st := store.Coalesce(s)
		start := time.Now()
		var wg sync.WaitGroup
		within := func(d time.Duration) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			t.Cleanup(cancel)
			return ctx
		}
		ask(t, &wg, t.Context(), st, "first", nil)
		synctest.Wait()
		ask(t, &wg, within(500*time.Millisecond), st, "waits", context.DeadlineExceeded)
		synctest.Wait()
		ask(t, &wg, within(1500*time.Millisecond), st, "sent", context.DeadlineExceeded)
		synctest.Wait()
		ask(t, &wg, within(5*time.Second), st, "patient", nil)
		time.Sleep(1600 * time.Millisecond)
		synctest.Wait()
		s.check(t, "first", "sent patient")
		if got, want := s.deadline, start.Add(5*time.Second); !got.Equal(want) {
			t.Errorf("got the deadline %v of the batch, want the latest, %v", got, want)
		}
		ask(t, &wg, t.Context(), st, "endless", nil)
		synctest.Wait()
		ask(t, &wg, within(5*time.Second), st, "other", nil)
		wg.Wait()
		if !s.deadline.IsZero() {
			t.Errorf("got the deadline %v of a batch in which a call has none", s.deadline)
		}
		s.check(t, "first", "sent patient", "endless other")
	})
}

// A panic of the store in a batch is an error of its calls, and the next calls work.
func TestCoalescePanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{panics: true}
		st := store.Coalesce(s)
		var wg sync.WaitGroup
		ask(t, &wg, t.Context(), st, "a", nil)
		synctest.Wait()
		ask(t, &wg, t.Context(), st, "b", store.ErrScript)
		ask(t, &wg, t.Context(), st, "c", store.ErrScript)
		wg.Wait()
		ask(t, &wg, t.Context(), st, "d", nil)
		wg.Wait()
	})
}

// A store that cannot send calls together is an error that says so.
func TestCoalesceUnfit(t *testing.T) {
	for want, inner := range map[string]store.Store{
		"the store is nil": nil,
		"*store_test.Table is not a Batcher: it cannot send calls together, so use it without Coalesce": new(Table),
	} {
		st := store.Coalesce(inner)
		_, err := st.Eval(t.Context(), noop, []string{"a"}, nil, nil)
		_, err2 := st.MGet(t.Context(), []string{"a"}, nil)
		_, err3 := st.Time(t.Context())
		calls := make([]store.Eval, 2)
		st.(store.Batcher).EvalBatch(t.Context(), calls)
		for _, err := range []error{err, err2, err3, calls[0].Err, calls[1].Err, st.(store.Checker).Check()} {
			if err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
	}
}

// While a trip lasts, the calls whose callers have left are not kept.
func TestCoalesceForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.Coalesce(new(silent))
		forever, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		ask := func(ctx context.Context, key string) {
			wg.Go(func() {
				if _, err := st.Eval(ctx, noop, []string{key}, nil, nil); err == nil {
					t.Error("a call was answered")
				}
			})
		}
		for range 20 { // two trips are under way, and calls wait
			ask(forever, "k")
			synctest.Wait()
		}
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			for range 100 {
				ask(ctx, strings.Repeat("k", 10_000))
			}
			<-ctx.Done()
			cancel()
			synctest.Wait()
		}
		if grown := heap() - before; grown > 4<<20 {
			t.Errorf("2,000 calls of 10 kB, whose callers have left, take %d kB", grown>>10)
		}
		stop()
		wg.Wait()
	})
}

// A silent is a server that answers no call before its context ends.
type silent struct{ server }

func (*silent) Eval(ctx context.Context, _ *store.Script, _ []string, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	<-ctx.Done()
	return reply, ctx.Err()
}

func (*silent) EvalBatch(ctx context.Context, calls []store.Eval) {
	<-ctx.Done()
	for i := range calls {
		calls[i].Err = ctx.Err()
	}
}
