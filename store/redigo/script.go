package redigo

import (
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

// A command is a command of a pipeline, with its reply.
type command struct {
	key  string // decides which node of a cluster the command is sent to; "" means any
	name string
	args []any

	reply any
	err   error
}

// newCommand returns the command of that name that runs script.
func newCommand(name string, script *store.Script, keys []string, args []store.Arg) command {
	words := make([]any, 0, 2+len(keys)+len(args))
	return command{key: keys[0], name: name, args: adapter.Words(words, name, script, keys, args)}
}

// size returns the approximate number of bytes of the command on the wire.
func (c *command) size() int {
	const frame = 16
	n := frame + len(c.name)
	for _, arg := range c.args {
		n += frame
		if text, ok := arg.(string); ok {
			n += len(text)
		}
	}
	return n
}
