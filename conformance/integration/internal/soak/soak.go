// Package soak runs many clients on shared limits for a long time, through faults, and checks
// each answer:
//
//	s := soak.New(soak.Config{Seed: seed, Open: open})
//	s.Round(time.Second, nil)    // nothing is wrong with the servers
//	s.Round(time.Second, &fault)
//	err := s.Err()
//
// # Rounds
//
// A round has keys of its own for every algorithm, and clients that make random calls of every
// verb. Clients join and leave, and limits change. A round without a fault is healthy: no call
// may fail in it.
//
// # Never more, never fewer
//
// Most limits refill nothing within a round: their windows take days, and their rates are
// one token an hour. So neither the time of a call nor a slow machine has any influence.
// For each limit, a ledger has two bounds of the tokens that the store must count as
// consumed. They differ by the calls that are under way or whose reply was lost. Each of
// these was made once, or not at all:
//
//   - Never more: an allowed request has room, counting only tokens that callers surely
//     got.
//   - Never fewer: a denied request has no room, counting every token that a call without
//     a reply may have consumed.
//
// Without a fault, both bounds are equal when no call is under way. Then the check is exact.
// Other limits are refilled within a round: see pace.go. Their checks count tokens between
// two instants of the clock, which the servers and this process share.
//
// # Faults that lose writes
//
// If a replica replaces a master, tokens that it had not received are lost. The checks of
// faults in package conformance bound that loss. Here nothing may be lost: Fault.Still kills
// the master when nobody calls and the replica has all writes.
package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store"
)

const (
	workers = 2           // goroutines of each client
	perCall = time.Minute // the longest time of a call: no verdict depends on it
	slow    = time.Second // after it, a client can have repeated a call on a busy machine
	stale   = 64          // connections of a client that can be broken after a fault
	keep    = 5           // violations of a promise with a text
)

// A Client is one of the programs that share the limits.
type Client struct {
	Name  string // of its adapter
	Store store.Store
	Close func()

	// Repeats is the largest number of times that the client sends a call again if its reply
	// was lost.
	Repeats int

	// Stays is true if the client must not be closed during a fault, because it then leaves
	// goroutines behind.
	Stays bool
}

// A Config says which clients a soak has.
type Config struct {
	Seed    uint64
	Prefix  string // of all keys
	Clients int    // how many run at once
	Open    func(i int) (Client, error)
	Wrap    weir.Wrapper // around every limiter; nil means nothing
}

// A Fault makes the servers fail for a time.
type Fault struct {
	Name  string
	Begin func() // returns when nothing more can be lost
	End   func() // returns when the servers can serve again

	// Still comes before Begin, while nobody calls. It is set if the fault would otherwise lose
	// writes. It can be nil.
	Still func()
}

// A Soak has the state of a run. Its methods are for one goroutine.
type Soak struct {
	Report Report

	config Config
	random *rand.Rand
	round  int
	opened int
	faults atomic.Int64 // begun and ended; odd during a fault
	faulty atomic.Bool  // the round has a fault, so calls can fail
	still  sync.RWMutex // a call of a worker holds it for reading

	leaving sync.WaitGroup // members that end

	mu      sync.Mutex // of the rest
	members []*member
}

// A member is a client that runs.
type member struct {
	Client
	limiters sync.Map // by group and plan
	credit   atomic.Int64
	stop     chan struct{}
	wg       sync.WaitGroup
}

// New returns a soak without clients. The first round opens them.
func New(c Config) *Soak {
	return &Soak{
		config: c,
		random: rand.New(rand.NewPCG(c.Seed, 1)),
		Report: Report{Seed: c.Seed, Broken: map[Promise]int{}, counts: map[string]int{}},
	}
}

// A Promise is what a violation broke.
type Promise string

// The promises.
const (
	More      Promise = "more was allowed than the limit"
	Fewer     Promise = "fewer were allowed than the limit"
	Answer    Promise = "an answer is wrong"
	Retry     Promise = "a caller waited for RetryAfter in vain"
	Failed    Promise = "a call failed"
	Immortal  Promise = "a key has no TTL"
	Growth    Promise = "memory grows"
	Abandoned Promise = "goroutines are left"
)

// Violate notes that a promise was broken.
func (s *Soak) Violate(p Promise, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Report.Broken[p]++; s.Report.Broken[p] <= keep {
		s.Report.Texts = append(s.Report.Texts, fmt.Sprintf("round %d: %s: ", s.round, p)+fmt.Sprintf(format, args...))
	}
}

// Err returns an error that describes the violations, or nil if there are none.
func (s *Soak) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.Report.Violations()
	if n == 0 {
		return nil
	}
	return fmt.Errorf("seed %d: %d violations:\n%s", s.config.Seed, n, strings.Join(s.Report.Texts, "\n"))
}

// open opens a client. It returns nil if that fails.
func (s *Soak) open() *member {
	s.opened++
	c, err := s.config.Open(s.opened)
	if err == nil {
		return &member{Client: c}
	}
	if !s.faulty.Load() {
		s.Violate(Failed, "open client %d: %v", s.opened, err)
	}
	return nil
}

// join opens a client that calls. It returns nil if that fails.
func (s *Soak) join() *member {
	m := s.open()
	if m == nil {
		return nil
	}
	if s.faulty.Load() {
		m.credit.Store(stale)
	}
	s.mu.Lock()
	s.members = append(s.members, m)
	s.mu.Unlock()
	return m
}

// leave stops the callers of a client, and closes it when their calls have ended. During a fault,
// a call can last until its end.
func (s *Soak) leave(m *member) {
	s.mu.Lock()
	s.members = slices.DeleteFunc(s.members, func(other *member) bool { return other == m })
	s.mu.Unlock()
	if m.stop != nil {
		close(m.stop)
	}
	s.leaving.Go(func() {
		m.wg.Wait()
		m.Close()
	})
	if s.faults.Load()%2 == 0 {
		s.leaving.Wait()
	}
}

// Tags returns the hash tags of keys of the next round. Their slots have keys of most limits.
func (s *Soak) Tags() []string {
	var all []string
	for u := range users {
		all = append(all, fmt.Sprintf("{r%d-u%d}", s.round+1, u))
	}
	return all
}

// Leave closes all clients. The next round opens others.
func (s *Soak) Leave() {
	for len(s.members) > 0 {
		s.leave(s.members[0])
	}
}

// Round runs the clients for the time d, and a little longer with a fault. If f is nil, the
// round is healthy.
func (s *Soak) Round(d time.Duration, f *Fault) {
	s.round++
	s.faulty.Store(false) // until the clients have begun
	groups := s.groups()
	for len(s.members) < s.config.Clients {
		if s.join() == nil {
			return
		}
	}
	for _, m := range s.members {
		m.limiters.Clear() // of the last round, whose days had another midnight
	}
	s.served(groups, s.members...)
	paces := s.paces(s.members[s.random.IntN(len(s.members))])
	start := func(m *member) {
		m.stop = make(chan struct{})
		for i := range workers {
			w := &worker{Soak: s, member: m, groups: groups, paces: paces, random: rand.New(rand.NewPCG(s.random.Uint64(), uint64(i)))}
			m.wg.Go(w.run)
		}
	}
	s.faulty.Store(f != nil)
	for _, m := range s.members {
		start(m)
	}
	if f == nil {
		var wg sync.WaitGroup
		if m := s.open(); m != nil {
			wg.Go(func() { s.retries(m) })
		}
		s.churn(d, groups, start)
		wg.Wait()
	} else {
		s.churn(d/4, groups, start)
		s.fault(d/2, f, groups, start)
		s.churn(d/4, groups, start)
	}
	for _, m := range s.members {
		close(m.stop)
	}
	for _, m := range s.members {
		m.wg.Wait()
		m.stop = nil
	}
	m := s.members[s.random.IntN(len(s.members))]
	for _, g := range groups {
		s.audit(m, g)
	}
	s.settlePaces(m, paces)
}

// churn lets clients join and leave, and changes limits, for the time d.
func (s *Soak) churn(d time.Duration, groups []*group, start func(*member)) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(time.Until(end), time.Duration(50+s.random.IntN(100))*time.Millisecond))
		groups[s.random.IntN(len(groups))].plan.Store(int32(s.random.IntN(len(plans))))
		s.Report.Add(Changes)
		m := s.members[s.random.IntN(len(s.members))]
		if s.random.IntN(3) > 0 || len(s.members) < 2 || s.faulty.Load() && m.Stays {
			continue
		}
		s.leave(m)
		s.Report.Add(Left)
		if m = s.join(); m != nil {
			if !s.faulty.Load() {
				s.served(groups, m)
			}
			start(m)
		}
	}
}
