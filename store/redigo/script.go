package redigo

import "github.com/weir-go/weir/store"

// A command is a command of a pipeline, with its reply.
type command struct {
	key  string // decides which node of a cluster the command is sent to
	name string
	args []any

	reply any
	err   error
}

// newCommand returns the EVALSHA that runs script.
func newCommand(script *store.Script, keys []string, args []store.Arg) command {
	words := make([]any, 2, 2+len(keys)+len(args))
	words[0], words[1] = script.SHA(), len(keys)
	for _, key := range keys {
		words = append(words, key)
	}
	for _, arg := range args {
		words = append(words, arg.Any())
	}
	return command{key: keys[0], name: "EVALSHA", args: words}
}

// spellOut turns the EVALSHA of script into an EVAL. The EVALSHA must have been answered.
func (c *command) spellOut(script *store.Script) {
	c.name, c.args[0] = "EVAL", script.Lua()
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
