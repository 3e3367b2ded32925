package compose

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// A spy is a Step that records its arguments.
type spy struct{ log []string }

func (s *spy) add(format string, args ...any) { s.log = append(s.log, fmt.Sprintf(format, args...)) }

func (s *spy) Read(_ store.Tx, _ int, _ int64, a contract.Ask) (contract.State, error) {
	s.add("read %d", a.Cost)
	return contract.State{}, nil
}

func (s *spy) Room(_ int64, _ contract.State, a contract.Ask) int64 {
	s.add("room %d", a.Cost)
	return 1000
}

func (s *spy) Write(_ store.Tx, _ int, _ int64, _ contract.State, n int64, a contract.Ask, _ int64, _ time.Duration) error {
	s.add("write %d of %d", n, a.Cost)
	return nil
}

func (s *spy) Answer(_ int64, _ contract.State, n int64, a contract.Ask) contract.Answer {
	s.add("answer %d of %d", n, a.Cost)
	return contract.Answer{Limit: 700, Remaining: 699}
}

func (s *spy) Mark(_ int64, _ contract.State, n, gen int64) (contract.Cell, int64) {
	s.add("mark %d gen %d", n, gen)
	return contract.Cell{}, 0
}

func (s *spy) Refund(_ store.Tx, _ int, _ int64, _ contract.State, a contract.Ask, _ contract.Cell, n, keep, gen int64) (bool, error) {
	s.add("refund %d of %d keep %d gen %d", n, a.Cost, keep, gen)
	return true, nil
}

// A Step of a share sees every number of tokens multiplied, also one that is too large.
func TestStepShare(t *testing.T) {
	t.Parallel()
	inner := &spy{}
	s := shareOf(step{raw: inner}, 7).raw.(stepShare)
	a := contract.Ask{Cost: 3}
	_, _ = s.Read(nil, 0, 0, a)
	if got := s.Room(0, contract.State{}, a); got != 142 {
		t.Errorf("room: got %d, want 142", got)
	}
	_ = s.Write(nil, 0, 0, contract.State{}, 2, a, 0, 0)
	if got := s.Answer(0, contract.State{}, 2, a); got.Limit != 100 || got.Remaining != 99 {
		t.Errorf("got %+v, want 99 of 100", got)
	}
	s.Mark(0, contract.State{}, 2, 5)
	_, _ = s.Refund(nil, 0, 0, contract.State{}, contract.Ask{Cost: 1}, contract.Cell{}, 2, 3, 5)
	_, _ = s.Read(nil, 0, 0, contract.Ask{Cost: contract.MaxTokens / 7})
	_, _ = s.Read(nil, 0, 0, contract.Ask{Cost: contract.MaxTokens/7 + 1})
	_, _ = s.Read(nil, 0, 0, contract.Ask{Cost: contract.MaxTokens + 1})
	want := []string{"read 21", "room 21", "write 14 of 21", "answer 14 of 21", "mark 14 gen 5", "refund 14 of 7 keep 21 gen 5",
		fmt.Sprint("read ", int64(contract.MaxTokens/7*7)), fmt.Sprint("read ", int64(1<<53)), fmt.Sprint("read ", int64(1<<53))}
	if got := fmt.Sprint(inner.log); got != fmt.Sprint(want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
