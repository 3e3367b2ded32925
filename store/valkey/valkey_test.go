package valkey

import (
	"net"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/weir-go/weir/store/internal/rueidistest"
)

// The tests are those of store/rueidis too.
func TestStore(t *testing.T) {
	rueidistest.Run(t, rueidistest.Subject{
		Name: "valkey",
		Open: open,
		Unfit: map[string]rueidistest.Store{
			"nil":         New(nil),
			"nil pointer": New((*struct{ valkey.Client })(nil)),
			"zero":        &Store{},
			"nil store":   (*Store)(nil),
		},
		Closing: valkey.ErrClosing,
	})
}

// open returns a client and a store over it.
func open(o rueidistest.Options) (*rueidistest.Client, error) {
	options := valkey.ClientOption{
		InitAddress:       []string{o.Addr},
		ForceSingleClient: !o.Cluster,
		AlwaysRESP2:       true,
		DisableCache:      true,
		DisableRetry:      !o.Retry,
		AlwaysPipelining:  o.Pipelining,
		PipelineMultiplex: -1,
		Dialer:            net.Dialer{Timeout: time.Second},
		DialCtxFn:         o.Dial,
		ConnWriteTimeout:  o.WriteTimeout,
	}
	if o.FromReplicas {
		options.SendToReplicas = func(cmd valkey.Completed) bool { return cmd.IsReadOnly() }
	}
	c, err := valkey.NewClient(options)
	if c == nil {
		return nil, err
	}
	return &rueidistest.Client{
		Store:    New(c),
		Close:    c.Close,
		Modeless: New(modeless{c}),
		Slot: func(sha, key string) int {
			cmd := c.B().Evalsha().Sha1(sha).Numkeys(1).Key(key).Build()
			return int(cmd.Slot())
		},
	}, err
}

// A modeless client has no mode.
type modeless struct{ valkey.Client }

func (modeless) Mode() valkey.ClientMode { return "" }
