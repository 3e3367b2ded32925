package admin

import (
	"context"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/internal/prose"
	"github.com/weir-go/weir/internal/storekey"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
)

// The longest texts of segments on the page, in bytes.
const (
	maxHeading = weir.MaxSegment
	maxCell    = 96
	maxStored  = 2048
	maxHash    = len(storekey.HashPrefix) + 16
)

// maxDenied is how many denied keys the page of all limiters shows for each limiter.
const maxDenied = 5

// A limiter is a Limiter with its segments.
type limiter struct {
	name     string
	lim      *weir.Limiter
	keyed    func(context.Context, weir.Key) (*weir.Limiter, error) // nil: lim for each key
	denied   *observe.TopDenied
	outage   *outage.Breaker
	n        int // its index
	segments []weir.SegmentInfo
	rules    []weir.RuleInfo
}

// of returns the limiter of a key.
func (l *limiter) of(ctx context.Context, key []string) (*weir.Limiter, error) {
	if l.keyed == nil {
		return l.lim, nil
	}
	lim, err := l.keyed(ctx, weir.KeyOf(key...))
	if lim == nil {
		lim = l.lim
	}
	return lim, err
}

// anySecret reports whether a segment is secret.
func (l *limiter) anySecret() bool {
	return slices.ContainsFunc(l.segments, func(s weir.SegmentInfo) bool { return s.Secret })
}

// A page is what the template shows.
type page struct {
	Title, Heading string
	Parts          []part // of the key, in place of Heading
	Style, Refresh template.URL
	Now            string
	Crumbs         []crumb
	Error          *problem
	Done           string
	Key            *keyView
	Limiters       []limiterView
}

type crumb struct {
	Text string
	Link template.URL
}

// A part is a segment of a key.
type part struct{ Name, Text string }

type limiterView struct {
	Heading      string
	Link         template.URL
	Outage       *outageView
	Method       string
	Hidden       []field
	Fields       []field
	Rules        []ruleView
	CountsDenied bool
	Columns      string
	More         string
	Denied       []deniedView
}

type field struct{ ID, Name, Type, Text string }

type deniedView struct {
	Parts []part
	Link  template.URL
	Count string
}

type ruleView struct {
	Name, Limit, By string
	Shadow          bool
}

func (h *handler) page(title string, refresh url.Values, crumbs ...crumb) *page {
	return &page{
		Title: title, Heading: title,
		Style:   link(url.Values{paramStyle: {styleVersion}}),
		Refresh: link(refresh),
		Now:     clock(time.Now()),
		Crumbs:  crumbs,
	}
}

// overview is the page of all limiters.
func (h *handler) overview() *page {
	p := h.page("Limiters", nil, crumb{Text: "Limiters"})
	for _, l := range h.limiters {
		v := h.view(l, maxDenied)
		v.Heading, v.Link = visible(l.name, maxHeading), link(url.Values{paramLimiter: {l.name}})
		p.Limiters = append(p.Limiters, v)
	}
	return p
}

// one is the page of a limiter.
func (h *handler) one(l *limiter) *page {
	q := url.Values{paramLimiter: {l.name}}
	p := h.page("Limiter "+visible(l.name, maxHeading), q, crumb{"Limiters", "?"}, crumb{Text: visible(l.name, maxCell)})
	p.Limiters = []limiterView{h.view(l, -1)}
	return p
}

// view returns what a page shows of l, with at most max denied keys, or all if max is
// below 0.
func (h *handler) view(l *limiter, max int) limiterView {
	v := h.lookup(l, nil)
	for i := range l.rules {
		r := &l.rules[i]
		v.Rules = append(v.Rules, ruleView{Name: visible(r.Name, maxCell), Limit: gate.Words(r), By: strings.Join(r.By, ", "), Shadow: r.Shadow})
	}
	if l.denied == nil {
		return v
	}
	v.CountsDenied = true
	var names []string
	for _, s := range l.segments {
		names = append(names, s.Name)
	}
	v.Columns = strings.Join(names, " / ")
	keys := l.deniedKeys()
	if max >= 0 && len(keys) > max {
		v.More = fmt.Sprintf("%d of %d", max, len(keys))
		keys = keys[:max]
	}
	for _, k := range keys {
		segments := k.Key.Segments()
		count := strconv.FormatInt(k.Denied, 10)
		if k.Overcount > 0 {
			count = strconv.FormatInt(k.Denied-k.Overcount, 10) + "–" + count
		}
		v.Denied = append(v.Denied, deniedView{Parts: l.parts(segments, maxCell), Link: link(h.query(l, segments)), Count: count})
	}
	return v
}

// deniedKeys returns the keys that were denied most often.
func (l *limiter) deniedKeys() []observe.DeniedKey {
	if l.denied == nil {
		return nil
	}
	return slices.DeleteFunc(l.denied.Keys(), func(k observe.DeniedKey) bool {
		return len(k.Key.Segments()) != len(l.segments) // of another limiter
	})
}

// lookup returns the form that finds a key of l, filled in with key.
func (h *handler) lookup(l *limiter, key []string) limiterView {
	v := limiterView{Outage: outageOf(l.outage), Method: "get", Hidden: []field{{Name: paramLimiter, Text: l.name}}}
	if l.anySecret() {
		v.Method = "post"
		v.Hidden = append(v.Hidden, field{Name: paramOp, Text: opShow})
	}
	for i, s := range l.segments {
		f := field{ID: fmt.Sprintf("key-%d-%d", l.n, i), Name: s.Name, Type: "text"}
		switch {
		case s.Secret:
			f.Type = "password"
		case i < len(key) && typeable(key[i]):
			f.Text = key[i]
		}
		v.Fields = append(v.Fields, f)
	}
	return v
}

// hashed reports whether a secret segment of key is given as its hash.
func (l *limiter) hashed(key []string) bool {
	k := weir.HashedKeyOf(key...)
	for i, s := range l.segments {
		if s.Secret && k.Hashed(i) {
			return true
		}
	}
	return false
}

// parts returns what a page shows of the segments of a key.
func (l *limiter) parts(key []string, max int) []part {
	var parts []part
	for i, s := range l.segments {
		if i >= len(key) {
			break
		}
		p := part{s.Name, visible(key[i], max)}
		if s.Secret {
			p.Text = hash(key[i])[:maxHash] + "…"
		}
		parts = append(parts, p)
	}
	return parts
}

// The levels of what a page shows: classes of the stylesheet.
const (
	ok  = "ok"
	low = "low"
	bad = "bad"
)

// An outageView is what a page shows of the store of a limiter.
type outageView struct{ State, Level, Text string }

// outageOf returns what b tells. It is nil if b is nil.
func outageOf(b *outage.Breaker) *outageView {
	if b == nil {
		return nil
	}
	s := b.State()
	answers := "The fallback answered " + prose.Count(s.Answers, "request") + "."
	switch {
	case s.Down:
		return &outageView{"outage", bad, fmt.Sprintf("The store has been away for %s, since %s: %v. %s", prose.Duration(s.Lasted), clock(s.Began), s.Cause, answers)}
	case s.Outages == 0:
		return &outageView{"no outage", ok, "There has been no outage since this process started."}
	}
	return &outageView{"no outage", ok, fmt.Sprintf("The last outage began at %s and lasted %s. %s", clock(s.Began), prose.Duration(s.Lasted), answers)}
}

// clock returns t for people.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
