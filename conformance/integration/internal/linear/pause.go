package linear

import (
	"runtime"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// A pausing algorithm lets other goroutines run in the middle of a decision. The memory store
// then holds the locks of the decision's keys. Without a pause, a decision in memory is so
// short that two of them hardly ever meet.
type pausing struct{ limit *contract.Limit }

// pause returns a as a pausing algorithm, if a can be one.
func pause(a algorithm.Algorithm) algorithm.Algorithm {
	limit, err := a.NewLimit()
	if err != nil {
		panic(err)
	}
	right, ok := limit.Kind.(*contract.MeterKind)
	if !ok {
		return a
	}
	kind, l := *right, *limit
	kind.Meter = func(args []store.Arg) contract.Meter { return pausingMeter{right.Meter(args).(refundableMeter)} }
	l.Kind = &kind
	return pausing{&l}
}

func (p pausing) NewLimit() (*contract.Limit, error) { return p.limit, nil }

type refundableMeter interface {
	contract.Meter
	contract.Refunder
}

type pausingMeter struct{ refundableMeter }

func (m pausingMeter) Room(now, at int64, c contract.Cell) int64 {
	runtime.Gosched()
	return m.refundableMeter.Room(now, at, c)
}
