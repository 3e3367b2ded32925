// This program limits requests, and serves the metrics of its limiter to Prometheus.
package main

import (
	"fmt"
	"log"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
	"github.com/weir-go/weir/weirotel"
)

func newServer() (http.Handler, error) {
	lim, err := weir.New("api", memory.New(nil), algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}, nil)
	if err != nil {
		return nil, err
	}
	exporter, err := prometheus.New() // what promhttp.Handler serves
	if err != nil {
		return nil, err
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	observer, err := weirotel.New(provider, attribute.String("weir.limiter", "api"))
	if err != nil {
		return nil, err
	}
	if lim, err = lim.Wrap(observer.Wrap); err != nil {
		return nil, err
	}
	limit, err := weirhttp.New(lim, weirhttp.By(weirhttp.RemoteIP), nil)
	if err != nil {
		return nil, err
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.Handler()) // without a limit
	mux.Handle("/", limit(hello))
	return mux, nil
}

func main() {
	server, err := newServer()
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("localhost:8080", server))
}
