module github.com/weir-go/weir/weirfile

go 1.25.0

require (
	github.com/weir-go/weir v0.0.0
	go.yaml.in/yaml/v4 v4.0.0
)

replace github.com/weir-go/weir => ..
