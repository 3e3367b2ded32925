package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

var script = store.NewScript("script", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	return append(reply, store.IntegerValue(tx.Now())), nil
})

// closed returns a pool of a server that does not exist.
func closed(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://weir@127.0.0.1:1/weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// calls calls every method of s, and returns the errors by the name of the method.
func calls(ctx context.Context, s *Store) map[string]error {
	_, eval := s.Eval(ctx, script, []string{"a"}, nil, nil)
	batch := []store.Eval{{Script: script, Keys: []string{"a"}}}
	s.EvalBatch(ctx, batch)
	_, mget := s.MGet(ctx, []string{"a"}, nil)
	_, now := s.Time(ctx)
	_, swept := s.Sweep(ctx)
	return map[string]error{"Eval": eval, "EvalBatch": batch[0].Err, "MGet": mget, "Time": now, "Sweep": swept}
}

func TestNil(t *testing.T) {
	for name, s := range map[string]*Store{"nil": nil, "zero": {}, "nil pool": New(nil)} {
		for call, err := range calls(t.Context(), s) {
			if !errors.Is(err, errNil) {
				t.Errorf("%s: %s returned %v, want %v", name, call, err, errNil)
			}
		}
		if _, err := weir.New("api", s, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}, nil); !errors.Is(err, errNil) {
			t.Errorf("%s: weir.New returned %v, want %v", name, err, errNil)
		}
	}
	if err := Migrate(t.Context(), nil); !errors.Is(err, errNil) {
		t.Errorf("Migrate returned %v, want %v", err, errNil)
	}
}

func TestUnavailable(t *testing.T) {
	pool := closed(t)
	check := func(what string, ctx context.Context, errs map[string]error, want, not error) {
		t.Helper()
		errs["Migrate"] = Migrate(ctx, pool)
		for call, err := range errs {
			if !errors.Is(err, want) || errors.Is(err, not) || !strings.HasPrefix(err.Error(), "postgres: ") {
				t.Errorf("%s: %s returned %v, want %v alone", what, call, err, want)
			}
		}
	}
	check("no server", t.Context(), calls(t.Context(), New(pool)), store.ErrUnavailable, context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check("cancelled", ctx, calls(ctx, New(pool)), context.Canceled, store.ErrUnavailable)
	pool.Close()
	check("closed pool", t.Context(), calls(t.Context(), New(pool)), store.ErrUnavailable, context.Canceled)
}

func TestMeaning(t *testing.T) {
	reply := func(code string) error { return &pgconn.PgError{Code: code, Message: "a message"} }
	pooling := &pgconn.PgError{Code: "08P01", Message: "transaction blocks not allowed in statement pooling mode"}
	for _, c := range []struct {
		what, call string
		err        error
		advice     string // if it is a mistake
	}{
		{"lost connection", "eval x", io.ErrUnexpectedEOF, ""},
		{"serialization failure", "eval x", reply("40001"), ""},
		{"lock timeout of the role", "eval x", reply("55P03"), ""},
		{"statement timeout of the role", "eval x", reply("57014"), ""},
		{"disk full", "eval x", reply("53100"), "free the disk"},
		{"no operator", "eval x", reply("42883"), "another table"},
		{"a view", "eval x", reply("55000"), "another table"},
		{"no TLS", "eval x", errors.New("tls error: server refused TLS connection"), "agree on TLS"},
		{"statement pooling", "eval x", pooling, "pool_mode=transaction"},
		{"no table", "eval x", reply("42P01"), "Migrate"},
		{"no privilege", "eval x", reply("42501"), "GRANT SELECT"},
		{"no privilege to create the table", "migrate", reply("42501"), "GRANT CREATE ON the schema"},
		{"another error of Migrate", "migrate", reply("42883"), ""},
		{"no prepared statement", "eval x", reply("26000"), "default_query_exec_mode=exec"},
		{"a prepared statement", "eval x", reply("42P05"), "default_query_exec_mode=exec"},
		{"no schema", "eval x", reply("3F000"), "USAGE"},
	} {
		err := failed(t.Context(), c.call, c.err)
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, c.err) || errors.Is(err, store.ErrMisconfigured) != (c.advice != "") ||
			!strings.Contains(err.Error(), c.advice) || !strings.HasPrefix(err.Error(), "postgres: "+c.call+": ") {
			t.Errorf("%s: got %v, want the advice %q", c.what, err, c.advice)
		}
	}
	if err := failed(t.Context(), "eval x", reply("53200")); errors.Is(err, store.ErrMisconfigured) || !strings.Contains(err.Error(), "max_locks_per_transaction") {
		t.Errorf("too many locks: got %v", err)
	}
}

// A fixed context has a deadline, and no error yet.
type fixed struct {
	context.Context
	at time.Time
}

func (f fixed) Deadline() (time.Time, bool) { return f.at, true }

// The wait for locks ends before the deadline, so that the connection can be used again.
func TestLockTimeout(t *testing.T) {
	if got := lockTimeout(t.Context()); got != nil {
		t.Errorf("without a deadline: got %q, want nil", *got)
	}
	for _, left := range []time.Duration{-time.Hour, 0, time.Millisecond, 250 * time.Millisecond, time.Hour, 25 * 24 * time.Hour, weir.Never} {
		got, err := strconv.ParseInt(*lockTimeout(fixed{t.Context(), time.Now().Add(left)}), 10, 32) // a server accepts 31 bits
		most := left.Milliseconds() * 7 / 8
		if left >= time.Hour {
			most = (left - 100*time.Millisecond).Milliseconds()
		}
		if err != nil || got < 1 || got > max(most, 1) {
			t.Errorf("%v before the deadline: got %d ms, %v, want at least 1 and at most %d", left, got, err, most)
		}
	}
}

// A batch is split before it needs too many locks, and never within a call.
func TestParts(t *testing.T) {
	for _, c := range []struct{ keys, want []int }{
		{[]int{1}, []int{1}},
		{[]int{maxKeys, 1}, []int{1, 1}},
		{[]int{maxKeys - 1, 1, 1}, []int{2, 1}},
		{[]int{1, 2 * maxKeys, 1, 0}, []int{1, 1, 2}},
	} {
		var list []*store.Eval
		for _, n := range c.keys {
			list = append(list, &store.Eval{Keys: make([]string, n)})
		}
		var got []int
		groups, _ := new(table).Groups(list)
		for _, g := range groups {
			got = append(got, len(g))
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("calls with %v keys: got parts of %v calls, want %v", c.keys, got, c.want)
		}
	}
}

func TestHeld(t *testing.T) {
	some := func(list ...int64) (scores []pgtype.Int8) {
		for _, n := range list {
			scores = append(scores, pgtype.Int8{Int64: n, Valid: n >= 0})
		}
		return scores
	}
	a, b, other := []byte("a"), []byte("\xff\x00"), store.Content{Kind: store.Other}
	numbers := store.Nums{Tag: store.Tag{'g', '1'}, Len: 2, N: [store.MaxNums]int64{5, 6}}
	for i, c := range []struct {
		nums   []byte
		scores []pgtype.Int8
		texts  [][]byte
		want   store.Content
	}{
		{[]byte("g1 5 6"), nil, nil, store.Content{Kind: store.Numbers, Nums: numbers}},
		{[]byte(""), nil, nil, other},
		{[]byte("g1 -5"), nil, nil, other},
		{[]byte("g1 5"), some(1), [][]byte{a}, other},
		{nil, some(2, 1), [][]byte{b, a}, store.Content{Kind: store.Set, Members: []store.Member{{Score: 2, Text: "\xff\x00"}, {Score: 1, Text: "a"}}}},
		{nil, some(1, 2), [][]byte{a}, other},
		{nil, some(1, -1), [][]byte{a, b}, other},
		{nil, some(1, 2), [][]byte{a, nil}, other},
		{nil, nil, nil, store.Content{Kind: store.Set}},
	} {
		if got := held(c.nums, c.scores, c.texts); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("row %d: got %+v, want %+v", i, got, c.want)
		}
	}
}
