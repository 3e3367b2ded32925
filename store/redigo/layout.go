package redigo

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/gomodule/redigo/redis"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

// slots is the number of slots of a cluster.
const slots = 16384

// errNotSlots is the error of a reply that CLUSTER SLOTS does not give.
var errNotSlots = errors.New("the reply is not a list of slots")

// A layout has the number of the node for each slot of a cluster. redisc does not export
// its own layout.
type layout [slots]uint16

// readLayout reads the layout from any node.
func (s *Store) readLayout(ctx context.Context) (*layout, error) {
	val, err := s.do(ctx, &command{name: "CLUSTER", args: []any{"SLOTS"}})
	if err != nil {
		return nil, err
	}
	return parseLayout(val)
}

// parseLayout parses a reply to CLUSTER SLOTS. The reply has a list for each range of
// slots: the first slot, the last slot, and the nodes. The first node is the master. A
// node is a list that begins with its host and port.
func parseLayout(val any) (*layout, error) {
	ranges, ok := val.([]any)
	if !ok {
		return nil, errNotSlots
	}
	var nodes layout
	numbers := map[string]uint16{}
	for _, element := range ranges {
		r, err := redis.Values(element, nil)
		if err != nil || len(r) < 3 {
			return nil, errNotSlots
		}
		first, ok1 := r[0].(int64)
		last, ok2 := r[1].(int64)
		master, ok3 := r[2].([]any)
		if !ok1 || !ok2 || !ok3 || first < 0 || last >= slots || len(master) < 2 {
			return nil, errNotSlots
		}
		addr := fmt.Sprintf("%s:%v", master[0], master[1])
		number, known := numbers[addr]
		if !known {
			number = uint16(len(numbers))
			numbers[addr] = number
		}
		for slot := first; slot <= last; slot++ {
			nodes[slot] = number
		}
	}
	return &nodes, nil
}

// byNode groups cmds by node. It returns the indices of the commands of each group.
func (s *Store) byNode(ctx context.Context, cmds []command) iter.Seq[[]int] {
	at := make([]int, len(cmds))
	spread := false
	for i := range cmds {
		if s.cluster != nil {
			at[i] = store.Slot(cmds[i].key)
			spread = spread || at[i] != at[0]
		}
	}
	nodes := s.layout.Load()
	if spread && nodes == nil {
		var err error
		if nodes, err = s.readLayout(ctx); err == nil {
			s.layout.Store(nodes)
		}
	}
	if spread && nodes != nil { // without a layout, each slot counts as a node
		for i, slot := range at {
			at[i] = int(nodes[slot])
		}
	}
	return adapter.Groups(at)
}
