package weirgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	reflectpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirgrpc"
)

// startExample serves server on a free port, and returns a connection to it.
func startExample(server *grpc.Server, opts ...grpc.DialOption) *grpc.ClientConn {
	healthpb.RegisterHealthServer(server, health.NewServer())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		log.Fatal(err)
	}
	return conn
}

// Each address makes two calls in an hour.
func Example() {
	lim, err := weir.New("api", memory.New(nil), algorithm.FixedWindow{Limit: 2, Window: time.Hour}, nil)
	if err != nil {
		log.Fatal(err)
	}
	limit, err := weirgrpc.NewServerInterceptor(lim, weirgrpc.By(weirgrpc.PeerIP), nil)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limit.Unary),
		grpc.ChainStreamInterceptor(limit.Stream),
	)
	defer server.Stop()

	client := healthpb.NewHealthClient(startExample(server))
	for range 3 {
		_, err := client.Check(context.Background(), new(healthpb.HealthCheckRequest))
		st := status.Convert(err)
		fmt.Println(st.Code())
		for _, d := range st.Details() {
			if quota, ok := d.(*errdetails.QuotaFailure); ok {
				fmt.Println(quota.Violations[0].Description)
			}
		}
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
	// at most 2 tokens in 1h0m0s
}

// Each API key has a limit of its own for each method. Health checks are not limited.
func ExampleByName() {
	segments := []string{"key", "method"}
	lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{
		Name:     "api",
		Segments: segments,
		Rules:    []weir.Rule{{Algorithm: algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}}},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	byKey, err := weirgrpc.ByName(segments, map[string]weirgrpc.Segment{
		"key":    weirgrpc.Metadata("x-api-key"),
		"method": weirgrpc.Method,
	})
	if err != nil {
		log.Fatal(err)
	}
	limit, err := weirgrpc.NewServerInterceptor(lim, func(ctx context.Context, method string) (weir.Request, error) {
		if method == healthpb.Health_Check_FullMethodName {
			return weir.Request{}, weirgrpc.ErrUnlimited
		}
		return byKey(ctx, method)
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary), grpc.ChainStreamInterceptor(limit.Stream))
	defer server.Stop()

	client := healthpb.NewHealthClient(startExample(server))
	_, err = client.Check(context.Background(), new(healthpb.HealthCheckRequest))
	fmt.Println("Check without a key:", status.Code(err))
	_, err = client.List(context.Background(), new(healthpb.HealthListRequest))
	fmt.Println("List without a key:", status.Code(err))
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-api-key", "k3y")
	_, err = client.List(ctx, new(healthpb.HealthListRequest))
	fmt.Println("List with a key:", status.Code(err))
	// Output:
	// Check without a key: OK
	// List without a key: InvalidArgument
	// List with a key: OK
}

// At most one call of each method runs at once.
func ExampleServerInterceptor_leases() {
	lim, err := weir.New("running", memory.New(nil), algorithm.Concurrency{Limit: 1, Lease: time.Minute}, nil)
	if err != nil {
		log.Fatal(err)
	}
	limit, err := weirgrpc.NewServerInterceptor(lim, weirgrpc.By(weirgrpc.Method), nil)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary), grpc.ChainStreamInterceptor(limit.Stream))
	defer server.Stop()

	client := healthpb.NewHealthClient(startExample(server))
	watch := func() error {
		stream, err := client.Watch(context.Background(), new(healthpb.HealthCheckRequest))
		if err != nil {
			return err
		}
		_, err = stream.Recv() // the stream stays open
		return err
	}
	fmt.Println("first stream:", status.Code(watch()))
	fmt.Println("second stream:", status.Code(watch()))
	// Output:
	// first stream: OK
	// second stream: ResourceExhausted
}

// Each address has one stream at once, and sends two messages in an hour.
func ExampleServerInterceptor_Messages() {
	st := memory.New(nil)
	open, err := weir.New("streams", st, algorithm.Concurrency{Limit: 1, Lease: time.Minute}, nil)
	if err != nil {
		log.Fatal(err)
	}
	sent, err := weir.New("messages", st, algorithm.FixedWindow{Limit: 2, Window: time.Hour}, nil)
	if err != nil {
		log.Fatal(err)
	}
	streams, err := weirgrpc.NewServerInterceptor(open, weirgrpc.By(weirgrpc.PeerIP), nil)
	if err != nil {
		log.Fatal(err)
	}
	messages, err := weirgrpc.NewServerInterceptor(sent, weirgrpc.By(weirgrpc.PeerIP), nil)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainStreamInterceptor(streams.Stream, messages.Messages))
	defer server.Stop()
	reflection.Register(server)

	client := reflectpb.NewServerReflectionClient(startExample(server))
	stream, err := client.ServerReflectionInfo(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		err := stream.Send(&reflectpb.ServerReflectionRequest{MessageRequest: new(reflectpb.ServerReflectionRequest_ListServices)})
		if err == nil {
			_, err = stream.Recv()
		}
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
}

// A client keeps to the limit of a service: one call in an hour.
func ExampleClientInterceptor() {
	lim, err := weir.New("billing", memory.New(nil), algorithm.LeakyBucket{Rate: algorithm.PerHour(1), Queue: 10}, nil)
	if err != nil {
		log.Fatal(err)
	}
	pace, err := weirgrpc.NewClientInterceptor(lim, weirgrpc.By(weirgrpc.Text("billing")))
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	defer server.Stop()
	client := healthpb.NewHealthClient(startExample(server,
		grpc.WithChainUnaryInterceptor(pace.Unary),
		grpc.WithChainStreamInterceptor(pace.Stream),
	))

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for range 2 { // the second turn comes after the deadline
		_, err := client.Check(ctx, new(healthpb.HealthCheckRequest))
		fmt.Println(status.Code(err), errors.Is(err, weir.ErrDenied))
	}
	// Output:
	// OK false
	// ResourceExhausted true
}
