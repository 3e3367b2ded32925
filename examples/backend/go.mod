module github.com/weir-go/weir/examples/backend

go 1.25.0

replace github.com/weir-go/weir => ../..

require (
	github.com/weir-go/weir v0.0.0-00010101000000-000000000000
	go.etcd.io/bbolt v1.5.0
)

require golang.org/x/sys v0.45.0 // indirect
