module github.com/weir-go/weir

go 1.25.0

require (
	github.com/gomodule/redigo v1.8.9
	github.com/mna/redisc v1.4.0
	github.com/redis/go-redis/v9 v9.7.3
	github.com/redis/rueidis v1.0.76
	github.com/valkey-io/valkey-go v1.0.76
)

require (
	github.com/cespare/xxhash/v2 v2.2.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	golang.org/x/sys v0.43.0 // indirect
)
