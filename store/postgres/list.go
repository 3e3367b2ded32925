package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
)

// listRows is the number of rows that a call of List reads.
const listRows = 1000

// list reads rows in the order of their keys, from the key $1. The row is live if it has
// not expired. It has two forms, because a condition on a bound that may be missing would
// not end the scan of the index.
const (
	list = `SELECT key, expires > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM weir WHERE key >= $1 ORDER BY key LIMIT $2`
	listBelow = `SELECT key, expires > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM weir WHERE key >= $1 AND key < $3 ORDER BY key LIMIT $2`
)

// List implements [store.Lister]. It reads up to 1,000 rows in one statement, in the
// order of the keys, so no key comes twice. A key of 2,000 bytes or more is not listed,
// because the table has only its beginning and its SHA-256.
func (s *Store) List(ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
	if err := s.Check(); err != nil {
		return keys, "", err
	}
	from, err := hex.DecodeString(cursor)
	if err != nil {
		return keys, "", fmt.Errorf("postgres: list: the cursor is %.80q: it must be empty, or what List returned", cursor)
	}
	if err := ctx.Err(); err != nil {
		return keys, "", fmt.Errorf("postgres: list: %w", err)
	}
	if cursor == "" {
		from = []byte(prefix)
	}
	query, args := list, []any{from, listRows}
	if below := after(prefix); below != nil {
		query, args = listBelow, append(args, below)
	}
	rows, err := s.pool.Query(ctx, query, args...)
	if err != nil {
		return keys, "", failed(ctx, "list", err)
	}
	defer rows.Close()
	n, out, last := 0, keys, []byte(nil)
	for ; rows.Next(); n++ {
		live := false
		if err := rows.Scan(&last, &live); err != nil {
			return keys, "", failed(ctx, "list", err)
		}
		if live && len(last) < longKey {
			out = append(out, string(last))
		}
	}
	if err := rows.Err(); err != nil {
		return keys, "", failed(ctx, "list", err)
	}
	if n < listRows {
		return out, "", nil
	}
	return out, hex.EncodeToString(append(last, 0)), nil // the next key
}

// after returns the first key that follows all keys with prefix, or nil if there is none.
func after(prefix string) []byte {
	key := []byte(prefix)
	for i := len(key) - 1; i >= 0; i-- {
		if key[i] < 0xff {
			key[i]++
			return slices.Clip(key[:i+1])
		}
	}
	return nil
}
