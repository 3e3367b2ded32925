package memory

import (
	"context"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

const (
	listHomes  = 1024 // how many homes of slots a List visits
	lockedFor  = 256  // how many of them it visits under one lock
	cursorBase = 36
)

// List implements [store.Lister]. A call looks at about 1,024 slots, and holds a lock for
// at most 256 of them.
func (s *Store) List(ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
	if err := s.ready(ctx); err != nil {
		return keys, "", err
	}
	at, home, ok := s.parseCursor(cursor)
	if !ok {
		return keys, "", fmt.Errorf("memory: list: the cursor is %.40q: it must be empty, or what List returned", cursor)
	}
	list := keys
	for left := listHomes; left > 0; left -= lockedFor {
		var err error
		if list, home, err = s.shards[at].list(&s.clock, prefix, home, list); err != nil {
			return keys, "", fmt.Errorf("memory: list: %w", err)
		}
		if home == 0 {
			if at++; at == len(s.shards) {
				return list, "", nil
			}
		}
	}
	return list, strconv.Itoa(at) + "." + strconv.FormatUint(home, cursorBase), nil
}

// parseCursor returns the shard and the home of a cursor.
func (s *Store) parseCursor(cursor string) (at int, home uint64, ok bool) {
	if cursor == "" {
		return 0, 0, true
	}
	shard, rest, _ := strings.Cut(cursor, ".")
	at, err1 := strconv.Atoi(shard)
	home, err2 := strconv.ParseUint(rest, cursorBase, 64)
	return at, home, err1 == nil && err2 == nil && at >= 0 && at < len(s.shards)
}

// list appends the keys that begin with prefix, have not expired, and whose homes are
// among the next lockedFor ones. It returns the first home of the next call, or 0 if
// there is none.
//
// Between two calls, the table can become larger or smaller. So homes are visited in the
// order of their reversed bits: if the table is twice as large, the two homes that a home
// has become follow each other in this order. A key is thus never left out. After the
// table has become smaller, some keys come again.
func (sh *shard) list(c *clock, prefix string, home uint64, keys []string) ([]string, uint64, error) {
	sh.mu.Lock()
	defer sh.mu.Unlock() // even if the clock panics
	now, err := c.micros()
	if err != nil || len(sh.slots) == 0 {
		return keys, 0, err
	}
	mask := uint64(len(sh.slots) - 1)
	for range lockedFor {
		at := int(home & mask)
		for i := at; sh.slots[i].hash != 0; i = (i + 1) & int(mask) {
			sl := &sh.slots[i]
			if sl.Expires > now && sh.home(sl.hash) == at && strings.HasPrefix(sh.text(sl), prefix) {
				keys = append(keys, sh.keyOf(sl))
			}
		}
		home |= ^mask // so that the carry comes to the bits of the mask
		if home = bits.Reverse64(bits.Reverse64(home) + 1); home == 0 {
			break
		}
	}
	return keys, home, nil
}
