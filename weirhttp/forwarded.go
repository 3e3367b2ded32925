package weirhttp

import (
	"iter"
	"strings"
)

// forwarded is the field of RFC 7239.
const forwarded = "Forwarded"

// entries returns the entries of the lines of a list, from right to left. It skips empty
// entries. If rfc7239 is true, an entry is the parameter "for" of the element. If the element
// has no such parameter, the entry is the element and the bool is false.
//
// Only the entries that the server's own proxies have added can be trusted to be well
// formed. So nothing is read from the left, and nothing beyond the last entry that the
// caller asks for.
func entries(lines []string, rfc7239 bool) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for i := len(lines) - 1; i >= 0; i-- {
			for rest, more := lines[i], true; more; {
				var entry string
				rest, entry, more = cutLast(rest, rfc7239)
				entry = strings.Trim(entry, " \t")
				if entry == "" {
					continue
				}
				ok := true
				if rfc7239 {
					entry, ok = forParam(entry)
				}
				if !yield(entry, ok) {
					return
				}
			}
		}
	}
}

// cutLast cuts s around the last comma. If quotes is true, a comma in a quoted string does
// not count.
func cutLast(s string, quotes bool) (before, after string, found bool) {
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case quotes && s[i] == '"' && !escaped(s[:i]):
			quoted = !quoted
		case s[i] == ',' && !quoted:
			return s[:i], s[i+1:], true
		}
	}
	return "", s, false
}

// escaped reports whether the character after s is escaped: whether s ends in an odd number
// of backslashes.
func escaped(s string) bool {
	return (len(s)-len(strings.TrimRight(s, `\`)))%2 == 1
}

// forParam returns the value of the parameter "for" of an element of Forwarded. If there is
// not exactly one, it returns the element and false.
func forParam(element string) (string, bool) {
	value, found := "", 0
	for rest := element; rest != ""; {
		name, after, ok := strings.Cut(rest, "=")
		v := ""
		if ok {
			v, rest, ok = paramValue(after)
		}
		if !ok {
			return element, false
		}
		if strings.EqualFold(strings.Trim(name, " \t"), "for") {
			value = v
			found++
		}
	}
	if found != 1 {
		return element, false
	}
	return value, true
}

// paramValue cuts a parameter's value, a token or a quoted string, and the semicolon behind
// it off s. It does not remove backslashes: no address has any.
func paramValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		value, rest, _ = strings.Cut(s, ";")
		return strings.Trim(value, " \t"), rest, !strings.Contains(value, `"`)
	}
	for i := 1; i < len(s); i++ {
		if s[i] == '"' && !escaped(s[1:i]) {
			rest = strings.Trim(s[i+1:], " \t")
			return s[1:i], strings.TrimPrefix(rest, ";"), rest == "" || rest[0] == ';'
		}
	}
	return "", "", false
}
