module github.com/weir-go/weir/weirhttp/internal/sfvtest

go 1.25.0

replace github.com/weir-go/weir => ../../..

require (
	github.com/dunglas/httpsfv v1.1.2
	github.com/weir-go/weir v0.0.0-00010101000000-000000000000
)
