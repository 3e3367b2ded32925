module github.com/weir-go/weir/cmd/weir

go 1.26.0

replace github.com/weir-go/weir => ../..

replace github.com/weir-go/weir/store/postgres => ../../store/postgres

replace github.com/weir-go/weir/weirfile => ../../weirfile

require (
	github.com/gomodule/redigo v1.9.3
	github.com/jackc/pgx/v5 v5.12.0
	github.com/mna/redisc v1.4.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redis/rueidis v1.0.79
	github.com/valkey-io/valkey-go v1.0.79
	github.com/weir-go/weir v0.0.0
	github.com/weir-go/weir/store/postgres v0.0.0
	github.com/weir-go/weir/weirfile v0.0.0
	golang.org/x/term v0.43.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)
