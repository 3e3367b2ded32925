package valkey_test

import (
	"log"
	"net"
	"time"

	"github.com/valkey-io/valkey-go"

	valkeystore "github.com/weir-go/weir/store/valkey"
)

// This client has one server. The timeouts limit the time of a decision without a deadline.
func ExampleNew() {
	client, err := valkey.NewClient(valkey.ClientOption{
		InitAddress:       []string{"localhost:6379"},
		ForceSingleClient: true,
		DisableCache:      true,
		DisableRetry:      true,
		Dialer:            net.Dialer{Timeout: time.Second},
		ConnWriteTimeout:  time.Second,
	})
	if err != nil {
		log.Fatal(err) // for example, the server is not running
	}
	defer client.Close()

	st := valkeystore.New(client)
	if err := st.Check(); err != nil { // weir.New calls it too
		log.Fatal(err)
	}
}

func ExampleNew_cluster() {
	client, err := valkey.NewClient(valkey.ClientOption{
		InitAddress:  []string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"},
		DisableCache: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	_ = valkeystore.New(client)
}

func ExampleNew_sentinel() {
	client, err := valkey.NewClient(valkey.ClientOption{
		InitAddress:  []string{"10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"},
		Sentinel:     valkey.SentinelOption{MasterSet: "mymaster"},
		DisableCache: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	_ = valkeystore.New(client)
}
