package integration

import (
	"net"
	"sync"
	"time"

	valkeyclient "github.com/valkey-io/valkey-go"

	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/valkey"
)

// This file makes the clients of valkey-go, with the settings that the tests use for rueidis.

func openValkey(e servers.Endpoint) (store.Store, func(), error) {
	return valkeyOf(valkeyOptions(e, longTimeout))
}

func boundedValkey(e servers.Endpoint, timeout time.Duration) (store.Store, func(), error) {
	options := valkeyOptions(e, timeout)
	options.DisableRetry, options.AlwaysPipelining = true, true
	return valkeyOf(options)
}

// valkeyFromReplicas is rueidisFromReplicas for valkey-go.
func valkeyFromReplicas(addrs []string) (store.Store, func(), error) {
	options := valkeyOptions(servers.Endpoint{Kind: servers.Cluster, Addrs: addrs[:len(addrs)/2]}, longTimeout)
	options.SendToReplicas = func(cmd valkeyclient.Completed) bool { return cmd.IsReadOnly() }
	return valkeyOf(options)
}

func valkeyOptions(e servers.Endpoint, timeout time.Duration) valkeyclient.ClientOption {
	options := valkeyclient.ClientOption{
		InitAddress: e.Addrs, TLSConfig: e.TLS, Username: e.User, Password: e.Password,
		ForceSingleClient: e.Kind == servers.Single,
		DisableCache:      true, // miniredis has no CLIENT TRACKING
		Dialer:            net.Dialer{Timeout: timeout},
		DialCtxFn:         valkey.Dial,
		ConnWriteTimeout:  timeout,
	}
	if e.Kind == servers.Sentinel {
		options.Sentinel = valkeyclient.SentinelOption{MasterSet: e.Master, Dialer: options.Dialer}
	}
	return options
}

func valkeyOf(options valkeyclient.ClientOption) (store.Store, func(), error) {
	c, err := valkeyclient.NewClient(options)
	if err != nil {
		if c != nil {
			c.Close()
		}
		return nil, nil, err
	}
	return valkey.New(c), sync.OnceFunc(c.Close), nil
}
