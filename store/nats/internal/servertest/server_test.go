// Package servertest tests store/nats on servers that run inside the tests. It is a
// module of its own, so that users of the store do not depend on the server.
package servertest

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/store"
	weirnats "github.com/weir-go/weir/store/nats"
)

// start starts a server, which listens on a free port if opts names none.
func start(t testing.TB, opts *server.Options) *server.Server {
	t.Helper()
	s := launch(t, opts)
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not listen")
	}
	return s
}

// launch starts a server, and does not wait until it listens.
func launch(t testing.TB, opts *server.Options) *server.Server {
	t.Helper()
	opts.Host, opts.JetStream, opts.NoLog, opts.NoSigs, opts.MaxPayload = "127.0.0.1", true, true, true, 8<<20
	opts.JetStreamLimits.MaxBatchSize = cmp.Or(opts.JetStreamLimits.MaxBatchSize, 4096) // more than an Eval can have keys
	if opts.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	if opts.StoreDir == "" {
		opts.StoreDir = t.TempDir()
	}
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	return s
}

// stop stops s, and waits until it has.
func stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// connect returns a JetStream over a new connection.
func connect(t testing.TB, url string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, append([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond), nats.ReconnectJitter(0, 0)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// create creates the bucket limits with the changes of change.
func create(t testing.TB, js jetstream.JetStream, change func(*jetstream.StreamConfig)) {
	t.Helper()
	cfg := weirnats.StreamConfig("limits")
	cfg.Storage = jetstream.MemoryStorage
	if change != nil {
		change(&cfg)
	}
	if _, err := js.CreateOrUpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// open starts a server with the bucket limits in memory.
func open(t testing.TB) jetstream.JetStream {
	t.Helper()
	s := start(t, &server.Options{})
	t.Cleanup(func() { stop(s) })
	js := connect(t, s.ClientURL())
	create(t, js, nil)
	return js
}

// A tap knows the subjects to which values were published, so that a test needs not list
// the whole bucket.
type tap struct {
	mu       sync.Mutex
	sub      *nats.Subscription
	subjects map[string]string // and their keys
}

func newTap(t *testing.T, js jetstream.JetStream) *tap {
	sub, err := js.Conn().SubscribeSync("$KV.limits.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	return &tap{sub: sub, subjects: map[string]string{}}
}

// keys returns the live keys whose names contain part, and their TTLs.
func (p *tap) keys(t *testing.T, js jetstream.JetStream, part string) map[string]time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := js.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := p.sub.NextMsg(0)
		if err != nil {
			break
		}
		p.subjects[m.Subject] = unescape(strings.TrimPrefix(m.Subject, "$KV.limits."))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // longer than the default, for a busy machine
	defer cancel()
	stream, err := js.Stream(ctx, "KV_limits")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]time.Duration{}
	for subject, key := range p.subjects {
		if !strings.Contains(key, part) {
			continue
		}
		m, err := stream.GetLastMsgForSubject(ctx, subject)
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			t.Fatal(err)
		}
		if err != nil || len(m.Data) == 0 {
			continue // deleted
		}
		expires, _ := strconv.ParseInt(strings.Fields(string(m.Data))[1], 10, 64)
		left := time.Until(time.UnixMicro(expires))
		ttl, _ := strconv.Atoi(m.Header.Get(jetstream.MsgTTLHeader))
		if most := time.Until(m.Time.Add(time.Duration(ttl) * time.Second)); most < left+time.Hour-time.Minute || most > left+time.Hour+time.Minute {
			t.Errorf("the message of %s ends in %v, and its value in %v: want about an hour later", subject, most, left)
		}
		if left > 0 {
			found[key] = left
		}
	}
	return found
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '/':
			b.WriteByte(':')
		case '=':
			n, _ := strconv.ParseUint(s[i+1:i+3], 16, 8)
			b.WriteByte(byte(n))
			i += 2
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

func TestConformance(t *testing.T) {
	t.Parallel()
	js := open(t)
	tap := newTap(t, js)
	peer := connect(t, js.Conn().ConnectedUrl())
	conformance.Run(t, conformance.Backend{
		New: func(t *testing.T) store.Store {
			return weirnats.New(connect(t, js.Conn().ConnectedUrl()), "limits")
		},
		Peer:  func(*testing.T, store.Store) store.Store { return weirnats.New(peer, "limits") },
		Where: func(*testing.T, store.Store) string { return js.Conn().ConnectedUrl() },
		Open: func(t *testing.T, url string) store.Store {
			return weirnats.New(connect(t, url), "limits")
		},
		Reopen: func(t *testing.T, _ store.Store) store.Store {
			return weirnats.New(connect(t, js.Conn().ConnectedUrl()), "limits")
		},
		Plant:  func(t *testing.T, _ store.Store, key string, raw []byte) { plant(t, js, key, raw) },
		Writes: func(t *testing.T, _ store.Store) int64 { return int64(sequence(t, js)) },
		Keys:   func(t *testing.T, _ store.Store, part string) map[string]time.Duration { return tap.keys(t, js, part) },
		Faults: faults(),
		Strict: true,
		Unsupported: map[string]string{
			"List/Misuse":      "the store is no Lister",
			"List/Meanwhile":   "the store is no Lister",
			"List/Prefix":      "the store is no Lister",
			"Store/ScriptLoss": "NATS has no scripts",
			"Batch/ScriptLoss": "NATS has no scripts",
		},
		Parallel: 8,
		Brief:    true,
	})
}

// plant makes raw the value of key, past the store.
func plant(t *testing.T, js jetstream.JetStream, key string, raw []byte) {
	kv, err := js.KeyValue(t.Context(), "limits")
	if err != nil {
		t.Fatal(err)
	}
	name := strings.NewReplacer(":", "/", "{", "=7B", "}", "=7D").Replace(key)
	if unescape(name) != key {
		t.Fatalf("plant knows no name for the key %q", key)
	}
	if _, err := kv.Put(t.Context(), name, raw); err != nil {
		t.Fatal(err)
	}
}
