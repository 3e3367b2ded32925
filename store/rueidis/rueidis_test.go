package rueidis

import (
	"net"
	"testing"
	"time"

	redis "github.com/redis/rueidis"

	"github.com/weir-go/weir/store/internal/rueidistest"
)

// The tests are those of store/valkey too.
func TestStore(t *testing.T) {
	rueidistest.Run(t, rueidistest.Subject{
		Name: "rueidis",
		Open: open,
		Unfit: map[string]rueidistest.Store{
			"nil":         New(nil),
			"nil pointer": New((*struct{ redis.Client })(nil)),
			"zero":        &Store{},
			"nil store":   (*Store)(nil),
		},
		Closing: redis.ErrClosing,
	})
}

// open returns a client and a store over it.
func open(o rueidistest.Options) (*rueidistest.Client, error) {
	options := redis.ClientOption{
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
		options.SendToReplicas = func(cmd redis.Completed) bool { return cmd.IsReadOnly() }
	}
	c, err := redis.NewClient(options)
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
type modeless struct{ redis.Client }

func (modeless) Mode() redis.ClientMode { return "" }
