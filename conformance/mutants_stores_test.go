package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/store"
)

// storeMutants are mistakes of a store in what a script is told and replies, and in who runs when.
// conformance/integration has more of them, in the code of store/postgres.
var storeMutants = []mutant{
	{"nil becomes empty", "Store/Reply", nil, replies(named("kinds"), func(_ call, reply []store.Value) {
		for i, v := range reply {
			if v.Kind() == store.Nil {
				reply[i] = store.BulkValue("")
			}
		}
	})},
	{"reply is not appended to", "Store/Reply", nil, sends(named("kinds"), func(c *call) { c.reply = nil })},
	{"arguments end at a NUL", "Store/Args", []string{"Store/Set", "MetadataWindow/Same", "Concurrency/", "/Mix"}, sends(every, func(c *call) {
		for i, a := range c.args {
			if before, _, cut := strings.Cut(a.String(), "\x00"); cut {
				c.args[i] = store.StringArg(before)
			}
		}
	})},
	{"replies are swapped", "Store/OwnReply", nil, mutation{eval: func(c call) ([]store.Value, error) {
		got, err := c.right()
		if c.s != scripts.Echo || len(c.args) != 1 || err != nil {
			return got, err
		}
		c.f.mu.Lock()
		defer c.f.mu.Unlock()
		if last, ok := c.f.memo.(store.Value); ok {
			c.f.memo, got[len(got)-1] = got[len(got)-1], last
			return got, nil
		}
		c.f.memo = got[len(got)-1]
		return got, nil
	}}},
	{"Lua is run wrongly", "Store/GoForm", nil, replies(is(scripts.LuaOnly), func(_ call, reply []store.Value) { reply[0] = store.IntegerValue(2) })},
	{"slots are not checked", "Store/CrossSlot", nil, otherSlots(func([]string) bool { return true })},
	{"slots have no case", "Store/CrossSlot", nil, otherSlots(func(keys []string) bool { return strings.EqualFold(keys[0], keys[1]) })},
	{"the slots of the first and the last key are compared", "Store/CrossSlot", nil, otherSlots(func(keys []string) bool { return store.Slot(keys[0]) == store.Slot(keys[len(keys)-1]) })},

	{"steps interleave", "Store/Atomic", []string{"Store/Peer"}, torn("counter")},
	{"the write of a step is lost", "Store/Atomic", []string{"Store/Peer", "Store/Interrupted", "Store/ScriptLoss"}, sends(named("counter"), func(c *call) {
		c.f.mu.Lock()
		defer c.f.mu.Unlock()
		n, _ := c.f.memo.(int)
		if form := c.s.GoForm(); n%10 == 5 {
			c.s = c.s.WithForm(func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
				return form(writeLater{tx, new([]func(store.Tx))}, args, reply)
			})
		}
		c.f.memo = n + 1
	})},
	{"a step reads one key before the step of another call, and one key after it", "Store/Atomic", []string{"Store/Peer", "Store/Interrupted", "Store/ScriptLoss"}, replies(named("counter"), func(_ call, reply []store.Value) {
		if n := reply[0].Int(); n%10 == 5 {
			reply[0] = store.IntegerValue(n - 1)
		}
	})},
	{"the clock is read before the locks", "Store/Atomic", []string{"Store/Peer"}, early(named("counter"))},
	{"a read-only script's clock is read before its snapshot", "Store/Atomic", []string{"Store/Peer"}, early(named("look"))},
	{"steps run twice at times", "Store/Atomic", []string{"Store/Peer", "Store/Interrupted"}, mutation{eval: func(c call) ([]store.Value, error) {
		if got, err := c.right(); c.s.Name() != "counter" || err != nil || got[len(got)-3].Int()%100 != 50 {
			return got, err
		}
		return c.right()
	}}},
	{"a read-only script reads its keys one after the other", "Store/Atomic", []string{"Store/Expiry", "Store/Peer"}, mutation{eval: func(c call) ([]store.Value, error) {
		if c.s != scripts.Look || len(c.keys) != 2 {
			return c.right()
		}
		var now store.Value
		for _, key := range c.keys {
			got, err := call{c.f, c.ctx, c.s, []string{key}, []store.Arg{store.IntArg(1)}, nil}.right()
			if err != nil {
				return c.reply, err
			}
			c.reply, now = append(c.reply, got[0]), got[1]
			time.Sleep(50 * time.Microsecond)
		}
		return append(c.reply, now), nil
	}}},
	{"a read-only script reads what a copy holds", "Store/Atomic", []string{"Store/Peer"}, replies(named("look"), func(c call, reply []store.Value) {
		if len(c.keys) != 2 {
			return
		}
		c.f.mu.Lock()
		defer c.f.mu.Unlock()
		late, _ := c.f.memo.([]store.Value)
		if c.f.memo = slices.Clone(reply); late != nil {
			copy(reply, late)
		}
	})},
	{"a key that was deleted is not locked", "Store/Atomic", []string{"Store/Peer"}, mutation{eval: func(c call) ([]store.Value, error) {
		if c.s != scripts.CounterThree || len(c.args) == 0 {
			return c.right()
		}
		return torn("counter").eval(c)
	}}},
	{"MGet reads key by key", "Store/Atomic", []string{"Store/Peer"}, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) (_ []store.Value, err error) {
		for i := range keys {
			if values, err = f.Store.MGet(ctx, keys[i:i+1], values); err != nil {
				return values, err
			}
			if len(keys) == 2 {
				time.Sleep(100 * time.Microsecond)
			}
		}
		return values, nil
	}}},
	{"concurrent batches lose updates", "Store/Atomic", []string{"Store/Peer"}, batches(func(c call, e *store.Eval) { e.Reply, e.Err = torn("counter").eval(c) })},
	{"a store locks only its own callers", "Store/Peer", nil, mutation{peer: true}},

	{"a failed script is an outage", "Store/ScriptError", []string{"Store/Panic"}, as(every, store.ErrScript, store.ErrUnavailable)},
	{"the error of a form is returned as it is", "Store/ScriptError", []string{"Batch/Independent", "Batch/ScriptLoss"},
		errs(named("broken"), func(call, error) error { return errors.New("broken on purpose") })},
	{"a failed script spoils the reply", "Store/ScriptError", []string{"Store/Panic"}, mutation{eval: func(c call) ([]store.Value, error) {
		got, err := c.right()
		if errors.Is(err, store.ErrScript) {
			got = nil
		}
		return got, err
	}}},
	{"a form that failed runs again", "Store/ScriptError", nil, mutation{eval: func(c call) ([]store.Value, error) {
		got, err := c.right()
		if errors.Is(err, store.ErrUnavailable) {
			return c.right()
		}
		return got, err
	}}},
	{"an outage that a form reports is a failed script", "Store/ScriptError", nil, as(every, store.ErrUnavailable, store.ErrScript)},
	{"a panic leaves the lock", "Store/Panic", nil, locking(func(c call) bool { return c.s == scripts.Panics })},
	{"a panic is swallowed", "Store/Panic", nil, errs(named("panics"), func(call, error) error { return nil })},
	{"a panic passes through", "Store/Panic", nil, errs(named("panics"), func(_ call, err error) error { panic(err) })},
	{"a panic is written", "Store/Panic", nil, sends(named("panics"), func(c *call) { _, _ = c.f.Store.Eval(c.ctx, scripts.Counter, c.keys, nil, nil) })},
	{"a panic in a batch is swallowed", "Store/Panic", nil, batches(func(c call, e *store.Eval) {
		if e.Reply, e.Err = c.right(); e.Script == scripts.Panics {
			e.Err = nil
		}
	})},
	{"a lost script runs twice", "Store/ScriptLoss", nil, mutation{eval: func(c call) ([]store.Value, error) {
		if c.f.scriptsLost() {
			if _, err := c.right(); err != nil {
				return c.reply, err
			}
		}
		return c.right()
	}}},

	{"contexts are ignored", "Store/Cancelled", nil, sends(every, func(c *call) { c.ctx = context.WithoutCancel(c.ctx) })},
	{"scripts that only read ignore contexts", "Store/Cancelled", nil, sends((*store.Script).ReadOnly, func(c *call) { c.ctx = context.WithoutCancel(c.ctx) })},
	{"a context is ignored during the wait for a lock", "Store/Cancelled", nil, sends(every, func(c *call) {
		if c.ctx.Err() == nil {
			c.ctx = context.WithoutCancel(c.ctx)
		}
	})},
	{"a cancellation is an outage", "Store/Cancelled", []string{"Limiter/Cancel"}, ended(func(context.Context) error { return store.ErrUnavailable })},
	{"a cancellation has its cause as its error", "Store/Cancelled", nil, ended(context.Cause)},
	{"a call waits longer than its context", "Store/Cancelled", nil, mutation{eval: func(c call) ([]store.Value, error) {
		done := make(chan struct{})
		own := c
		own.keys, own.args = slices.Clone(c.keys), slices.Clone(c.args)
		var got []store.Value
		var err error
		go func() {
			defer close(done)
			got, err = own.right()
		}()
		select {
		case <-done:
			return got, err
		case <-c.ctx.Done():
			time.Sleep(500 * time.Millisecond)
			return c.reply, c.ctx.Err()
		}
	}}},
	{"a call that waited in vain gets the lock later, and keeps it", "Store/Cancelled", nil, mutation{eval: func(c call) ([]store.Value, error) {
		if err := c.ctx.Err(); err != nil {
			return c.reply, err
		}
		lock, got := c.f.lockOf(), make(chan struct{})
		go func() {
			lock <- struct{}{}
			close(got)
		}()
		select {
		case <-got:
		case <-c.ctx.Done():
			return c.reply, c.ctx.Err()
		}
		defer func() { <-lock }()
		return c.right()
	}}},
	{"MGet loses the values before its own if it fails", "Store/Cancelled", nil, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		got, err := f.Store.MGet(ctx, keys, values)
		if err != nil {
			return nil, err
		}
		return got, nil
	}}},
	{"CheckDeadline always returns an error", "Store/Cancelled", nil, mutation{deadline: errors.New("the client ignores deadlines: set Timeout")}},
	{"a transaction is ended with the caller's context", "Store/Interrupted", []string{"Store/Cancelled"}, locking(func(c call) bool { return c.ctx.Err() != nil })},
	{"the transaction of a reader is ended with the caller's context", "Store/Interrupted", nil, locking(func(c call) bool { return c.ctx.Err() != nil && c.s.ReadOnly() })},
	{"a commit whose context ended is not made, and returns no error", "Store/Interrupted", nil, replies(named("counter"), func(c call, _ []store.Value) {
		if c.ctx.Err() != nil {
			clean(c.f, context.WithoutCancel(c.ctx), c.keys...)
		}
	})},
	{"an error of a form is lost if the context ended", "Store/Interrupted", nil, errs(every, func(c call, err error) error {
		if errors.Is(err, store.ErrScript) && c.ctx.Err() != nil {
			return nil
		}
		return err
	})},

	{"Time is another clock", "Store/Time", []string{"Store/Expiry", "/OwnClock", "Pause/TTL"}, mutation{time: func(f *fake, ctx context.Context) (time.Time, error) {
		now, err := f.Store.Time(ctx)
		return now.Add(-time.Second), err
	}}},
	{"the clock is in another time zone", "Store/Time", nil, mutation{
		time: func(f *fake, ctx context.Context) (time.Time, error) {
			now, err := f.Store.Time(ctx)
			return now.Add(-5 * time.Hour), err
		},
		tx: clocks(every, func(tx store.Tx) int64 { return tx.Now() - (5 * time.Hour).Microseconds() }).tx,
	}},
	{"the clock of scripts has milliseconds", "Store/Time", nil, clocks(named("moments"), func(tx store.Tx) int64 { return tx.Now() / 1000 * 1000 })},
	{"the clock moves within a step", "Store/Time", nil, clocks(named("moments"), func(store.Tx) int64 { return time.Now().UnixMicro() })},
	{"the clock of scripts is cached for a millisecond", "Store/Time", []string{"Store/Atomic", "Store/Peer", "Store/Expiry"},
		clocks(named("look"), func(tx store.Tx) int64 { return tx.Now()/1000*1000 + 1 })},
	{"every store borrows strings", "Store/Borrowed", nil, mutation{lends: true}},
	{"keys are kept", "Store/Borrowed", nil, mutation{
		eval: sends(named("put"), func(c *call) {
			kept, _ := c.f.memo.([]string)
			c.f.memo = append(kept, c.keys[0]) // where a copy is due
		}).eval,
		mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
			if kept, _ := f.memo.([]string); len(keys) == 1 && strings.Contains(keys[0], ":{a}:10") && !slices.Contains(kept, keys[0]) {
				return append(values, store.Value{}), nil
			}
			return f.Store.MGet(ctx, keys, values)
		},
	}},
	{"texts are kept", "Store/Borrowed", nil, mutation{eval: func(c call) ([]store.Value, error) {
		kept, ok := c.f.memo.([]string)
		if c.s == scripts.SetStep && strings.Contains(c.args[2].String(), ":{a}:10") {
			c.f.memo = append(kept, c.args[2].String()) // where a copy is due
		}
		got, err := c.right()
		if ok && c.s == scripts.Count && err == nil {
			got[len(got)-1] = store.IntegerValue(int64(len(slices.Compact(slices.Sorted(slices.Values(kept))))))
		}
		return got, err
	}}},
}

// closedMutants return errors of a closed store, of one method, that are not marked.
func closedMutants() (list []mutant) {
	for _, method := range []string{"Eval", "MGet", "Time", "EvalBatch"} {
		list = append(list, mutant{method + " of a closed database is not unavailable", "Store/Closed", nil, mutation{shut: func(m string) error {
			if m == method {
				return errors.New("database is closed")
			}
			return store.ErrUnavailable
		}}})
	}
	return list
}

var batchMutants = []mutant{
	{"a failed call ends the batch", "Batch/Independent", []string{"Batch/ScriptLoss", "Limiter/Many", "Store/Panic"}, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		var err error
		for i := range calls {
			e := &calls[i]
			if err == nil {
				e.Reply, err = f.of(ctx, e).right()
			}
			e.Err = err
		}
	}}},
	{"calls of a batch above 100 are ignored", "Batch/Independent", nil, firstCalls(100)},
	{"calls of a batch above 1,000 are ignored", "Batch/Independent", nil, firstCalls(1000)},
	{"an earlier Err of a call is kept", "Batch/Independent", []string{"Batch/ScriptLoss"}, batches(func(c call, e *store.Eval) {
		var err error
		if e.Reply, err = c.right(); err != nil {
			e.Err = err
		}
	})},
	{"calls of a batch are grouped by their joined keys", "Batch/Independent", nil, grouped(func(keys []string) string { return strings.Join(keys, "") })},
	{"calls of a batch are grouped by their first keys", "Batch/Independent", nil, grouped(func(keys []string) string { return strings.Join(keys[:min(len(keys), 1)], "") })},
	{"the replies of a batch are not appended", "Batch/Independent", []string{"Batch/ScriptLoss", "Store/Panic"}, batches(func(c call, e *store.Eval) {
		c.reply = slices.Clip(c.reply[:0])
		e.Reply, e.Err = c.right()
	})},
	{"a batch is not committed", "Batch/Independent", []string{"Store/Atomic", "Store/Peer", "Batch/ScriptLoss", "Store/Panic"}, miscounting(undo)},
	{"a failed call undoes its batch", "Batch/Independent", []string{"Batch/ScriptLoss"}, miscounting(func(f *fake, ctx context.Context, calls []store.Eval) {
		if slices.ContainsFunc(calls, func(e store.Eval) bool { return e.Script == scripts.Broken }) {
			undo(f, ctx, calls)
		}
	})},
	{"a batch whose last call fails is not committed", "Batch/Independent", nil, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		if f.rightBatch(ctx, calls); len(calls) > 0 && calls[len(calls)-1].Script == scripts.Broken {
			undo(f, ctx, calls)
		}
	}}},
	{"the calls of a batch lose each other's updates", "Batch/Independent", []string{"Batch/ScriptLoss"}, miscounting(func(_ *fake, _ context.Context, calls []store.Eval) {
		first := map[string][]store.Value{}
		for i, e := range calls {
			if e.Err != nil {
				continue
			}
			if reply, ok := first[e.Keys[0]]; ok {
				calls[i].Reply = reply
			}
			first[e.Keys[0]] = calls[i].Reply
		}
	})},
	{"a failed call of a batch is written", "Batch/Independent", []string{"Batch/ScriptLoss"}, miscounting(func(f *fake, ctx context.Context, calls []store.Eval) {
		for _, e := range calls {
			if e.Script == scripts.Broken {
				_, _ = f.Store.Eval(ctx, scripts.Wide, e.Keys[:1], []store.Arg{store.IntArg(0)}, nil)
			}
		}
	})},
	{"a batch has no second try", "Batch/ScriptLoss", nil, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		lost := f.scriptsLost()
		for i := range calls {
			e := &calls[i]
			if e.Err = fmt.Errorf("%w: NOSCRIPT", store.ErrScript); !lost {
				e.Reply, e.Err = f.of(ctx, e).right()
			}
		}
	}}},
	{"a batch ignores its context", "Batch/Cancelled", nil, batches(func(c call, e *store.Eval) {
		c.ctx = context.WithoutCancel(c.ctx)
		e.Reply, e.Err = c.right()
	})},
}

// otherSlots runs scripts.Put even if the slots of its keys differ, if same says so.
func otherSlots(same func(keys []string) bool) mutation {
	return mutation{eval: func(c call) ([]store.Value, error) {
		got, err := c.right()
		if c.s == scripts.Put && errors.Is(err, store.ErrCrossSlot) && same(c.keys) {
			for i := range c.keys {
				one := call{c.f, c.ctx, c.s, c.keys[i : i+1], []store.Arg{c.args[0], c.args[i+1]}, c.reply}
				if got, err = one.right(); err != nil {
					return got, err
				}
			}
		}
		return got, err
	}}
}

// early takes the time of scripts before they run, and lets others pass.
func early(of which) mutation {
	return mutation{eval: func(c call) ([]store.Value, error) {
		now := time.Now().UnixMicro()
		if !of(c.s) || c.s.ReadOnly() && len(c.keys) != 2 {
			return c.right()
		}
		if now%2 == 0 || c.s.ReadOnly() {
			time.Sleep(100 * time.Microsecond)
		}
		got, err := c.right()
		if err == nil {
			got[len(got)-1] = store.IntegerValue(now)
		}
		return got, err
	}}
}

// as returns an error for another.
func as(of which, from, to error) mutation {
	return errs(of, func(_ call, err error) error {
		if errors.Is(err, from) {
			return fmt.Errorf("%w: %v", to, err)
		}
		return err
	})
}

// ended returns another error if a context is done.
func ended(fails func(context.Context) error) mutation {
	return mutation{eval: func(c call) ([]store.Value, error) {
		if c.ctx.Err() != nil {
			return c.reply, fails(c.ctx)
		}
		return c.right()
	}}
}

// locking holds one lock during each call, and leaves it locked if left returns true.
func locking(left func(c call) bool) mutation {
	return mutation{eval: func(c call) ([]store.Value, error) {
		if err := c.ctx.Err(); err != nil {
			return c.reply, err
		}
		lock := c.f.lockOf()
		lock <- struct{}{}
		reply, err := c.right()
		if !left(c) {
			<-lock
		}
		return reply, err
	}}
}

// lockOf returns a lock that a mutant remembers. It is full while a call holds it, and goes to
// the call that waited longest.
func (f *fake) lockOf() chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.memo == nil {
		f.memo = make(chan struct{}, 1)
	}
	return f.memo.(chan struct{})
}

// firstCalls runs only the first n calls of a batch.
func firstCalls(n int) mutation {
	return mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		f.rightBatch(ctx, calls[:min(n, len(calls))])
	}}
}

// grouped runs the calls of a batch that have the same script, and the same keys according to of,
// on the keys of the first of them.
func grouped(of func(keys []string) string) mutation {
	return mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		groups := map[string][]string{}
		for i := range calls {
			c := f.of(ctx, &calls[i])
			name := of(c.keys) + c.s.Name()
			if groups[name] == nil {
				groups[name] = c.keys
			}
			c.keys = groups[name]
			calls[i].Reply, calls[i].Err = c.right()
		}
	}}
}

// miscounting runs a batch, and then, if it counts, wrong.
func miscounting(wrong func(f *fake, ctx context.Context, calls []store.Eval)) mutation {
	return mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		f.rightBatch(ctx, calls)
		if ctx.Err() == nil && slices.ContainsFunc(calls, func(e store.Eval) bool { return e.Script == scripts.Counter }) {
			wrong(f, ctx, calls)
		}
	}}
}

// undo deletes the keys of calls.
func undo(f *fake, ctx context.Context, calls []store.Eval) {
	for _, e := range calls {
		clean(f, ctx, e.Keys...)
	}
}
