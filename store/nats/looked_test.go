package nats

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-go/weir/store"
)

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

// A store notices after a minute that somebody has changed the settings of the bucket, and
// at once that they are right again.
func TestLookAgain(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() { // a server that only greets
		conn, _ := l.Accept()
		_, _ = io.WriteString(conn, "INFO {}\r\n")
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if lines.Text() == "PING" {
				_, _ = io.WriteString(conn, "PONG\r\n")
			}
		}
	}()
	conn, err := nats.Connect(l.Addr().String(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js := &changing{conn: conn, cfg: StreamConfig("limits")}
	b := &bucketDB{js: js, bucket: "limits"}
	for i, step := range []struct {
		age, maxAge time.Duration
		wrong       bool
	}{{0, 0, false}, {0, time.Second, false}, {lookAgain, time.Second, true}, {0, time.Second, true}, {0, 0, false}, {0, time.Second, false}} {
		if b.looked.Load() != 0 {
			b.looked.Store(time.Now().Add(-step.age).UnixNano())
		}
		js.cfg.MaxAge = step.maxAge
		if err := b.checkStream(t.Context()); errors.Is(err, store.ErrMisconfigured) != step.wrong || err != nil != step.wrong {
			t.Errorf("step %d: got %v, want an error: %v", i, err, step.wrong)
		}
	}
}
