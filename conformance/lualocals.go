package conformance

import "regexp"

// maxLuaLocals is how many locals a function of Lua 5.1 can have at once.
const maxLuaLocals = 200

// luaToken matches names, keywords and signs, and the comments and strings that can hold
// them.
var luaToken = regexp.MustCompile(`--[^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|[A-Za-z_]\w*|[^\s\w]`)

// luaLocals returns the largest number of locals that the script lua has at once. The
// script must have no long strings or comments.
func luaLocals(lua string) int {
	// The locals of a function are counted separately.
	type block struct {
		locals   int
		function bool
	}
	blocks := []block{{function: true}}
	most := 0
	add := func(n int) {
		blocks[len(blocks)-1].locals += n
		sum := 0
		for i := len(blocks) - 1; i >= 0; i-- {
			if sum += blocks[i].locals; blocks[i].function {
				break
			}
		}
		most = max(most, sum)
	}
	open := func(b block) { blocks = append(blocks, b) }
	shut := func() {
		if len(blocks) > 1 {
			blocks = blocks[:len(blocks)-1]
		}
	}
	tokens := luaToken.FindAllString(lua, -1)
	at := func(i int) string {
		if i < len(tokens) {
			return tokens[i]
		}
		return ""
	}
	loop := 0 // the locals of a for whose do is to come
	for i := 0; i < len(tokens); i++ {
		switch tokens[i] {
		case "local":
			if at(i+1) == "function" {
				add(1)
				continue
			}
			names := 1
			for i++; at(i+1) == ","; i += 2 {
				names++
			}
			add(names)
		case "for":
			for loop = 3 + 1; at(i+2) == ","; i += 2 { // three are Lua's own
				loop++
			}
		case "do":
			open(block{})
			add(loop)
			loop = 0
		case "function":
			open(block{function: true})
			for i++; at(i) != "(" && i < len(tokens); i++ {
			}
			for i++; at(i) != ")" && i < len(tokens); i++ {
				if at(i) != "," {
					add(1)
				}
			}
		case "then", "repeat":
			open(block{})
		case "else":
			shut()
			open(block{})
		case "elseif", "end", "until":
			shut()
		}
	}
	return most
}
