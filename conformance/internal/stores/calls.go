package stores

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

func checkCancelled(t *suite.T) {
	cancelled, fail := context.WithCancelCause(t.Ctx)
	fail(errors.New("cancelled on purpose"))
	late, cancel := context.WithDeadline(t.Ctx, time.Now().Add(-time.Second))
	defer cancel()
	keys := t.Keys("a", 2)
	for _, c := range []struct {
		ctx  context.Context
		want error
	}{{cancelled, context.Canceled}, {late, context.DeadlineExceeded}} {
		for _, script := range []*store.Script{scripts.Counter, scripts.Look} {
			before := []store.Value{store.IntegerValue(5)}
			got, err := t.Store.Eval(c.ctx, script, keys, []store.Arg{store.IntArg(2)}, before)
			if !errors.Is(err, c.want) || errors.Is(err, store.ErrUnavailable) || !slices.Equal(got, before) {
				t.Errorf("Eval of %s, whose context is done: got reply %v and error %v, want the unchanged %v, and %v without ErrUnavailable", script.Name(), got, err, before, c.want)
			}
		}
		before := []store.Value{store.IntegerValue(5)}
		if got, err := t.Store.MGet(c.ctx, keys, before); !errors.Is(err, c.want) || errors.Is(err, store.ErrUnavailable) || !slices.Equal(got, before) {
			t.Errorf("MGet, whose context is done: got values %v and error %v, want the unchanged %v, and %v without ErrUnavailable", got, err, before, c.want)
		}
		if _, err := t.Store.Time(c.ctx); !errors.Is(err, c.want) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Time, whose context is done: got error %v, want %v without ErrUnavailable", err, c.want)
		}
	}
	t.Holds(store.Value{}, keys, "a call whose context was done, which must not run")
	for try := 1; waits(t, t.Store, t.Keys("wait"+strconv.Itoa(try), 2), try == 8); try++ {
	}
	if t.HasPeer() {
		peer := t.Peer()
		for try := 1; waits(t, peer, t.Keys("peer"+strconv.Itoa(try), 2), try == 8); try++ {
		}
	}
}

// waits lets a call of st wait for the locks of keys until its context is done, if the store runs
// Go forms. A store may look at the context only when it has the locks. If the call returns
// late without them, waits reports it, because the machine can be busy, or fails.
func waits(t *suite.T, st store.Store, keys []string, last bool) (late bool) {
	const wait, hold, most = 100 * time.Millisecond, time.Second, 200 * time.Millisecond
	locked, released := make(chan struct{}, 9), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	var wg sync.WaitGroup
	defer wg.Wait()
	defer release()
	t.Goes(&wg, func() {
		defer close(locked)
		t.Eval(scripts.Counter.WithForm(func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
			locked <- struct{}{}
			<-released
			return scripts.Counter.GoForm()(tx, args, reply)
		}), keys)
	})
	if _, ok := <-locked; !ok { // the store runs the Lua
		return false
	}
	if err := t.DeadlineError(); err != nil && !t.Failed() {
		t.Errorf("CheckDeadline returned an error, and this check must be able to rely on deadlines: test the store with the settings that the error asks for, or correct CheckDeadline: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Ctx, wait)
	defer cancel()
	defer context.AfterFunc(ctx, func() { suite.GoesOn(released, hold); release() })()
	start := time.Now()
	_, err := st.Eval(ctx, scripts.Counter, keys, nil, nil)
	took := time.Since(start)
	select {
	case <-released:
		if err == nil {
			t.Errorf("a call with a timeout of %v waited for a lock for %v, and then ran", wait, took)
		}
	default:
		if late = took > wait+most; late && last {
			t.Errorf("a call with a timeout of %v waited for a lock for %v, want at most %v more", wait, took, most)
		}
	}
	if err != nil && (!errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable)) {
		t.Errorf("a call whose context ended while it waited for a lock: got error %v, want %v without ErrUnavailable", err, context.DeadlineExceeded)
	}
	release()
	wg.Wait()
	if n := t.Served(st, keys, "the context of a call ended while it waited for a lock")[0].Int(); err == nil && n != 2 {
		t.Errorf("two calls that each add 1 to a key returned without an error, and the key holds %d, want 2", n)
	}
	return late && !last
}

// checkClosed calls a store after its test has ended. If New opens something and closes it
// when the test ends, the store fails.
func checkClosed(t *suite.T) {
	st := t.Closed()
	if st == nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.Ctx, time.Minute)
	defer cancel()
	keys, failed := t.Keys("a", 2), false
	look := func(name string, err error) {
		failed = failed || err != nil
		if err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: got error %v, want an ErrUnavailable", name, err)
		}
	}
	ask := func() {
		for _, script := range []*store.Script{scripts.Counter, scripts.Look} {
			_, err := st.Eval(ctx, script, keys, []store.Arg{store.IntArg(2)}, nil)
			look("Eval of "+script.Name(), err)
		}
		_, err := st.MGet(ctx, keys, nil)
		look("MGet", err)
		_, err = st.Time(ctx)
		look("Time", err)
		if b, ok := st.(store.Batcher); ok {
			calls := []store.Eval{{Script: scripts.Counter, Keys: keys}}
			b.EvalBatch(ctx, calls)
			look("EvalBatch", calls[0].Err)
		}
	}
	ask()
	for i := 0; !failed && i < 50; i++ { // some clients close their connections in a goroutine
		time.Sleep(10 * time.Millisecond)
		ask()
	}
	if !failed {
		t.Skipf("store works on after the cleanup functions of Backend.New")
	}
}

func checkTime(t *suite.T) {
	fine, fineScript := false, false
	last := t.Time()
	for range 20 {
		reply := t.Eval(scripts.Moments, t.Keys("a", 1))
		script, now := reply[0].Int(), t.Time()
		if reply[1] != reply[0] {
			t.Errorf("the clock of a script showed %d µs, and then in the same call %d µs, want one time for each call", script, reply[1].Int())
		}
		if script < last.Add(-suite.Skew).UnixMicro() || script > now.Add(suite.Skew).UnixMicro() {
			t.Errorf("Time returned %d µs, then the clock of a script showed %d µs, and then Time returned %d µs: want one clock, up to %v", last.UnixMicro(), script, now.UnixMicro(), suite.Skew)
		}
		fine, fineScript = fine || now.UnixMicro()%1000 != 0, fineScript || script%1000 != 0
		last = now
	}
	if !fine {
		t.Errorf("Time returned whole milliseconds in 20 calls, the last time %d µs, want microseconds or finer", last.UnixMicro())
	}
	if !fineScript {
		t.Errorf("the clock of scripts showed whole milliseconds in 20 calls, want microseconds")
	}
	if off := time.Since(last).Abs(); off > 10*time.Minute { // a clock in another time zone is wrong
		t.Errorf("Time returned %v, and it is %v here: want the real time, in the same time zone", last, time.Now())
	}
	moves(t)
}

// moves checks that each call reads the clock. A call that began some time after another
// had ended must have a time that is later by as much. A clock can be set back, so there
// are three tries.
func moves(t *suite.T) {
	const most = 500 // µs
	var late, passed, moved int64
	for try := 0; try < 3; try++ {
		start := time.Now()
		since := func() int64 { return time.Since(start).Microseconds() }
		late = 0
		var first, ended int64 // the time and the end of the call that was latest ahead
		for n := 0; n < 10 || since() < 20_000; n++ {
			begin := since()
			now := t.Look(t.Keys("a", 1)...)[1].Int()
			end := since()
			if lag := begin - ended - (now - first); n > 0 && lag > late {
				late, passed, moved = lag, begin-ended, now-first
			}
			if n == 0 || now-end > first-ended {
				first, ended = now, end
			}
		}
		if late <= most {
			return
		}
	}
	t.Errorf("a call began %d µs after another had ended, and the time of its script was only %d µs later, want at most %d µs less: the clock is not read in each call, or is a rounded or a cached one", passed, moved, most)
}

func checkBorrowed(t *suite.T) {
	own, other := t.Borrows()
	if other {
		t.Fatalf("BorrowsStrings returned true for another store, which embeds this one: it must return true only for the store itself, because the other can keep strings")
	}
	if !own {
		t.Skipf("store does not borrow strings")
	}
	// The keys point into one buffer, which is overwritten after each call.
	buf, sets := make([]byte, 0, 100), t.Keys("set", 1)
	for i := range 50 {
		buf = append(buf[:0], t.Key("a", strconv.Itoa(1000+i))...)
		t.Eval(scripts.Put, []string{borrowed(buf)}, scripts.LongMillis, store.IntArg(int64(i)))
		t.Change(sets[0], scripts.SetChange{Add: store.Member{Text: borrowed(buf)}})
	}
	t.Equal(t.Eval(scripts.Count, sets)[0].Int(), int64(50), "a set got 50 members, whose texts were in a buffer that was overwritten after each call: it has %d, want %d")
	for i := range 50 {
		t.Holds(store.BulkValue("p1 "+strconv.Itoa(i)), []string{t.Key("a", strconv.Itoa(1000+i))}, "the name of key %d was in a buffer that was overwritten after the call", i)
	}
}

// borrowed returns a string that shares memory with b.
func borrowed(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func checkScriptLoss(t *suite.T) {
	keys := t.Keys("a", 2)
	for i := range int64(6) {
		if i%2 == 1 {
			t.DropScripts()
		}
		t.Equal(t.Eval(scripts.Counter, keys)[0].Int(), i, "a script that counts its calls, where the server lost all scripts before every second call: the call read %d, want %d: a step was lost or ran twice")
	}
}
