package nats

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/kit"
)

// Every key has a name of its own that a bucket allows.
func TestEscape(t *testing.T) {
	t.Parallel()
	valid := regexp.MustCompile(`^[-/_=.a-zA-Z0-9]+$`) // as KeyValue checks it
	seen := map[string]string{}
	check := func(key string) {
		name := escape(key)
		if !valid.MatchString(name) || name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, "..") {
			t.Errorf("%q becomes %q, which is no key of a bucket", key, name)
		}
		if other, ok := seen[name]; ok && other != key {
			t.Errorf("%q and %q both become %q", key, other, name)
		}
		seen[name] = key
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		const hard = ":./=2E3Aa{}\x00\xff *>"
		b := make([]byte, 1+r.IntN(4))
		for i := range b {
			b[i] = hard[r.IntN(len(hard))]
		}
		check(string(b))
	}
	for c := range 256 {
		check(string([]byte{byte(c)}))
	}
	if got := escape("weir:api:{ann}:rule.g2"); got != "weir/api/=7Bann=7D/rule.g2" {
		t.Errorf("got %s", got)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	code := func(c jetstream.ErrorCode) error { return &jetstream.APIError{Code: 400, ErrorCode: c} }
	for _, tt := range []struct {
		err                    error
		conflict, unconfigured bool
	}{
		{code(10071), true, false},
		{code(10164), true, false},
		{code(10176), true, false},
		{code(10210), true, false},
		{code(10059), false, true},
		{code(10166), false, true},
		{code(10174), false, true},
		{code(10023), false, true},
		{&jetstream.APIError{ErrorCode: 10077, Description: "maximum bytes exceeded"}, false, true},
		{&jetstream.APIError{ErrorCode: 10077, Description: "store is closed"}, false, false},
		{code(10008), false, false},
		{nats.ErrNoResponders, false, false},
		{nats.ErrDisconnected, false, false},
		{nats.ErrMaxPayload, false, true},
	} {
		got := failed(tt.err)
		if errors.Is(got, kit.ErrConflict) != tt.conflict || errors.Is(got, store.ErrMisconfigured) != tt.unconfigured || !errors.Is(got, tt.err) {
			t.Errorf("%v became %v", tt.err, got)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(new(nats.Conn))
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range []*Store{nil, {}, New(nil, "limits"), New(js, ""), New(js, "a.b")} {
		if st.Check() == nil || st.CheckDeadline() == nil {
			t.Errorf("%+v: Check returned no error", st)
		}
	}
	if err := New(js, "limits").Check(); err != nil {
		t.Error(err)
	}
}

// A changing is a JetStream whose stream has the settings cfg.
type changing struct {
	jetstream.JetStream
	conn *nats.Conn
	cfg  jetstream.StreamConfig
}

type stream struct {
	jetstream.Stream
	cfg jetstream.StreamConfig
}

func (c *changing) Conn() *nats.Conn { return c.conn }
func (c *changing) Stream(context.Context, string) (jetstream.Stream, error) {
	return stream{cfg: c.cfg}, nil
}
func (s stream) CachedInfo() *jetstream.StreamInfo { return &jetstream.StreamInfo{Config: s.cfg} }

// A piped is a server at the other end of a pipe.
type piped struct{ net.Conn }

func (p piped) InProcessConn() (net.Conn, error) { return p.Conn, nil }

// A store notices after a minute that somebody has changed the settings of the bucket, and
// at once that they are right again.
func TestLookAgain(t *testing.T) {
	client, server := net.Pipe()
	go func() { // a server that only greets
		_, _ = io.WriteString(server, "INFO {}\r\n")
		for in := bufio.NewScanner(server); in.Scan(); {
			if in.Text() == "PING" {
				_, _ = io.WriteString(server, "PONG\r\n")
			}
		}
	}()
	conn, err := nats.Connect("", nats.InProcessServer(piped{client}), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js := &changing{conn: conn, cfg: StreamConfig("limits")}
	b := &bucketDB{js: js, bucket: "limits"}
	check := func(maxAge time.Duration, wrong bool) {
		t.Helper()
		js.cfg.MaxAge = maxAge
		if err := b.checkStream(t.Context()); errors.Is(err, store.ErrMisconfigured) != wrong || err != nil != wrong {
			t.Errorf("MaxAge %v: got %v, want an error: %v", maxAge, err, wrong)
		}
	}
	check(0, false)
	check(1, false)
	b.looked.Add(-int64(lookAgain))
	check(1, true)
	check(1, true)
	check(0, false)
}
