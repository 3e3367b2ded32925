//go:build js && wasm

// Command wasm is package simulate for the page: it defines two functions of JavaScript,
// kinds and simulate, which return JSON.
package main

import (
	"context"
	"encoding/json"
	"syscall/js"

	"github.com/weir-go/weir/docs/playground/simulate"
)

func main() {
	js.Global().Set("kinds", js.FuncOf(func(js.Value, []js.Value) any {
		return text(simulate.Kinds())
	}))
	js.Global().Set("simulate", js.FuncOf(func(_ js.Value, args []js.Value) any {
		var s simulate.Settings
		if err := json.Unmarshal([]byte(args[0].String()), &s); err != nil {
			return text(simulate.Result{Error: err.Error()})
		}
		return text(simulate.Run(context.Background(), s))
	}))
	select {}
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types have no value without a JSON
	}
	return string(b)
}
