// Package lualocals counts the locals of Lua scripts.
package lualocals

import (
	"regexp"
	"strings"
	"sync"

	"github.com/weir-go/weir/store"
)

// Max is the largest number of locals that a function of Lua 5.1 can have at once.
const Max = 200

// counts has the number of locals of scripts by their SHA-1: many rules share few scripts.
var counts sync.Map

// Of returns the largest number of locals that a function of s has at once. s must have no long
// strings or comments.
func Of(s *store.Script) int {
	n, ok := counts.Load(s.SHA())
	if !ok {
		n, _ = counts.LoadOrStore(s.SHA(), count(s.Lua()))
	}
	return n.(int)
}

var (
	// luaText matches comments and strings.
	luaText = regexp.MustCompile(`--.*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"`)

	// luaNamed matches the declaration of a function that is a local itself.
	luaNamed = regexp.MustCompile(`\blocal\s+function\b`)

	// luaScope matches what declares locals, with their names, and what begins or ends
	// a block.
	luaScope = regexp.MustCompile(`\b(local|for)\s+(\w+(?:\s*,\s*\w+)*)|\b(function)\b[^(]*\(([^)]*)\)|\b(do|then|repeat|elseif|else|end|until)\b`)
)

// count returns the largest number of locals that a function of the script lua has at once.
func count(lua string) int {
	lua = luaNamed.ReplaceAllString(luaText.ReplaceAllString(lua, " "), "local f function")
	most, live := 0, 0 // live are the locals of the innermost function
	var outer []int    // what live was before each block that is open
	loop := 0          // the locals of a for whose do is to come
	for _, m := range luaScope.FindAllStringSubmatch(lua, -1) {
		list := strings.TrimSpace(m[2] + m[4])
		names := strings.Count(list, ",") + min(len(list), 1)
		switch word := m[1] + m[3] + m[5]; word {
		case "local":
			live += names
		case "for":
			loop = 3 + names // three are Lua's own
		case "do", "then", "repeat":
			outer = append(outer, live)
			live, loop = live+loop, 0
		case "function":
			outer = append(outer, live)
			live = names
		default:
			if len(outer) > 0 {
				live = outer[len(outer)-1]
				if word != "else" { // which begins another block
					outer = outer[:len(outer)-1]
				}
			}
		}
		most = max(most, live)
	}
	return most
}
