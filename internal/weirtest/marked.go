package weirtest

import (
	"fmt"
	"strings"
)

// ReplacePart returns page with another part between the first begin and the first end behind it.
// The marks stay.
func ReplacePart(page, begin, end, part string) (string, error) {
	before, rest, ok := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return "", fmt.Errorf("the page lacks the mark %q, or %q behind it", begin, end)
	}
	return before + begin + part + end + after, nil
}
