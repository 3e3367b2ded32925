// Package lualocals counts the locals of Lua scripts.
package lualocals

import (
	"regexp"
	"slices"
	"strings"

	"github.com/weir-go/weir/store"
)

// Max is the largest number of locals that a function of Lua 5.1 can have at once.
const Max = 200

// Of returns the largest number of locals that a function of s has at once. s must have no long
// strings or comments.
func Of(s *store.Script) int { return count(s.Lua()) }

// word matches a comment, a quoted text, in which a backslash escapes a quote, a word or another
// character. name matches a word.
var (
	name = regexp.MustCompile(`^\w`)
	word = regexp.MustCompile(`--[^\n]*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\w+|\S`)
)

// count returns the largest number of locals that a function of the script lua has at once.
func count(lua string) int {
	code := slices.DeleteFunc(word.FindAllString(lua, -1), func(w string) bool {
		return strings.HasPrefix(w, "--") || strings.ContainsAny(w[:1], `'"`)
	})
	most, live := 0, 0 // live are the locals of the innermost function
	var outer []int    // what live was before each block that is open
	loop := 0          // the locals of a for whose do is to come
	for i, w := range code {
		switch w {
		case "local":
			live += names(code[i+1:])
		case "for":
			loop = 3 + names(code[i+1:]) // three are Lua's own
		case "do", "then", "repeat":
			outer = append(outer, live)
			live, loop = live+loop, 0
		case "function":
			outer = append(outer, live)
			params := code[i+1:]
			live = names(params[slices.Index(params, "(")+1:])
		case "elseif", "else", "end", "until":
			if len(outer) > 0 {
				live = outer[len(outer)-1]
				if w != "else" { // which begins another block
					outer = outer[:len(outer)-1]
				}
			}
		}
		most = max(most, live)
	}
	return most
}

// names returns how many names a list has. A function has one.
func names(code []string) (n int) {
	for 2*n < len(code) && name.MatchString(code[2*n]) {
		n++
		if code[2*n-2] == "function" || 2*n > len(code) || code[2*n-1] != "," {
			break
		}
	}
	return n
}
