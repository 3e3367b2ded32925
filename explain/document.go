package explain

import (
	"fmt"
	"strconv"
	"time"

	"github.com/weir-go/weir"
)

// A Document explains what a limiter would answer to a request for one key now: see
// [Explain]. In JSON, its names are in lower case, and every [Duration] is a number of
// seconds.
type Document struct {
	Policy string    `json:"policy"` // the name of the limiter
	Key    []Segment `json:"key"`
	Slot   int       `json:"slot"` // the cluster slot of the keys of all rules but shadow rules

	Allowed    bool     `json:"allowed"`             // a request would be allowed now
	DeniedBy   string   `json:"denied_by,omitempty"` // if not, the rule with the longest RetryAfter
	RetryAfter Duration `json:"retry_after"`         // if not, the time until it would be
	Why        string   `json:"why"`                 // the reason, in a sentence

	Rules []Rule `json:"rules"` // in the order of weir.Limiter.Rules: the shadow rules are the last
}

// A Segment is a segment of a key. The value of a secret segment is never in clear.
type Segment struct {
	Name   string `json:"name"`
	Value  string `json:"value"`            // the segment, or "%sha256=" and its SHA-256 in hexadecimal, as weir.HashedKeyOf takes it
	Hashed bool   `json:"hashed,omitempty"` // Value is a hash
}

// A Rule explains one rule of a limiter.
type Rule struct {
	Name      string   `json:"name"`
	By        []string `json:"by"`               // the segments that identify the limit
	Algorithm string   `json:"algorithm"`        // its name, for example "gcra"
	Words     string   `json:"words"`            // the limit in words; set it if you have better ones
	Shadow    bool     `json:"shadow,omitempty"` // the rule denies nothing: see weir.Rule.Shadow
	Unit      string   `json:"unit,omitempty"`   // the unit that the rule counts: see weir.Rule.Unit
	Cost      int64    `json:"cost"`             // the number of tokens of the request, or its amount of Unit
	Keys      []string `json:"keys"`             // the keys in the store
	Slot      int      `json:"slot"`             // the cluster slot of these keys
	Usage
}

// A Usage is the state of a rule for a caller.
type Usage struct {
	Limit     int64    `json:"limit"`     // the capacity, in tokens
	Window    Duration `json:"window"`    // the time in which Limit tokens are refilled; 0 if there is none
	Used      int64    `json:"used"`      // the tokens consumed, the leases held, or the turns of a queue taken: these can be above Limit
	Remaining int64    `json:"remaining"` // the tokens left

	Allowed    bool     `json:"allowed"`     // the rule alone would allow the request
	RetryAfter Duration `json:"retry_after"` // if not, the time until it would; weir.Never if it never would
	ResetAfter Duration `json:"reset_after"` // the time until the rule is fully reset
	State      string   `json:"state"`       // all this in a sentence
}

// Share returns how much of the limit is used: 0 if nothing is, and 1 if all of it is.
func (u *Usage) Share() float64 {
	if u.Limit < 1 {
		return 0
	}
	return float64(u.Used) / float64(u.Limit)
}

// A Duration is a [time.Duration] that is a number of seconds in JSON, exact to the
// microsecond: 0.25. [weir.Never] is null.
type Duration time.Duration

// String returns d as [time.Duration] does, or "never".
func (d Duration) String() string {
	if d == Duration(weir.Never) {
		return "never"
	}
	return time.Duration(d).String()
}

// MarshalJSON implements [encoding/json.Marshaler].
func (d Duration) MarshalJSON() ([]byte, error) {
	if d == Duration(weir.Never) {
		return []byte("null"), nil
	}
	// A float64 has 15 digits, which is less than the microseconds of a long window.
	us := time.Duration(d).Microseconds()
	text := strconv.FormatInt(us/1e6, 10)
	if rest := us % 1e6; rest != 0 {
		text = fmt.Sprintf("%s.%06d", text, max(rest, -rest))
		for text[len(text)-1] == '0' {
			text = text[:len(text)-1]
		}
	}
	return []byte(text), nil
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (d *Duration) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*d = Duration(weir.Never)
		return nil
	}
	n, err := time.ParseDuration(string(text) + "s")
	if err != nil {
		return fmt.Errorf("explain: the duration is %s: it must be a number of seconds, or null for never", text)
	}
	*d = Duration(n)
	return nil
}
