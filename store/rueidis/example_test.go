package rueidis_test

import (
	"log"
	"net"
	"time"

	"github.com/redis/rueidis"

	rueidisstore "github.com/weir-go/weir/store/rueidis"
)

// This client has one server. The timeouts limit the time of a decision without a
// deadline.
func ExampleNew() {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:       []string{"localhost:6379"},
		ForceSingleClient: true,
		DisableCache:      true,
		DisableRetry:      true,
		Dialer:            net.Dialer{Timeout: time.Second},
		DialCtxFn:         rueidisstore.Dial,
		ConnWriteTimeout:  time.Second,
	})
	if err != nil {
		log.Fatal(err) // for example, the server is not running
	}
	defer client.Close()

	st := rueidisstore.New(client)
	if err := st.Check(); err != nil { // weir.New calls it too
		log.Fatal(err)
	}
}

func ExampleNew_cluster() {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:  []string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"},
		DialCtxFn:    rueidisstore.Dial,
		DisableCache: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	_ = rueidisstore.New(client)
}

func ExampleNew_sentinel() {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:  []string{"10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"},
		Sentinel:     rueidis.SentinelOption{MasterSet: "mymaster"},
		DialCtxFn:    rueidisstore.Dial,
		DisableCache: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	_ = rueidisstore.New(client)
}
