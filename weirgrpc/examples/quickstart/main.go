// Command quickstart limits the calls to a gRPC server, and calls it three times.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirgrpc"
)

func newServer() (*grpc.Server, error) {
	lim, err := weir.New("api", memory.New(nil), algorithm.FixedWindow{Limit: 2, Window: time.Hour}, nil)
	if err != nil {
		return nil, err
	}
	limit, err := weirgrpc.NewServerInterceptor(lim, weirgrpc.By(weirgrpc.PeerIP), nil)
	if err != nil {
		return nil, err
	}
	return grpc.NewServer(
		grpc.ChainUnaryInterceptor(limit.Unary),
		grpc.ChainStreamInterceptor(limit.Stream),
	), nil
}

func main() {
	server, err := newServer()
	if err != nil {
		log.Fatal(err)
	}
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	client := healthpb.NewHealthClient(conn)
	for range 3 {
		_, err := client.Check(context.Background(), new(healthpb.HealthCheckRequest))
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
}
