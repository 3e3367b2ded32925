package admin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The parameters of a query and of a form.
const (
	paramLimiter = "limiter"
	paramKey     = "key"    // one for each segment
	paramSealed  = "sealed" // a key with secret segments
	paramDone    = "done"   // the change that led here, sealed
	paramRule    = "rule"
	paramPause   = "pause" // the name of a pause
)

// A seal hides keys with secret segments in links and forms of this process, and proves
// that this process has made a link.
type seal struct{ aead cipher.AEAD }

func newSeal() (seal, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	block, err := aes.NewCipher(secret)
	if err != nil {
		return seal{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return seal{aead}, err
}

// close returns the key of the limiter with that name as a text that only s can open.
func (s seal) close(limiter string, key []string) string {
	text := url.Values{paramKey: key}.Encode()
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, []byte(text), []byte(limiter)))
}

var errSealed = errors.New("this link was made by another process, or before a restart: type the key again")

// open returns the key in text.
func (s seal) open(limiter, text string) ([]string, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, errSealed
	}
	if b, err = s.aead.Open(nil, nil, b, []byte(limiter)); err != nil {
		return nil, errSealed
	}
	values, err := url.ParseQuery(string(b))
	return values[paramKey], err
}

// query returns the parameters that lead to a key, which are safe in a URL.
func (h *handler) query(l *limiter, key []string) url.Values {
	q := url.Values{paramLimiter: {l.name}}
	if l.anySecret() {
		q.Set(paramSealed, h.seal.close(l.name, key))
	} else {
		q[paramKey] = key
	}
	return q
}

var errSecretURL = errors.New("a segment of this key is secret, so it must not be in a URL: type the key into the form, or send it by POST")

// keyOf returns the key that q leads to, or nil if there is none.
func (h *handler) keyOf(l *limiter, q url.Values) ([]string, error) {
	switch {
	case q.Has(paramSealed):
		return h.seal.open(l.name, q.Get(paramSealed))
	case q.Has(paramKey) && l.anySecret():
		return nil, errSecretURL
	}
	return q[paramKey], nil
}

// link returns a relative URL, which is valid at every path.
func link(q url.Values) template.URL { return template.URL("?" + q.Encode()) }

// visible returns s as a text that shows every character, and at most about max bytes of
// it. If a character cannot be seen, the text is quoted as in Go.
func visible(s string, max int) string {
	cut := ""
	if len(s) > max {
		end := max
		for end > max-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s, cut = s[:end], "… ("+strconv.Itoa(len(s))+" bytes)"
	}
	if s == "" || s != strings.TrimSpace(s) || strings.ContainsFunc(s, hidden) || !utf8.ValidString(s) || strings.HasPrefix(s, `"`) {
		s = strconv.Quote(s)
	}
	return s + cut
}

func hidden(r rune) bool { return !unicode.IsPrint(r) }

// typeable reports whether a one-line field of a form keeps s as it is.
func typeable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
