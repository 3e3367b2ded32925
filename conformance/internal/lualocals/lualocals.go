// Package lualocals counts the locals of Lua scripts.
package lualocals

import (
	"strings"

	"github.com/weir-go/weir/store"
)

// Max is the largest number of locals that a function of Lua 5.1 can have at once.
const Max = 200

// Of returns the largest number of locals that a function of s has at once. s must have no long
// strings or comments.
func Of(s *store.Script) int { return count(s.Lua()) }

// count returns the largest number of locals that a function of the script lua has at once.
func count(lua string) int {
	code := scanner(lua)
	most, live := 0, 0 // live are the locals of the innermost function
	var outer []int    // what live was before each block that is open
	loop := 0          // the locals of a for whose do is to come
	for word := code.next(); word != ""; word = code.next() {
		switch word {
		case "local":
			live += code.names()
		case "for":
			loop = 3 + code.names() // three are Lua's own
		case "do", "then", "repeat":
			outer = append(outer, live)
			live, loop = live+loop, 0
		case "function":
			outer = append(outer, live)
			_, params, _ := strings.Cut(string(code), "(")
			code = scanner(params)
			live = code.names()
		case "elseif", "else", "end", "until":
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

// A scanner is what is left of a script.
type scanner string

// next returns the next word, number or other character of the code, or "" at its end.
func (s *scanner) next() string {
	for *s != "" {
		n := 1
		switch c := (*s)[0]; {
		case strings.HasPrefix(string(*s), "--"):
			line, _, _ := strings.Cut(string(*s), "\n")
			n = len(line)
		case c == '\'' || c == '"':
			n = s.quoted(c)
		case inWord(c):
			for n < len(*s) && inWord((*s)[n]) {
				n++
			}
			return s.take(n)
		case c > ' ':
			return s.take(n)
		}
		s.take(n)
	}
	return ""
}

// names returns how many names a list has, and skips it. If the local is a function, it
// returns 1, and skips nothing.
func (s *scanner) names() (n int) {
	for rest := *s; ; {
		switch word := rest.next(); {
		case word == "function":
			return 1
		case word == "" || !inWord(word[0]):
			return n
		}
		n, *s = n+1, rest
		if rest.next() != "," {
			return n
		}
	}
}

// quoted returns how many bytes a text between two quotes has. A backslash escapes a quote.
func (s scanner) quoted(quote byte) int {
	n := 1
	for n < len(s) && s[n] != quote {
		if s[n] == '\\' {
			n++
		}
		n++
	}
	return n + 1
}

// take returns the first n bytes, or all if there are fewer, and skips them.
func (s *scanner) take(n int) string {
	n = min(n, len(*s))
	word := (*s)[:n]
	*s = (*s)[n:]
	return string(word)
}

func inWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}
