package conformance

import (
	"strings"
	"sync"

	"github.com/weir-go/weir/store"
)

// maxLuaLocals is how many locals a function of Lua 5.1 can have at once.
const maxLuaLocals = 200

// luaTokens returns the names, keywords and signs of a script.
func luaTokens(lua string) []string {
	var tokens []string
	for i := 0; i < len(lua); {
		from := i
		switch c := lua[i]; {
		case strings.HasPrefix(lua[i:], "--"):
			for i < len(lua) && lua[i] != '\n' {
				i++
			}
		case c == '\'' || c == '"':
			for i++; i < len(lua) && lua[i] != c; i++ {
				if lua[i] == '\\' {
					i++
				}
			}
			i++
		case inWord(c):
			for i < len(lua) && inWord(lua[i]) {
				i++
			}
			tokens = append(tokens, lua[from:i])
		default:
			if i++; c > ' ' {
				tokens = append(tokens, lua[from:i])
			}
		}
	}
	return tokens
}

func inWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// localsOf has the luaLocals of scripts by their SHA-1: many rules share few scripts.
var localsOf sync.Map

// tooManyLocals reports how many locals s has, and whether Lua allows that.
func tooManyLocals(s *store.Script) (int, bool) {
	n, ok := localsOf.Load(s.SHA())
	if !ok {
		n, _ = localsOf.LoadOrStore(s.SHA(), luaLocals(s.Lua()))
	}
	return n.(int), n.(int) > maxLuaLocals
}

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
	tokens := luaTokens(lua)
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
