package admin

import (
	"time"

	"github.com/weir-go/weir/explain"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/internal/storekey"
	"github.com/weir-go/weir/outage"
)

// A description is a limiter as JSON. Its names are those of an explain.Document.
type description struct {
	Name     string             `json:"name"`   // on the page
	Policy   string             `json:"policy"` // the name of the limiter
	Segments []describedSegment `json:"segments"`
	Rules    []describedRule    `json:"rules"`
	Outage   *describedOutage   `json:"outage,omitempty"`
	Denied   []describedDenied  `json:"denied,omitempty"`
}

type describedSegment struct {
	Name   string `json:"name"`
	Secret bool   `json:"secret,omitempty"`
}

type describedRule struct {
	Name      string   `json:"name"`
	By        []string `json:"by"`
	Algorithm string   `json:"algorithm"`
	Words     string   `json:"words"`
	Shadow    bool     `json:"shadow,omitempty"`
	Unit      string   `json:"unit,omitempty"`
}

// A describedOutage is an outage.State.
type describedOutage struct {
	Down     bool             `json:"down"`
	Outages  int64            `json:"outages"`
	Cause    string           `json:"cause,omitempty"`
	Began    time.Time        `json:"began,omitzero"`
	Lasted   explain.Duration `json:"lasted"`
	Answered int64            `json:"answered"`
}

type describedDenied struct {
	Key       []string `json:"key"` // with hashes in place of secret segments
	Denied    int64    `json:"denied"`
	Overcount int64    `json:"overcount,omitempty"`
}

// list describes all limiters.
func (h *handler) list() any {
	list := make([]description, len(h.limiters))
	for i, l := range h.limiters {
		list[i] = l.describe()
	}
	return map[string]any{"limiters": list}
}

func (l *limiter) describe() description {
	d := description{Name: l.name, Policy: l.lim.Name(), Outage: describeOutage(l.outage)}
	for _, s := range l.segments {
		d.Segments = append(d.Segments, describedSegment(s))
	}
	for i := range l.rules {
		r := &l.rules[i]
		d.Rules = append(d.Rules, describedRule{r.Name, r.By, r.Kind, gate.Words(r), r.Shadow, r.Unit})
	}
	for _, k := range l.deniedKeys() {
		key := k.Key.Segments()
		for i, s := range l.segments {
			if s.Secret {
				key[i] = hash(key[i])
			}
		}
		d.Denied = append(d.Denied, describedDenied{key, k.Denied, k.Overcount})
	}
	return d
}

func describeOutage(b *outage.Breaker) *describedOutage {
	if b == nil {
		return nil
	}
	s := b.State()
	d := &describedOutage{Down: s.Down, Outages: s.Outages, Began: s.Began, Lasted: explain.Duration(s.Lasted), Answered: s.Answers}
	if s.Cause != nil {
		d.Cause = s.Cause.Error()
	}
	return d
}

// hash returns the text that the store has in place of a secret segment.
func hash(segment string) string {
	return string(storekey.AppendHash(nil, segment))
}
