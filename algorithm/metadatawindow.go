package algorithm

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/store"
)

// MetadataWindow is a [FixedWindow] that keeps the metadata of the requests that
// it admitted: who used up an address's quota, say. It decides like a FixedWindow
// with the same fields.
//
// It costs memory for each admitted request, about 30 bytes and its metadata. The
// whole window is forgotten at once, when it has ended.
type MetadataWindow struct {
	// Limit is the capacity of a window, from 1 to MaxLog.
	Limit int64

	// Window is its length: whole microseconds, from 1 µs to MaxSpan.
	Window time.Duration

	// Aligned says that windows start at the multiples of Window.
	Aligned bool
}

const (
	// MaxMetadata is the most metadata that a request can have, in bytes.
	MaxMetadata = 512

	// MaxEntries is the most entries that are listed at once, so that a list
	// has at most 512,000 bytes of metadata.
	MaxEntries = 1000
)

// ErrInvalidMetadata says that a request's metadata is too long.
var ErrInvalidMetadata = errors.New("invalid metadata")

//go:embed metadatawindow.lua
var metadataWindowLua string

// metadataText begins the text of an entry. Behind it stand when the window ends,
// the count with this entry, and the metadata.
const metadataText = "m1 "

var metadataWindowFragment = &Fragment{
	Name:    "metadatawindow",
	Lua:     metadataWindowLua,
	Args:    5,
	State:   []string{"edge", "count"},
	Sets:    true,
	Check:   metadataWindowCheck,
	Commit:  metadataWindowCommit,
	Fit:     fixedWindowFit,
	Take:    fixedWindowTake,
	Entries: metadataWindowEntries,
}

// A metadataWindowLimit answers as the fixed window does that it is.
type metadataWindowLimit struct{ *fixedWindowLimit }

// NewLimit implements [Algorithm].
func (m MetadataWindow) NewLimit() (Limit, error) {
	if m.Limit < 1 || m.Limit > MaxLog {
		return nil, invalid("MetadataWindow.Limit is %d: it must be from 1 to %d", m.Limit, int64(MaxLog))
	}
	if _, err := wholeMicros("MetadataWindow.Window", m.Window); err != nil {
		return nil, err
	}
	window, err := FixedWindow(m).NewLimit()
	if err != nil {
		return nil, err
	}
	return &metadataWindowLimit{window.(*fixedWindowLimit)}, nil
}

func (l *metadataWindowLimit) Fragment() *Fragment { return metadataWindowFragment }

// CheckRequest implements [RequestChecker].
func (l *metadataWindowLimit) CheckRequest(r Request) error {
	if len(r.Metadata) > MaxMetadata {
		return fmt.Errorf("%w: %d bytes, of which a MetadataWindow keeps at most %d", ErrInvalidMetadata, len(r.Metadata), MaxMetadata)
	}
	return nil
}

var noMetadata = store.StringArg("")

func (l *metadataWindowLimit) AppendArgs(args []store.Arg, r Request) []store.Arg {
	args = l.fixedWindowLimit.AppendArgs(args, r)
	if r.Metadata == "" {
		return append(args, noMetadata)
	}
	return append(args, store.StringArg(r.Metadata))
}

// Entries implements [Lister].
func (l *metadataWindowLimit) Entries(texts []string) ([]Entry, error) {
	var list []Entry
	before := int64(0)
	for i, text := range texts {
		_, count, metadata, ok := parseMetadata(text)
		if !ok || count <= before {
			return nil, fmt.Errorf("%w: entry %d of a MetadataWindow is %q, behind a count of %d", store.ErrScript, i, text, before)
		}
		if i > 0 || len(texts) <= MaxEntries { // one more than was asked for tells the cost of the next
			list = append(list, Entry{Cost: count - before, Metadata: metadata})
		}
		before = count
	}
	return list, nil
}

// parseMetadata reads the text of an entry.
func parseMetadata(text string) (edge, count int64, metadata string, ok bool) {
	rest, tagged := strings.CutPrefix(text, metadataText)
	first, rest, _ := strings.Cut(rest, " ")
	second, metadata, found := strings.Cut(rest, " ")
	e, err1 := strconv.ParseUint(first, 10, 53)
	c, err2 := strconv.ParseUint(second, 10, 53)
	return int64(e), int64(c), metadata, tagged && found && err1 == nil && err2 == nil
}

// In the Go form the list is a sorted set, by the counts.

func metadataWindowCheck(tx store.Tx, key int, now int64, args []store.Arg) (State, bool, error) {
	var s State
	last, ok, err := tx.At(key, -1)
	if err != nil {
		return s, false, err
	}
	if ok {
		if s[0], s[1], _, ok = parseMetadata(last.Text); !ok {
			return State{}, false, tx.Foreign(key)
		}
	}
	if now >= s[0] {
		s = State{now - now%args[3].Int() + args[1].Int(), 0}
	}
	return s, s[1] <= args[0].Int(), nil
}

func metadataWindowCommit(tx store.Tx, key int, now int64, args []store.Arg, s State, slack time.Duration) {
	if s[1] == 0 {
		tx.Del(key)
	}
	count := s[1] + args[2].Int()
	tx.Add(key, store.Member{Score: count, Text: fmt.Sprintf(metadataText+"%d %d %s", s[0], count, args[4])})
	tx.Expire(key, ttl(s[0]-now, slack))
}

func metadataWindowEntries(tx store.Tx, key int, s State) ([]string, error) {
	if s[1] == 0 {
		return nil, nil
	}
	_, all, err := tx.Count(key, 0)
	if err != nil {
		return nil, err
	}
	var texts []string
	for rank := max(all-MaxEntries-1, 0); rank < all; rank++ {
		m, _, err := tx.At(key, rank)
		if err != nil {
			return nil, err
		}
		texts = append(texts, m.Text)
	}
	return texts, nil
}
