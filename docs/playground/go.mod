module github.com/weir-go/weir/docs/playground

go 1.25.0

require (
	github.com/weir-go/weir v0.0.0
	github.com/weir-go/weir/weirfile v0.0.0
)

require go.yaml.in/yaml/v4 v4.0.0 // indirect

replace (
	github.com/weir-go/weir => ../..
	github.com/weir-go/weir/weirfile => ../../weirfile
)
