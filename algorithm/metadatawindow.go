package algorithm

import (
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// MetadataWindow is a [FixedWindow] that keeps the metadata of allowed requests, for
// example the accounts that used up the quota of an IP address. It decides like a
// FixedWindow with the same fields.
//
// The state is one list. Each allowed request adds an entry of about 30 bytes and its
// metadata. Metadata expires with its window. Tokens cannot be refunded.
//
// In debt, the count of the window is above Limit, by at most MaxLog, and the debt ends
// with the window.
type MetadataWindow struct {
	// Limit is the number of tokens in a window, from 1 to MaxLog.
	Limit int64

	// Window is the length of a window. It must be whole microseconds, from 1 µs to
	// MaxSpan.
	Window time.Duration

	// If Aligned is true, windows start at multiples of Window since the Unix epoch.
	Aligned bool
}

const (
	// MaxMetadata is the largest length of a request's metadata, in bytes.
	MaxMetadata = 512

	// MaxEntries is the largest number of entries in a list of Limiter.Entries. A list
	// has at most MaxEntries*MaxMetadata = 512,000 bytes of metadata.
	MaxEntries = 1000
)

//go:embed metadatawindow.lua
var metadataWindowLua string

var metadataWindowKind = &contract.StepKind{
	Head: contract.Head{Name: "metadatawindow", Tag: store.Tag{'m', '2'}, Cell: "edge count", Args: "limit window align", Lua: metadataWindowLua},
	Sets: true, Entries: true, Locals: "found",
	Step: func(args []store.Arg) contract.Step {
		return metadataWindow{fixedWindowKind.Meter(args).(*fixedWindow)}
	},
}

// NewLimit implements [Algorithm].
func (m MetadataWindow) NewLimit() (*contract.Limit, error) {
	if _, err := checkWindow("MetadataWindow", m.Limit, MaxLog, m.Window); err != nil {
		return nil, err
	}
	l, err := FixedWindow(m).NewLimit()
	if err == nil {
		l.Kind, l.MaxDebt = metadataWindowKind, MaxLog
	}
	return l, err
}

// Divide implements [Divider].
func (m MetadataWindow) Divide(n int64) Algorithm {
	m.Limit /= n
	return m
}

// A metadataWindow is the Step of a MetadataWindow. Its state is edge and count, as in
// the cell of a FixedWindow. In the Go form, the list is a sorted set, whose scores are
// the counts.
type metadataWindow struct{ *fixedWindow }

func (w metadataWindow) Read(tx store.Tx, key int, now int64, _ contract.Ask) (contract.State, error) {
	var c contract.Cell
	last, ok, err := tx.At(key, 0)
	if err != nil {
		return contract.State{}, err
	}
	if ok {
		if c.A, c.B, _, ok = parseMetadata(last.Text); !ok {
			return contract.State{}, store.ForeignAt(key)
		}
	}
	c = w.Advance(now, c)
	return contract.State{c.A, c.B}, nil
}

func (w metadataWindow) Room(_ int64, s contract.State, _ contract.Ask) int64 { return w.limit - s[1] }

func (w metadataWindow) Write(tx store.Tx, key int, now int64, s contract.State, n int64, a contract.Ask, _ int64, slack time.Duration) error {
	if s[1] == 0 {
		tx.Del(key)
	}
	c := w.Take(contract.Cell{A: s[0], B: s[1]}, n)
	tx.Add(key, store.Member{Score: c.B, Text: fmt.Sprintf("m2 %d %d %s", c.A, c.B, a.Text)}, contract.TTL(now, c.A, slack))
	return nil
}

func (w metadataWindow) Answer(now int64, s contract.State, n int64, _ contract.Ask) contract.Answer {
	c := contract.Cell{A: s[0], B: s[1]}
	if n > 0 {
		c = w.Take(c, n)
	}
	return answer(now, w.limit, w.window, c.B, c.A, c.A)
}

// Entries implements [contract.Lister]. It lists one entry more than MaxEntries, because
// the cost of an entry is the difference between two counts.
func (w metadataWindow) Entries(tx store.Tx, key int, s contract.State) ([]string, error) {
	if s[1] == 0 {
		return nil, nil
	}
	_, all, err := tx.Count(key, 0)
	var texts []string
	var m store.Member
	for fromEnd := min(all, MaxEntries+1) - 1; err == nil && fromEnd >= 0; fromEnd-- {
		m, _, err = tx.At(key, fromEnd)
		texts = append(texts, m.Text)
	}
	return texts, err
}

// Parse implements [contract.Lister].
func (w metadataWindow) Parse(texts []string) ([]contract.Entry, error) {
	var list []contract.Entry
	before := int64(0)
	for i, text := range texts {
		_, count, metadata, ok := parseMetadata(text)
		if !ok || count <= before {
			return nil, store.ForeignAt(0)
		}
		if i > 0 || len(texts) <= MaxEntries {
			list = append(list, contract.Entry{Cost: count - before, Metadata: metadata})
		}
		before = count
	}
	return list, nil
}

// parseMetadata parses an entry: "m2 EDGE COUNT METADATA".
func parseMetadata(text string) (edge, count int64, metadata string, ok bool) {
	rest, tagged := strings.CutPrefix(text, "m2 ")
	first, rest, _ := strings.Cut(rest, " ")
	second, metadata, found := strings.Cut(rest, " ")
	edge, ok1 := parseDigits(first)
	count, ok2 := parseDigits(second)
	return edge, count, metadata, tagged && found && ok1 && ok2
}
