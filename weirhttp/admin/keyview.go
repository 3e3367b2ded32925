package admin

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/explain"
)

// A keyView is what the page shows of the rules for a key.
type keyView struct {
	Allowed  bool
	DeniedBy string
	Sentence string
	Rules    []keyRule
	Reset    *action // of all rules that the whole key identifies
}

// A keyRule is a rule for a key.
type keyRule struct {
	Name, Limit, Sentence string
	Shadow                bool
	Shared                string // who else has this limit
	State, Level          string // what the rule answers, as a word and as a class
	Bar                   bool
	Percent               string
	Facts                 []fact
	Actions               []action
	Stored                []string // the keys in the store
	Slot                  int      // their cluster slot
}

type fact struct{ Name, Text string }

// An action is a form with a button.
type action struct {
	ID, Text, Describes string
	Hidden              []field
	Durations           []duration
}

type duration struct{ Value, Text string }

// durations are the times for which the page can pause a key.
var durations = []duration{{"1m", "1 minute"}, {"5m", "5 minutes"}, {"1h", "1 hour"}, {"24h", "1 day"}, {"168h", "7 days"}}

// pauseWords describes the limit of an algorithm.Pause.
const pauseWords = "denies every request while the key is paused"

// key is the page of a key. If doc is nil, the page has only a form for another key.
func (h *handler) key(l *limiter, key []string, doc *explain.Document, query url.Values) *page {
	q := h.query(l, key)
	name := visible(l.name, maxCell)
	parts := l.parts(key, maxHeading)
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.Text
	}
	title := strings.Join(texts, " / ")
	p := h.page(title+" – "+name, q, crumb{"Limiters", "?"}, crumb{name, link(url.Values{paramLimiter: {l.name}})}, crumb{Text: "Key"})
	p.Parts = parts
	if doc != nil {
		p.Done = h.done(l, key, query)
		p.Key = l.keyView(doc, q.Encode(), query.Get(paramRule), query.Get(paramPause))
	}
	other := h.lookup(l, key)
	other.Heading = "Another key"
	if other.Outage != nil && other.Outage.Level == ok {
		other.Outage = nil // the store has answered
	}
	p.Limiters = []limiterView{other}
	return p
}

// changed names what a change was made of: paramDone is sealed for that alone.
func (l *limiter) changed(key []string, query url.Values) string {
	return fmt.Sprintf("%q %q %q", key, l.name, query.Get(paramRule))
}

// done says in words what the change did that led to the page, if this process has made
// the link.
func (h *handler) done(l *limiter, key []string, query url.Values) string {
	op, _ := h.seal.open(l.changed(key, query), query.Get(paramDone))
	switch strings.Join(op, "") {
	case opReset:
		if rule := query.Get(paramRule); rule != "" {
			return "You have reset the rule " + visible(rule, maxCell) + "."
		}
		return "You have reset this key."
	case opPause:
		return "You have paused this key."
	case opResume:
		return "You have ended the pause."
	case opResumed:
		return "The pause had ended before."
	}
	return ""
}

// keyView returns what the page shows of doc. target is the query of the key. pause is
// the name of a pause that a form of the page has just started in a rule, if it has.
func (l *limiter) keyView(doc *explain.Document, target, rule, pause string) *keyView {
	v := &keyView{Allowed: doc.Allowed, Sentence: "A request for this key is allowed now."}
	now := time.Now()
	var whole []string // the rules that a reset of the key clears
	enforced := false  // one of them is no shadow rule, which weir.Limiter.Reset needs
	for i := range doc.Rules {
		d := &doc.Rules[i]
		pauses := i < len(l.rules) && l.rules[i].Type == weir.PauseRule
		r := keyRule{
			Name: visible(d.Name, maxCell), Limit: d.Words, Sentence: first(d.State) + ".", Shadow: d.Shadow,
			Bar: !pauses && d.Limit > 0, Percent: percent(d.Remaining, d.Limit), Facts: facts(d, pauses, now), Slot: d.Slot,
		}
		r.State, r.Level = state(d, pauses)
		if i < len(l.rules) && l.rules[i].Type == weir.LeaseRule {
			r.Facts = nil // a lease can be released at any time: the sentence says so
		}
		for _, key := range d.Keys {
			r.Stored = append(r.Stored, visible(key, maxStored))
		}
		if d.Name == doc.DeniedBy {
			v.DeniedBy, v.Sentence = r.Name, r.Sentence
		}
		reset := action{ID: fmt.Sprintf("reset-%d", i), Text: "Reset " + r.Name, Hidden: fieldsOf(target, d.Name, opReset)}
		if len(d.By) < len(l.segments) {
			r.Shared = "This rule is shared by all keys with the same " + strings.Join(d.By, " and ") + "."
		} else {
			whole = append(whole, r.Name)
			enforced = enforced || !d.Shadow
		}
		if pauses {
			r.Limit, reset.Text = pauseWords, "End all pauses"
			r.Actions = append(r.Actions, action{ID: fmt.Sprintf("pause-%d", i), Text: "Pause", Durations: durations, Hidden: fieldsOf(target, d.Name, opPause)})
			if pause != "" && rule == d.Name && !d.Allowed {
				r.Actions = append(r.Actions, action{ID: fmt.Sprintf("resume-%d", i), Text: "End this pause", Hidden: append(fieldsOf(target, d.Name, opResume), field{Name: paramPause, Text: pause})})
			}
		}
		if !pauses || !d.Allowed {
			r.Actions = append(r.Actions, reset)
		}
		v.Rules = append(v.Rules, r)
	}
	if len(whole) > 1 && enforced {
		v.Reset = &action{
			ID: "reset", Text: "Reset this key", Describes: "Resets " + strings.Join(whole, ", ") + ".",
			Hidden: fieldsOf(target, "", opReset),
		}
	}
	return v
}

// fieldsOf returns the fields of a form that makes a change.
func fieldsOf(target, rule, op string) []field {
	fields := []field{{Name: paramTarget, Text: target}, {Name: paramOp, Text: op}}
	if rule != "" {
		fields = append(fields, field{Name: paramRule, Text: rule})
	}
	return fields
}

// state returns what a rule answers, as a word and as a class of the stylesheet.
func state(r *explain.Rule, pauses bool) (word, class string) {
	switch {
	case pauses && r.Allowed:
		return "not paused", ok
	case pauses:
		return "paused", bad
	case !r.Allowed && r.Shadow:
		return "would deny", low
	case !r.Allowed:
		return "denies", bad
	case r.Remaining <= r.Limit/4:
		return "low", low
	}
	return "allows", ok
}

// percent returns the part of limit that remains, as SVG has it.
func percent(remaining, limit int64) string {
	if limit <= 0 {
		return "0"
	}
	return strconv.FormatFloat(100*float64(remaining)/float64(limit), 'f', 1, 64)
}

// facts returns when a rule changes.
func facts(r *explain.Rule, pauses bool, now time.Time) []fact {
	var facts []fact
	if !r.Allowed {
		facts = append(facts, fact{"Allows at", at(now, time.Duration(r.RetryAfter))})
	}
	if r.ResetAfter > 0 && !pauses {
		facts = append(facts, fact{"Fully reset at", at(now, time.Duration(r.ResetAfter))})
	}
	return facts
}

// at returns the time after d, without the date if it is today.
func at(now time.Time, d time.Duration) string {
	if d == weir.Never {
		return "never"
	}
	now = now.UTC()
	then := now.Add(d).UTC()
	if then.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return then.Format("15:04:05 UTC")
	}
	return clock(then)
}
