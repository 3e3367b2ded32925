package weir_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
)

// work is a policy with two places, a bucket of 10 tokens and a pause.
var work = weir.Policy{Name: "work", Rules: []weir.Rule{
	{Name: "parallel", Algorithm: algorithm.Concurrency{Limit: 2, Lease: time.Minute}, Cost: 1},
	{Name: "tokens", Algorithm: algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerDay(10)}},
	{Name: "closed", Algorithm: algorithm.Pause{}},
}}

// A site is a limiter of work, and its clock.
type site struct {
	*testing.T
	*weir.Limiter
	clock *weirtest.Clock
	each  [3]weir.Result
}

func newSite(t *testing.T, settles bool) *site {
	t.Helper()
	clock := weirtest.NewClock()
	l, err := weir.NewPolicy(weirtest.NewStore(clock), work, &weir.Options{Settles: settles})
	if err != nil {
		t.Fatal(err)
	}
	return &site{T: t, Limiter: l, clock: clock}
}

// ask sends the request of the work "a", or of the ID of r, at a cost of 3.
func (s *site) ask(r weir.Request) (weir.Result, error) {
	r.Key = weir.KeyOf("ann")
	if r.ID == "" {
		r.ID = "a"
	}
	if r.Op == weir.Consume || r.Op == weir.TakeUpTo {
		r.Cost = 3
	}
	return s.Decide(s.Context(), r, nil)
}

func (s *site) must(r weir.Request) weir.Result {
	s.Helper()
	res, err := s.ask(r)
	if err != nil {
		s.Fatalf("%v: %v", r.Op, err)
	}
	return res
}

// left returns the free places and the remaining tokens.
func (s *site) left() [2]int64 {
	s.Helper()
	if _, err := s.Decide(s.Context(), weir.Request{Op: weir.Peek, Key: weir.KeyOf("ann")}, s.each[:]); err != nil {
		s.Fatal(err)
	}
	return [2]int64{s.each[0].Remaining, s.each[1].Remaining}
}

// An answer is what a request answers, and leaves. If it is an ErrUnsupported, granted is -1.
type answer struct {
	allowed, replayed bool
	granted           int64
	left              [2]int64 // places and tokens, afterwards
}

// String returns a as docs/guide/work.md has it.
func (a answer) String() string {
	switch {
	case a.granted < 0:
		return "ErrUnsupported"
	case a.allowed && a.replayed:
		return "Allowed, Replayed"
	case a.allowed:
		return "Allowed"
	case a.replayed:
		return "Replayed"
	}
	return "–"
}

// What each op does to a piece of work whose lease is held or not, and whose bill is found or not.
// docs/guide/work.md has the same table.
func TestWork(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/guide/work.md")
	if err != nil {
		t.Fatal(err)
	}
	const heldLost, freeFound, free, without = 1, 2, 3, 4 // columns
	names := [...]string{"held, found", "held, not found", "not held, found", "not held, not found", "without the option"}
	five, zero := weir.ActualCost(5), weir.ActualCost(0)
	yes, unsupported := true, answer{granted: -1}
	for _, tt := range []struct {
		name   string
		r      weir.Request
		full   bool // others hold all other places
		paused bool
		want   [5]answer
	}{
		{"Consume", weir.Request{}, false, false, [5]answer{
			{yes, yes, 3, [2]int64{1, 7}}, {yes, false, 3, [2]int64{1, 7}}, {yes, yes, 3, [2]int64{1, 7}}, {yes, false, 3, [2]int64{1, 7}}, {yes, false, 3, [2]int64{1, 4}}}},
		{"TakeUpTo", weir.Request{Op: weir.TakeUpTo}, false, false, [5]answer{
			{yes, yes, 3, [2]int64{1, 7}}, {yes, false, 3, [2]int64{1, 7}}, {yes, yes, 3, [2]int64{1, 7}}, {yes, false, 3, [2]int64{1, 7}}, {yes, false, 3, [2]int64{1, 4}}}},
		{"Consume, no lease is free", weir.Request{}, true, false, [5]answer{
			{yes, yes, 3, [2]int64{0, 7}}, {yes, false, 3, [2]int64{0, 7}}, {false, yes, 0, [2]int64{0, 7}}, {false, false, 0, [2]int64{0, 10}}, {yes, false, 3, [2]int64{0, 4}}}},
		{"Consume, in a pause", weir.Request{}, false, true, [5]answer{
			{false, yes, 0, [2]int64{1, 7}}, {false, false, 0, [2]int64{1, 10}}, {false, yes, 0, [2]int64{2, 7}}, {false, false, 0, [2]int64{2, 10}}, {false, false, 0, [2]int64{1, 7}}}},
		{"Renew", weir.Request{Op: weir.Renew}, false, false, [5]answer{
			{yes, false, 0, [2]int64{1, 7}}, {yes, false, 0, [2]int64{1, 10}}, {false, false, 0, [2]int64{2, 7}}, {false, false, 0, [2]int64{2, 10}}, {yes, false, 0, [2]int64{1, 7}}}},
		{"Release; the bill stays", weir.Request{Op: weir.Release}, false, false, [5]answer{
			{yes, false, 0, [2]int64{2, 7}}, {yes, false, 0, [2]int64{2, 10}}, {false, false, 0, [2]int64{2, 7}}, {false, false, 0, [2]int64{2, 10}}, {yes, false, 0, [2]int64{2, 7}}}},
		{"Settle; the lease stays", weir.Request{Op: weir.Settle, Actual: five}, false, false, [5]answer{
			{yes, false, 5, [2]int64{1, 5}}, {false, false, 0, [2]int64{1, 10}}, {yes, false, 5, [2]int64{2, 5}}, {false, false, 0, [2]int64{2, 10}}, unsupported}},
		{"Refund; the lease stays", weir.Request{Op: weir.Refund}, false, true, [5]answer{
			{yes, false, 0, [2]int64{1, 10}}, {false, false, 0, [2]int64{1, 10}}, {yes, false, 0, [2]int64{2, 10}}, {false, false, 0, [2]int64{2, 10}}, unsupported}},
		{"Finish", weir.Request{Op: weir.Finish}, false, true, [5]answer{
			{yes, yes, 3, [2]int64{2, 7}}, {yes, false, 0, [2]int64{2, 10}}, {false, yes, 3, [2]int64{2, 7}}, {false, false, 0, [2]int64{2, 10}}, {yes, false, 0, [2]int64{2, 7}}}},
		{"Finish with amounts", weir.Request{Op: weir.Finish, Actual: five, Cost: 1}, false, true, [5]answer{
			{yes, yes, 5, [2]int64{2, 5}}, {yes, false, 0, [2]int64{2, 10}}, {false, yes, 5, [2]int64{2, 5}}, {false, false, 0, [2]int64{2, 10}}, unsupported}},
		{"Finish at 0", weir.Request{Op: weir.Finish, Actual: zero}, false, false, [5]answer{
			{yes, yes, 0, [2]int64{2, 10}}, {yes, false, 0, [2]int64{2, 10}}, {false, yes, 0, [2]int64{2, 10}}, {false, false, 0, [2]int64{2, 10}}, unsupported}},
		{"Finish that refunds", weir.Request{Op: weir.Finish, Actual: weir.ActualRefund(), Cost: 1}, false, true, [5]answer{
			{yes, yes, 0, [2]int64{2, 10}}, {yes, false, 0, [2]int64{2, 10}}, {false, yes, 0, [2]int64{2, 10}}, {false, false, 0, [2]int64{2, 10}}, unsupported}},
		{"Force of other work", weir.Request{Op: weir.Force, ID: "b", Cost: 2}, true, false, [5]answer{
			{yes, false, 2, [2]int64{0, 5}}, {yes, false, 2, [2]int64{0, 8}}, {yes, false, 2, [2]int64{0, 5}}, {yes, false, 2, [2]int64{0, 8}}, unsupported}},
	} {
		row := "| " + tt.name + " |"
		for column, want := range tt.want {
			row += " " + want.String() + " |"
			t.Run(tt.name+": "+names[column], func(t *testing.T) {
				s := newSite(t, column != without)
				if column != free {
					s.must(weir.Request{})
				}
				switch column {
				case heldLost:
					s.must(weir.Request{Op: weir.Refund})
				case freeFound:
					s.must(weir.Request{Op: weir.Release})
				}
				for i := 0; tt.full && s.left()[0] > 0; i++ {
					s.must(weir.Request{ID: fmt.Sprint(i)})
					if column == without {
						want.left[1] -= 3
					} else {
						s.must(weir.Request{Op: weir.Refund, ID: fmt.Sprint(i)})
					}
				}
				pause := ""
				if tt.paused {
					var err error
					if pause, err = s.Limiter.Pause(t.Context(), time.Hour, "ann"); err != nil {
						t.Fatal(err)
					}
				}
				res, err := s.ask(tt.r)
				if tt.paused {
					if _, err := s.Limiter.Resume(t.Context(), pause, "ann"); err != nil {
						t.Fatal(err)
					}
				}
				if want.granted < 0 {
					if !errors.Is(err, weir.ErrUnsupported) {
						t.Errorf("got %+v, %v, want an ErrUnsupported", res, err)
					}
					return
				}
				got := answer{res.Allowed, res.Replayed, res.Granted, s.left()}
				if err != nil || got != want {
					t.Errorf("got %+v, %v, want %+v", got, err, want)
				}
			})
		}
		if !strings.Contains(string(page), row+"\n") && tt.name != "Finish at 0" && tt.name != "Force of other work" {
			t.Errorf("docs/guide/work.md lacks the row %s", row)
		}
	}
}
