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

// A server is a store whose calls take a second. It logs each trip: when it began, and its
// keys. A key can say what the server does.
type server struct {
	mu    sync.Mutex
	start time.Time
	trips []string
	batch context.Context // of the last batch
	unfit error
}

func (s *server) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	calls := []store.Eval{{Script: script, Keys: keys, Args: args, Reply: reply}}
	s.trip(ctx, calls, "")
	return calls[0].Reply, calls[0].Err
}

func (s *server) EvalBatch(ctx context.Context, calls []store.Eval) {
	s.batch = ctx
	switch deadline, ok := ctx.Deadline(); {
	case ok:
		s.trip(ctx, calls, " by "+deadline.Sub(s.start).String())
	case ctx.Done() == nil:
		s.trip(ctx, calls, " without end")
	default:
		s.trip(ctx, calls, "")
	}
}

func (s *server) trip(ctx context.Context, calls []store.Eval, ends string) {
	keys := func() (text string) {
		for _, c := range calls {
			text += " " + c.Keys[0]
		}
		return text
	}
	sent, after := keys(), time.After(time.Second)
	s.mu.Lock()
	s.trips = append(s.trips, time.Since(s.start).String()+sent+ends)
	s.mu.Unlock()
	switch calls[0].Keys[0] {
	case "panic":
		panic("lost the plot")
	case "exit":
		runtime.Goexit()
	case "silent":
		after = nil
	}
	select {
	case <-after:
	case <-ctx.Done():
	}
	if got := keys(); got != sent {
		s.trips = append(s.trips, "the keys became"+got)
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

func (s *server) MGet(context.Context, []string, []store.Value) ([]store.Value, error) {
	return nil, nil
}
func (s *server) Time(context.Context) (time.Time, error) { return time.Unix(1, 0), nil }
func (s *server) Check() error                            { return s.unfit }

var (
	noop     = store.NewScript("noop", "return 1", nil)
	errPanic = errors.New("the call panicked")
)

// An ask is one call for each of some keys, in a trace.
type ask struct {
	at             time.Duration
	keys           string
	within, leaves time.Duration // after at: the deadline of the context, or the time of its cancellation
	ctx            func(context.Context) context.Context
	want           error
}

// call calls Eval of st for key, with an argument of its own, and checks the answer.
func (a ask) call(t *testing.T, st store.Store, key string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if a.within > 0 {
		ctx, cancel = context.WithTimeout(ctx, a.within)
		defer cancel()
	}
	if a.leaves > 0 {
		time.AfterFunc(a.leaves, cancel)
	}
	if a.ctx != nil {
		ctx = a.ctx(ctx)
	}
	keys, args, start := []string{key}, []store.Arg{store.StringArg("arg of " + key)}, time.Now()
	before := []store.Value{store.IntegerValue(7)}
	want := append(before, store.BulkValue(key), store.BulkValue("arg of "+key))
	reply, err := func() (reply []store.Value, err error) {
		defer func() {
			if recover() != nil {
				reply, err = before, errPanic
			}
		}()
		return st.Eval(ctx, noop, keys, args, before)
	}()
	keys[0], args[0] = "reused", store.StringArg("reused") // they are the caller's again
	if a.want != nil {
		want = before
	}
	if !errors.Is(err, a.want) || !slices.Equal(reply, want) {
		t.Errorf("%s: got %v, %v, want %v, %v", key, reply, err, want, a.want)
	}
	if ends := a.within + a.leaves; errors.Is(a.want, context.Canceled) || errors.Is(a.want, context.DeadlineExceeded) {
		if took := time.Since(start); took != ends {
			t.Errorf("%s: returned after %v, want when the context ended, after %v", key, took, ends)
		}
	}
}

// A lateDone is a context that has ended, although its Done channel is still open.
type lateDone struct{ context.Context }

func (lateDone) Err() error { return context.Canceled }

// A panicky is a context whose Deadline panics, like a nil context.
type panicky struct{ context.Context }

func (panicky) Deadline() (time.Time, bool) { panic("no context") }

// names returns n keys that begin with prefix.
func names(prefix string, n int) (keys string) {
	for i := range n {
		keys += fmt.Sprint(" ", prefix, i)
	}
	return keys[1:]
}

func TestCoalesce(t *testing.T) {
	const ms = time.Millisecond
	late, canceled := context.DeadlineExceeded, context.Canceled
	for _, tt := range []struct {
		name  string
		asks  []ask
		trips []string // when each began, its keys, and how its context ends
		took  time.Duration
	}{
		{"a call goes at once, and those that arrive meanwhile follow together",
			[]ask{{keys: "a b"}, {keys: "bad", want: store.ErrForeign}, {keys: "c d"}, {at: 1500 * ms, keys: "e"}},
			[]string{"0s a", "1s b bad c d", "2s e"}, 3000 * ms},
		{"an idle store sends each call with its own context",
			[]ask{{keys: "a"}, {at: 2000 * ms, keys: "b"}, {at: 4000 * ms, keys: "c", within: ms, want: late}},
			[]string{"0s a", "2s b", "4s c"}, 4001 * ms},
		{"15 calls wait", []ask{{keys: "a"}, {keys: names("b", 15)}}, []string{"0s a", "1s " + names("b", 15)}, 2000 * ms},
		{"16 calls go beside the call under way, and a third trip waits for one of both",
			[]ask{{keys: "a"}, {keys: names("b", 16)}, {keys: names("c", 20)}, {at: 1000 * ms, keys: names("d", 15)}},
			[]string{"0s a", "0s " + names("b", 16), "1s " + names("c", 20), "2s " + names("d", 15)}, 3000 * ms},
		{"a call whose context ends while it waits is not sent, and a batch ends at the latest deadline",
			[]ask{{keys: "a"}, {keys: "waits", within: 500 * ms, want: late}, {keys: "sent", within: 1500 * ms, want: late}, {keys: "patient", within: 5000 * ms}},
			[]string{"0s a", "1s sent patient by 5s"}, 2000 * ms},
		{"a call without a deadline", []ask{{keys: "a"}, {keys: "b"}, {keys: "c", within: 5000 * ms}}, []string{"0s a", "1s b c"}, 2000 * ms},
		{"a call whose context has no end",
			[]ask{{keys: "a"}, {keys: "b", ctx: func(context.Context) context.Context { return context.Background() }}, {keys: "c"}},
			[]string{"0s a", "1s b c without end"}, 2000 * ms},
		{"a context that has ended, which its caller has not seen yet",
			[]ask{{keys: "a"}, {keys: "ended", leaves: 1500 * ms, want: canceled, ctx: func(ctx context.Context) context.Context { return lateDone{ctx} }}, {keys: "b"}},
			[]string{"0s a", "1s b"}, 2000 * ms},
		{"if all callers of a batch have left, the next calls do not wait for it",
			[]ask{{keys: "a"}, {keys: "b c", leaves: 1200 * ms, want: canceled}, {keys: "gone", leaves: 500 * ms, want: canceled}, {at: 1100 * ms, keys: "next"}},
			[]string{"0s a", "1s b c", "1.2s next"}, 2200 * ms},
		{"a caller that leaves does not end the batch of the others",
			[]ask{{keys: "a"}, {keys: "b", leaves: 1200 * ms, want: canceled}, {keys: "c"}},
			[]string{"0s a", "1s b c"}, 2000 * ms},
		{"a panic of the store in a batch is an error of its calls",
			[]ask{{keys: "a"}, {keys: "panic b", want: store.ErrScript}, {at: 1500 * ms, keys: "c"}},
			[]string{"0s a", "1s panic b", "1.5s c"}, 2500 * ms},
		{"a Goexit of the store", []ask{{keys: "a"}, {keys: "exit b", want: store.ErrScript}, {at: 1500 * ms, keys: "c"}},
			[]string{"0s a", "1s exit b", "1.5s c"}, 2500 * ms},
		{"a panic of a caller's context",
			[]ask{{keys: "a"}, {keys: "b", want: errPanic, ctx: func(ctx context.Context) context.Context { return panicky{ctx} }}, {keys: "c"}},
			[]string{"0s a", "1s c"}, 2000 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(server)
				st := store.Coalesce(s)
				for range 3 { // later rounds reuse what the first made
					s.trips, s.start = nil, time.Now()
					var wg sync.WaitGroup
					for _, a := range tt.asks {
						time.Sleep(time.Until(s.start.Add(a.at)))
						for _, key := range strings.Fields(a.keys) {
							synctest.Wait()
							wg.Go(func() { a.call(t, st, key) })
						}
					}
					wg.Wait()
					synctest.Wait()
					if took := time.Since(s.start); took != tt.took || !slices.Equal(s.trips, tt.trips) {
						t.Errorf("got the trips %q in %v\nwant %q in %v", s.trips, took, tt.trips, tt.took)
					}
					if s.batch != nil && s.batch.Done() != nil && s.batch.Err() == nil {
						t.Error("the context of the last batch has not ended")
					}
				}
			})
		})
	}
}

// A caller whose context ends when its answer arrives does not end the next batch.
func TestCoalesceLate(t *testing.T) {
	for range 300 { // the caller sees either first
		synctest.Test(t, func(t *testing.T) {
			st := store.Coalesce(new(server))
			var wg sync.WaitGroup
			wg.Go(func() { ask{}.call(t, st, "a") })
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(2*time.Second, cancel)
			wg.Go(func() { _, _ = st.Eval(ctx, noop, []string{"b"}, []store.Arg{{}}, nil) })
			time.Sleep(1500 * time.Millisecond)
			ask{}.call(t, st, "c")
			wg.Wait()
		})
	}
}

// A store that can never work says why.
func TestCoalesceUnfit(t *testing.T) {
	for want, inner := range map[string]store.Store{
		"the store is nil": nil,
		"no client":        &server{unfit: errors.New("no client")},
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
		st := store.Coalesce(new(server))
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
			ask(forever, "silent")
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
