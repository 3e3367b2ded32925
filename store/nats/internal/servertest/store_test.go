package servertest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	weirnats "github.com/weir-go/weir/store/nats"
)

var daily = algorithm.FixedWindow{Limit: 1_000_000, Window: 24 * time.Hour}

func limiter(t testing.TB, st store.Store) *weir.Limiter {
	t.Helper()
	lim, err := weir.New("api", st, daily, nil)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// A bucket with a setting that would make decisions fail or be wrong is an error that
// names the setting. A store notices when it is corrected.
func TestSettings(t *testing.T) {
	t.Parallel()
	js := open(t)
	if err := js.DeleteStream(t.Context(), "KV_limits"); err != nil {
		t.Fatal(err)
	}
	lim := limiter(t, weirnats.New(js, "limits"))
	wrong := func(want string) {
		t.Helper()
		_, err := lim.Allow(t.Context(), "ann")
		if !errors.Is(err, store.ErrMisconfigured) || !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ErrMisconfigured because of %q", err, want)
		}
	}
	wrong("create the bucket")
	for want, change := range map[string]func(*jetstream.StreamConfig){
		"MaxAge":             func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"MaxMsgsPerSubject":  func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 },
		"Discard":            func(c *jetstream.StreamConfig) { c.Discard, c.MaxBytes = jetstream.DiscardOld, 1<<20 },
		"NoAck":              func(c *jetstream.StreamConfig) { c.NoAck, c.AllowAtomicPublish = true, false },
		"AllowMsgTTL":        func(c *jetstream.StreamConfig) { c.AllowMsgTTL = false },
		"AllowAtomicPublish": func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false },
	} {
		create(t, js, change)
		wrong(want)
		if err := js.DeleteStream(t.Context(), "KV_limits"); err != nil {
			t.Fatal(err)
		}
	}
	create(t, js, nil)
	if _, err := lim.Allow(t.Context(), "ann"); err != nil {
		t.Error(err)
	}
	// The settings are checked again if the bucket was missing.
	if err := js.DeleteStream(t.Context(), "KV_limits"); err != nil {
		t.Fatal(err)
	}
	if _, err := lim.Allow(t.Context(), "ann"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("without the bucket: got %v", err)
	}
	create(t, js, func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })
	wrong("MaxAge")
	if err := js.DeleteStream(t.Context(), "KV_limits"); err != nil {
		t.Fatal(err)
	}
	create(t, js, nil)
	if _, err := lim.Allow(t.Context(), "ann"); err != nil {
		t.Error(err)
	}
	kv, err := js.KeyValue(t.Context(), "limits") // tools can read the bucket
	if err != nil {
		t.Fatal(err)
	}
	lister, err := kv.ListKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for key := range lister.Keys() {
		if e, err := kv.Get(t.Context(), key); err != nil || !strings.HasPrefix(key, "weir/api/=7Bann=7D") || !strings.HasPrefix(string(e.Value()), "n1 ") {
			t.Errorf("the bucket holds %s: %v, %v", key, e, err)
		}
	}
}

// A decision over more keys than the server accepts in a batch says what to set, and
// consumes nothing.
func TestManyKeys(t *testing.T) {
	t.Parallel()
	p := weir.Policy{Name: "api"}
	for i := range 8 { // each of 127 keys
		p.Rules = append(p.Rules, weir.Rule{Name: fmt.Sprint("rule", i), Algorithm: algorithm.SlidingBuckets{
			Width: time.Hour, Spans: []algorithm.Span{{Window: 127 * time.Hour, Limit: 5}},
		}})
	}
	for most, fits := range map[int]bool{1000: false, 8 * 127: true} {
		s := start(t, &server.Options{JetStreamLimits: server.JSLimitOpts{MaxBatchSize: most}})
		t.Cleanup(func() { stop(s) })
		js := connect(t, s.ClientURL())
		create(t, js, nil)
		lim, err := weir.NewPolicy(weirnats.New(js, "limits"), p, nil)
		if err != nil {
			t.Fatal(err)
		}
		left := int64(5)
		switch _, err := lim.Allow(t.Context(), "ann"); {
		case fits && err == nil:
			left = 4
		case fits || !errors.Is(err, store.ErrMisconfigured) || !strings.Contains(err.Error(), "max_msgs"):
			t.Errorf("a batch of at most %d: got %v", most, err)
		}
		if res, err := lim.Peek(t.Context(), "ann"); err != nil || res.Remaining != left {
			t.Errorf("a batch of at most %d: then %d remain, %v, want %d", most, res.Remaining, err, left)
		}
	}
}

// A key that a tool has deleted or purged is missing, and an empty text is a foreign value.
func TestDeleted(t *testing.T) {
	t.Parallel()
	js := open(t)
	lim := limiter(t, weirnats.New(js, "limits"))
	if _, err := lim.Allow(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), "limits")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kv.Keys(t.Context())
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	if _, err := kv.PutString(t.Context(), keys[0], ""); err != nil {
		t.Fatal(err)
	}
	if _, err := lim.Allow(t.Context(), "ann"); !errors.Is(err, store.ErrForeign) {
		t.Errorf("a key that holds an empty text: got %v, want ErrForeign", err)
	}
	for _, end := range []func(context.Context, string, ...jetstream.KVDeleteOpt) error{kv.Delete, kv.Purge} {
		if err := end(t.Context(), keys[0]); err != nil {
			t.Fatal(err)
		}
		if res, err := lim.Allow(t.Context(), "ann"); err != nil || res.Remaining != daily.Limit-1 {
			t.Errorf("after the key was deleted, got %+v, %v", res, err)
		}
	}
}

// sequence returns the number of messages that the stream has ever stored.
func sequence(t *testing.T, js jetstream.JetStream) uint64 {
	s, err := js.Stream(t.Context(), "KV_limits")
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.LastSeq
}

// Without a connection, a call fails at once, even if its context has no end.
func TestDisconnected(t *testing.T) {
	t.Parallel()
	s := start(t, &server.Options{})
	js := connect(t, s.ClientURL())
	create(t, js, nil)
	lim := limiter(t, weirnats.New(js, "limits"))
	if _, err := lim.Allow(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	stop(s)
	for js.Conn().Status() == nats.CONNECTED {
		time.Sleep(time.Millisecond)
	}
	_, err := lim.Allow(context.Background(), "ann")
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrMisconfigured) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

// Ready names a mistake of the connection, though the client goes on to connect, or sends
// what the user has no right to.
func TestReady(t *testing.T) {
	t.Parallel()
	cert := httptest.NewTLSServer(nil)
	defer cert.Close()
	few := &server.User{Username: "few", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"$JS.>"}}}}
	users := &server.Options{Users: []*server.User{{Username: "all"}, few}}
	secure := &server.Options{TLS: true, TLSTimeout: 60, TLSConfig: &tls.Config{Certificates: cert.TLS.Certificates}}
	for says, c := range map[string]struct {
		server        *server.Options
		admin, client nats.Option
	}{
		"the credentials":         {users, nats.UserInfo("all", ""), nil},
		"grant it to the user":    {users, nats.UserInfo("all", ""), nats.UserInfo("few", "")},
		"certificate signed by":   {secure, nats.Secure(&tls.Config{InsecureSkipVerify: true}), nats.Secure(&tls.Config{})},
		"MaxBytes and MaxMsgs of": {&server.Options{}, nil, nil},
	} {
		s := start(t, c.server.Clone())
		defer stop(s)
		create(t, connect(t, s.ClientURL(), c.admin), func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 1 })
		lim := limiter(t, weirnats.New(connect(t, s.ClientURL(), c.client, nats.RetryOnFailedConnect(true)), "limits"))
		var err error
		for !errors.Is(err, store.ErrMisconfigured) { // the client connects in the background
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			err = lim.Ready(ctx)
			cancel()
		}
		if errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want a mistake alone that says %q", err, says)
		}
	}
}

// With a domain, requests and values go to the servers of the domain.
func TestDomain(t *testing.T) {
	t.Parallel()
	s := start(t, &server.Options{JetStreamDomain: "hub"})
	t.Cleanup(func() { stop(s) })
	plain := connect(t, s.ClientURL())
	create(t, plain, nil)
	domain, err := jetstream.NewWithDomain(plain.Conn(), "hub")
	if err != nil {
		t.Fatal(err)
	}
	prefix, err := jetstream.NewWithAPIPrefix(plain.Conn(), "$JS.hub.API")
	if err != nil {
		t.Fatal(err)
	}
	for i, js := range []jetstream.JetStream{plain, domain, prefix} {
		if res, err := limiter(t, weirnats.New(js, "limits")).Allow(t.Context(), "ann"); err != nil || res.Remaining != daily.Limit-int64(i)-1 {
			t.Errorf("%d: got %+v, %v", i, res, err)
		}
	}
}
