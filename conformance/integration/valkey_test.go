package integration

import (
	"net"
	"sync"
	"testing"
	"time"

	valkeyclient "github.com/valkey-io/valkey-go"

	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/valkey"
)

// This file makes the clients of valkey-go, with the settings that the tests use for rueidis.

func openValkey(e servers.Endpoint) (store.Store, func(), error) {
	return valkeyOf(valkeyOptions(e))
}

func boundedValkey(e servers.Endpoint, timeout time.Duration) (store.Store, func(), error) {
	options := valkeyOptions(e)
	options.DisableRetry = true
	options.AlwaysPipelining = true
	options.Dialer = net.Dialer{Timeout: timeout}
	options.ConnWriteTimeout = timeout
	options.Sentinel.Dialer = options.Dialer
	return valkeyOf(options)
}

// valkeyFromReplicas is rueidisFromReplicas for valkey-go.
func valkeyFromReplicas(t *testing.T, addrs []string) store.Store {
	st, closeClient, err := valkeyOf(valkeyclient.ClientOption{
		InitAddress: addrs[:len(addrs)/2], DisableCache: true,
		SendToReplicas: func(cmd valkeyclient.Completed) bool { return cmd.IsReadOnly() },
		Dialer:         net.Dialer{Timeout: longTimeout}, ConnWriteTimeout: longTimeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeClient)
	return st
}

// valkeyOptions returns the options that an endpoint needs.
func valkeyOptions(e servers.Endpoint) valkeyclient.ClientOption {
	options := valkeyclient.ClientOption{
		InitAddress: e.Addrs, TLSConfig: e.TLS, Username: e.User, Password: e.Password,
		ForceSingleClient: e.Kind == servers.Single,
		DisableCache:      true, // miniredis has no CLIENT TRACKING
		Dialer:            net.Dialer{Timeout: longTimeout},
		DialCtxFn:         valkey.Dial,
		ConnWriteTimeout:  longTimeout,
	}
	if e.Kind == servers.Sentinel {
		options.Sentinel.MasterSet = e.Master
	}
	return options
}

// valkeyOf returns a store over a new client, and a function that closes the client.
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
