package adapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weir-go/weir/store"
)

// scanCount is the COUNT of a SCAN: about how many keys of the server it looks at. The
// server then serves nobody else for about 0.1 ms, which is the time of four decisions.
const scanCount = 100

// ErrReplica is the error of [Nodes].Scan if the server is not a master.
var ErrReplica = errors.New("the server is not a master")

// These are the errors of replies that SCAN and ROLE do not give.
var (
	errNotScan = errors.New("the reply is not a cursor and a list of keys")
	errNotRole = errors.New("the reply is not a role")
)

// Nodes are the servers whose keys List lists.
type Nodes interface {
	// Masters returns the addresses of the masters of a cluster. Replicas may be among
	// them. If there is one server, its address is empty.
	Masters(ctx context.Context) ([]string, error)

	// Scan sends SCAN with these arguments to the server at address addr, which Masters
	// has returned. It returns the two elements of the reply.
	Scan(ctx context.Context, addr string, args []string) (cursor string, keys []string, err error)
}

// List is the List of a store. A cursor is the address of a server, a space and the
// cursor of that server. The servers are scanned in the order of their addresses.
func (b *Base) List(ctx context.Context, prefix, cursor string, keys []string, nodes Nodes) ([]string, string, error) {
	fail := func(err error) ([]string, string, error) { return keys, "", b.callError("list", err) }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	space := strings.LastIndexByte(cursor, ' ')
	addr, at := cursor[:max(space, 0)], cursor[space+1:]
	if _, err := strconv.ParseUint(at, 10, 64); err != nil && cursor != "" {
		return fail(fmt.Errorf("the cursor is %.80q: it must be empty, or what List returned", cursor))
	}
	masters, err := nodes.Masters(ctx)
	if err != nil {
		return keys, "", b.readError(ctx, "list", err)
	}
	slices.Sort(masters)
	n, known := slices.BinarySearch(masters, addr)
	switch {
	case len(masters) == 0:
		return fail(fmt.Errorf("%w: the client knows no server", store.ErrUnavailable))
	case cursor == "":
		n, at = 0, "0"
	case !known:
		return fail(errChanged(addr))
	}
	for ; n < len(masters); n, at = n+1, "0" {
		next, found, err := nodes.Scan(ctx, masters[n], []string{at, "MATCH", pattern(prefix), "COUNT", strconv.Itoa(scanCount)})
		switch {
		case errors.Is(err, ErrReplica) && at == "0":
			continue
		case errors.Is(err, ErrReplica):
			return fail(errChanged(masters[n]))
		case err != nil:
			return keys, "", b.readError(ctx, "list", err)
		}
		list := keys
		for _, key := range found {
			if strings.HasPrefix(key, prefix) {
				list = append(list, key)
			}
		}
		if next != "0" {
			return list, join(masters[n], next), nil
		}
		if n+1 == len(masters) {
			return list, "", nil
		}
		return list, join(masters[n+1], "0"), nil
	}
	return keys, "", nil
}

func errChanged(addr string) error {
	return fmt.Errorf("%w: the server %s is no master any more: start the listing again", store.ErrUnavailable, addr)
}

// join returns the cursor of a listing.
func join(addr, at string) string {
	if addr == "" {
		return at
	}
	return addr + " " + at
}

// pattern returns a pattern that matches every key that begins with prefix. It has no
// bytes that are not UTF-8, which some servers do not take in a pattern, so it can match
// other keys too.
func pattern(prefix string) string {
	for i, r := range prefix {
		if r == utf8.RuneError {
			prefix = prefix[:i]
			break
		}
	}
	return globEscape.Replace(prefix) + "*"
}

// globEscape escapes the characters with a meaning in the pattern of a SCAN.
var globEscape = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `\`, `\\`)

// ParseScan returns the elements of val, the reply to a SCAN, for a client that
// represents strings as string or []byte. If err is not nil, it returns err.
func ParseScan(val any, err error) (cursor string, keys []string, _ error) {
	if err != nil {
		return "", nil, err
	}
	reply, _ := val.([]any)
	if len(reply) != 2 {
		return "", nil, errNotScan
	}
	list, ok := reply[1].([]any)
	next, known := Value(&reply[0])
	if !ok || !known || next.Kind() != store.Bulk {
		return "", nil, errNotScan
	}
	for i := range list {
		key, known := Value(&list[i])
		if !known || key.Kind() != store.Bulk {
			return "", nil, errNotScan
		}
		keys = append(keys, key.Str())
	}
	return next.Str(), keys, nil
}

// CheckMaster returns an error unless val, the reply to a ROLE, comes from a master. It
// is an [ErrReplica] if another server replied. If err is not nil, CheckMaster returns
// err.
func CheckMaster(val any, err error) error {
	if err != nil {
		return err
	}
	reply, _ := val.([]any)
	if len(reply) == 0 {
		return errNotRole
	}
	if role, known := Value(&reply[0]); !known || role.Kind() != store.Bulk || role.Str() != "master" {
		return ErrReplica
	}
	return nil
}
