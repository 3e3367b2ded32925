package weirfile

import (
	"strconv"
	"strings"
)

// nearest returns the word that was probably meant by given, or "" if none is near.
func nearest(given string, words []string) string {
	best, least := "", 0
	for _, word := range words {
		d := distance(fold(given), fold(word))
		if d <= max(1, len(fold(word))/3) && (best == "" || d < least) {
			best, least = word, d
		}
	}
	return best
}

// suggest returns the part of an error text that says which word is right.
func suggest(given string, words []string) string {
	if near := nearest(given, words); near != "" {
		return "did you mean " + strconv.Quote(near) + "?"
	}
	if len(words) == 0 {
		return "there is none"
	}
	return "it must be " + oneOf(words)
}

// oneOf lists words.
func oneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// fold returns s without what people forget: capitals, spaces, dashes and underscores.
func fold(s string) string {
	return strings.NewReplacer(" ", "", "-", "", "_", "").Replace(strings.ToLower(s))
}

// distance is the least number of characters to insert, remove, replace or swap with the
// next that turns a into b.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b)) // too long to be a word with a slip
	}
	var before, last, row [65]int
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			same := 1
			if a[i] == b[j] {
				same = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+same)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
