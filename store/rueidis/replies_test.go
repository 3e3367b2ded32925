package rueidis

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/redis/rueidis"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/wiretest"
)

// A short client returns only the first result of several commands.
type short struct{ rueidis.Client }

func (c short) DoMulti(ctx context.Context, cmds ...rueidis.Completed) []rueidis.RedisResult {
	return c.Client.DoMulti(ctx, cmds...)[:1]
}

// A wrapper of a client can return fewer results than it was given commands.
func TestTooFewResults(t *testing.T) {
	t.Parallel()
	srv := wiretest.NewCluster(t, func(args []string) string {
		if args[0] == "MGET" {
			return wiretest.AnswerMGet(args)
		}
		return "$1\r\nx\r\n"
	})
	s := New(short{cluster(t, srv.Addr)})
	calls := []store.Eval{{Script: script, Keys: []string{"a"}}, {Script: script, Keys: []string{"b"}}}
	s.EvalBatch(t.Context(), calls)
	if calls[0].Err != nil || len(calls[0].Reply) != 1 || !errors.Is(calls[1].Err, store.ErrUnavailable) || calls[1].Reply != nil {
		t.Errorf("batch: got %+v", calls)
	}
	if got, err := s.MGet(t.Context(), []string{"a", "b"}, nil); !errors.Is(err, store.ErrUnavailable) || len(got) != 0 {
		t.Errorf("mget: got %v, %v", got, err)
	}
}

// A value that is not in a list is no reply to MGET, even if one key is read.
func TestNotAList(t *testing.T) {
	t.Parallel()
	srv := wiretest.NewCluster(t, func([]string) string { return "$1\r\n1\r\n" })
	for _, c := range []rueidis.Client{single(t, srv.Addr), cluster(t, srv.Addr)} {
		if got, err := New(c).MGet(t.Context(), []string{"a"}, nil); !errors.Is(err, store.ErrUnavailable) || len(got) != 0 {
			t.Errorf("mget: got %v, %v", got, err)
		}
		if got, err := New(c).Time(t.Context()); !errors.Is(err, store.ErrUnavailable) || !got.IsZero() {
			t.Errorf("time: got %v, %v", got, err)
		}
	}
}

// If a reply has too many values, the spare capacity of the caller's slice stays as it
// is.
func TestTooManyValues(t *testing.T) {
	t.Parallel()
	srv := wiretest.NewServer(t, func([]string) string { return "*3\r\n$1\r\nx\r\n$1\r\ny\r\n$1\r\nz\r\n" })
	values := []store.Value{store.IntegerValue(1), store.IntegerValue(2), store.IntegerValue(3), store.IntegerValue(4)}
	got, err := New(single(t, srv.Addr)).MGet(t.Context(), []string{"a"}, values[:1])
	if !errors.Is(err, store.ErrUnavailable) || !slices.Equal(got, values[:1]) {
		t.Errorf("got %v, %v", got, err)
	}
	if values[2] != store.IntegerValue(3) || values[3] != store.IntegerValue(4) {
		t.Errorf("the caller's slice is %v", values)
	}
}

// The values of several slots come back in the order of the keys, behind what was there.
func TestOrder(t *testing.T) {
	t.Parallel()
	srv := wiretest.NewCluster(t, wiretest.AnswerMGet)
	keys := []string{"1{a}", "1{b}", "2{a}", "2{b}", "3{a}"} // {b} has the lower slot
	got, err := New(cluster(t, srv.Addr)).MGet(t.Context(), keys, []store.Value{{}})
	want := []store.Value{{}}
	for _, key := range keys {
		want = append(want, store.BulkValue(key))
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
