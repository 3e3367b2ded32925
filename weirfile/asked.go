package weirfile

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
)

// retryAfter is the time until Options.Override is called again after an error.
const retryAfter = time.Second

// answers keeps the results of Options.Override. recent and older have up to half of
// Options.MaxOverrides each. If recent is full, it becomes older, so that keys that are
// not asked about are dropped.
type answers struct {
	age  time.Duration
	half int

	mu            sync.RWMutex
	recent, older map[asked]*answer
}

// asked is what Options.Override was asked about.
type asked struct {
	policy string
	key    weir.Key
	sum    [sha256.Size]byte // of a long key, in place of the key
}

// longKey is the size of the longest key that is kept, in bytes. Callers choose their
// keys, which would otherwise fill the memory at no cost.
const longKey = 1024

// askedOf returns what a key of the policy is kept under.
func askedOf(policy string, key *weir.Key) asked {
	if key.Size() <= longKey {
		return asked{policy: policy, key: *key}
	}
	h := sha256.New()
	for _, segment := range key.Segments() {
		h.Write(binary.AppendUvarint(nil, uint64(len(segment))))
		h.Write([]byte(segment))
	}
	return asked{policy: policy, sum: [sha256.Size]byte(h.Sum(nil))}
}

// An answer is what is known about a key.
type answer struct {
	state  atomic.Pointer[answerState] // nil at first
	asking chan struct{}               // has an element while a goroutine asks
}

// An answerState is a result of Options.Override.
type answerState struct {
	override Override
	found    bool
	until    time.Time // when the function is called again
	of       *bound    // the policy that change is of
	change   *change   // nil if the key has no override
}

func newAnswers(o *Options) *answers {
	a := &answers{age: o.OverrideAge, half: o.MaxOverrides / 2}
	if a.age == 0 {
		a.age = time.Minute
	}
	if o.MaxOverrides == 0 {
		a.half = 5000
	}
	a.half = max(a.half, 1)
	a.recent = make(map[asked]*answer)
	return a
}

// get returns the answer about a key.
func (a *answers) get(policy string, key *weir.Key) *answer {
	k := askedOf(policy, key)
	a.mu.RLock()
	found := a.recent[k]
	a.mu.RUnlock()
	if found != nil {
		return found
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if found = a.recent[k]; found != nil {
		return found
	}
	if found = a.older[k]; found == nil {
		found = &answer{asking: make(chan struct{}, 1)}
	}
	if len(a.recent) >= a.half {
		a.older, a.recent = a.recent, make(map[asked]*answer)
	}
	k.key = k.key.Clone()
	a.recent[k] = found
	return found
}

// unbind forgets what the answers are bound to.
func (a *answers) unbind() {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, list := range []map[asked]*answer{a.recent, a.older} {
		for _, one := range list {
			if s := one.state.Load(); s != nil {
				free := *s
				free.of, free.change = nil, nil
				one.state.CompareAndSwap(s, &free)
			}
		}
	}
}

// ask returns what is known about the override of a key. It calls Options.Override if the
// result is missing or too old.
func (l *Limits) ask(ctx context.Context, b *bound, key *weir.Key) (*answerState, error) {
	if err := b.base.lim.Check(weir.Request{Key: *key, Op: weir.Peek, Costs: b.ones}, nil); err != nil {
		return nil, err
	}
	a := l.asked.get(b.Name, key)
	s := a.state.Load()
	switch {
	case s == nil:
		select {
		case a.asking <- struct{}{}:
		case <-ctx.Done():
			return &answerState{of: b}, nil // as after an error
		}
		if s = a.state.Load(); s == nil {
			return l.call(ctx, a, b, key), nil
		}
		<-a.asking
	case time.Now().After(s.until):
		select {
		case a.asking <- struct{}{}:
			return l.call(ctx, a, b, key), nil
		default:
		}
	}
	if s.of != b { // the file has changed
		s = l.bindAnswer(*s, b)
		a.state.Store(s)
	}
	return s, nil
}

// call calls Options.Override, keeps the result, and ends asking.
func (l *Limits) call(ctx context.Context, a *answer, b *bound, key *weir.Key) (s *answerState) {
	o, found, err := Override{}, false, errors.New("it panicked")
	defer func() { s = l.keep(ctx, a, b, key, o, found, err) }() // even after a panic
	o, found, err = l.options.Override(ctx, b.Name, *key)
	return s
}

// keep keeps a result of Options.Override.
func (l *Limits) keep(ctx context.Context, a *answer, b *bound, key *weir.Key, o Override, found bool, err error) *answerState {
	s := &answerState{override: o, found: found, until: time.Now().Add(l.asked.age), of: b}
	if err == nil && found {
		err = s.bind(key)
	}
	defer func() {
		<-a.asking
		l.overrideResult(b.Name, err) // OnError may ask again
	}()
	if err == nil {
		a.state.Store(s)
		return s
	}
	old := a.state.Load()
	if old == nil {
		old = &answerState{of: b}
	}
	if old.of != b {
		old = l.bindAnswer(*old, b)
	}
	last := *old
	last.until = time.Now().Add(retryAfter)
	if ctx.Err() == nil { // otherwise, the error can be that of this request alone
		a.state.Store(&last)
	}
	return &last
}

// bindAnswer returns s for the policy b, which has replaced that of s.
func (l *Limits) bindAnswer(s answerState, b *bound) *answerState {
	s.of, s.change = b, nil
	if s.found {
		if err := s.bind(nil); err != nil {
			l.overrideResult(b.Name, err)
		}
	}
	return &s
}

// bind sets what the override changes of s.of. key is the one that it must match, or nil.
func (s *answerState) bind(key *weir.Key) error {
	if o := &s.override; key != nil && o.Key != (weir.Key{}) && part(key.Segments(), s.of.named(o)) != o.Key {
		return errors.New("the Key of the result does not match the key: leave it zero, or leave segments empty that can be any")
	}
	c, err := s.of.change(&s.override)
	if err == nil {
		c.asked = true
		_, err = c.on(s.of, s.of.base)
	}
	if err == nil {
		s.change = c
	}
	return err
}

// overrideResult counts a result of Options.Override.
func (l *Limits) overrideResult(policy string, err error) {
	if err != nil {
		err = fmt.Errorf("weirfile: Options.Override for policy %q: %w", policy, err)
	}
	l.mu.Lock()
	l.status.OverrideErr = err
	if err != nil {
		l.status.OverrideFailures++
	}
	l.mu.Unlock()
	if err != nil && l.options.OnError != nil {
		l.options.OnError(err)
	}
}
