package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// print writes text without what controls a terminal. A pipe that nobody reads is no error of the
// command.
func (t *tool) print(w io.Writer, text string) { _, _ = io.WriteString(w, clean(text)) }

// printf formats to the output.
func (t *tool) printf(format string, args ...any) { t.print(t.out, fmt.Sprintf(format, args...)) }

// jsonText returns v, which has no value that JSON lacks, as JSON.
func jsonText(v any) string {
	var w strings.Builder
	e := json.NewEncoder(&w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return w.String()
}

// quoted returns s as it is if it reads as one word, and otherwise as a Go string, in
// which a terminal finds nothing to obey.
func quoted(s string) string {
	text := strconv.Quote(s)
	if s == "" || strings.ContainsAny(s, " \uFFFD") || text != `"`+s+`"` {
		return text
	}
	return s
}

// quotedAll returns the segments of a key as one text.
func quotedAll(segments []string) string {
	words := make([]string, len(segments))
	for i, s := range segments {
		words[i] = quoted(s)
	}
	return strings.Join(words, " ")
}

// clean returns text in which nothing controls a terminal: an error of a server, or a key that
// somebody chose, cannot clear the screen. The escapes are also those of JSON.
func clean(text string) string {
	var b []byte
	for _, r := range text {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			b = utf8.AppendRune(b, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			b = fmt.Appendf(b, `\u%04x`, unit)
		}
	}
	return string(b)
}

// secrets are texts that no output may have.
type secrets []string

// login is the part of a URL, or a parameter of it, that has a password.
var login = regexp.MustCompile(`(://)\S*(@)|((?i:password)=)[^\s&'"]+()`)

// remove masks the passwords in the URLs in text, and the secrets that are quoted there.
// Elsewhere, it does not mask a short secret or one of letters only, because masking a
// part of other words would spoil them and reveal the secret.
func (s secrets) remove(text string) string {
	text = login.ReplaceAllString(text, "${1}${3}xxxxx${2}")
	for _, secret := range s {
		word := regexp.QuoteMeta(secret)
		if len(secret) < 8 || !strings.ContainsFunc(secret, func(r rune) bool { return !unicode.IsLetter(r) }) {
			word = "(['\"`])" + word + "(['\"`])"
		}
		text = regexp.MustCompile(word).ReplaceAllString(text, "${1}xxxxx${2}")
	}
	return text
}
