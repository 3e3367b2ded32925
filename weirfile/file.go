package weirfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
)

// A File is the policies of a file, which are valid. It does not change.
type File struct {
	name     string
	path     string // "" if the file was not loaded
	sum      [sha256.Size]byte
	policies []*Policy
	options  Options
	kinds    []*kind
}

// A Policy is one policy of a File.
type Policy struct {
	weir.Policy
	Plans     []Plan     // in the order of the file
	Overrides []Override // in the order of the file
	Line      int

	settles bool
	at      place
	fields  map[string]*yaml.Node // the keys of policyFields
	rules   []place               // of Rules
}

// A Plan is a named set of limits. It has the rules that differ from the policy's.
type Plan struct {
	Name  string
	Rules []weir.Rule // for weir.Limiter.With

	Access Access
	Line   int

	at    place
	rules []place // of Rules
}

// An Override sets limits of the callers that it matches. It sets only rules whose By has
// all its segments, so it never changes a limit that other callers share. For each rule, the
// override with the most segments wins. Other rules have the limits of the requested plan.
type Override struct {
	// Key has the segments of the callers. An empty segment matches any. A function of
	// Options.Override can leave it zero, which means the whole key.
	Key weir.Key

	// Plan is the name of a plan, whose limits the override sets, and those of the policy
	// for rules that the plan leaves out. "" means no plan.
	Plan string

	// Rules has the rules that differ from the plan's, or are set without a plan. It is
	// what weir.Limiter.With takes.
	Rules []weir.Rule

	// Access says whether the callers are limited. Limited does not undo the Access of an
	// override with fewer segments, unless there is a Plan.
	Access Access

	// Line is the line of the file, or 0.
	Line int

	at    place
	rules []place // of Rules
}

// Load reads the file, and checks it. If opts is nil, the defaults are used. The file
// must be in YAML or JSON.
//
// The error joins an *[Error] for each mistake in the file, with its line.
func Load(path string, opts *Options) (*File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("weirfile: %w", err)
	}
	f, err := Parse(path, data, opts)
	if err != nil {
		return nil, err
	}
	f.path = path
	return f, nil
}

// Parse is [Load] for data that the program already has. Errors use the name for the
// file.
func Parse(name string, data []byte, opts *Options) (*File, error) {
	o := opts.orDefault()
	if err := o.check(); err != nil {
		return nil, err
	}
	list, err := kinds(o.Algorithms)
	if err != nil {
		return nil, err
	}
	r := &reader{file: name, kinds: list}
	root := r.parse(data)
	if root == nil {
		return nil, r.err()
	}
	f := &File{name: name, sum: sha256.Sum256(data), options: *o, kinds: list, policies: r.document(root)}
	if len(r.errors) == 0 {
		r.check(f)
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	return f, nil
}

// Warnings returns what is valid but probably a mistake, as an error like that of [Load],
// or nil. Such are budgets that are refilled while they are spent: see [algorithm.GCRA].
func (f *File) Warnings() error {
	r := &reader{file: f.name}
	for _, p := range f.policies {
		r.budgets(p, p.Rules, p.rules)
		for i := range p.Plans {
			r.budgets(p, p.Plans[i].Rules, p.Plans[i].rules)
		}
	}
	return r.err()
}

// money matches names of units that are money.
var money = regexp.MustCompile(`(?i)cents?$|dollar|euro|^usd|^eur|^gbp|credit|money|spend`)

// budgets warns of rules that count money, or costs that are settled, and take an hour or
// more to refill: in that time, they allow a full burst and what is refilled meanwhile.
func (r *reader) budgets(p *Policy, rules []weir.Rule, places []place) {
	for i, rule := range rules {
		limit, err := rule.Algorithm.NewLimit()
		if err != nil || limit.Window < time.Hour || rule.Cost > 0 || !money.MatchString(rule.Unit) && !p.settles {
			continue
		}
		if kind, ok := limit.Kind.(*contract.MeterKind); ok && kind.Reserves && !kind.Queues {
			r.fail(places[i], "rule %q is refilled while it is spent, so a caller can spend twice its %d in %s: if it is a budget, use the algorithm calendar or fixed window", rule.Name, limit.Capacity, formatDuration(limit.Window))
		}
	}
}

// parse returns the root of the document.
func (r *reader) parse(data []byte) *yaml.Node {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	text := bytes.TrimSpace(data)
	switch {
	case len(text) == 0:
		r.fail(place{}, "the file is empty: it must have policies")
		return nil
	case text[0] != '{' && data[len(data)-1] != '\n':
		r.fail(place{}, "the file does not end with a line break, so it may be cut off: add one at its end")
		return nil
	}
	if text[0] == '{' && json.Valid(text) {
		data = escapes.ReplaceAllFunc(data, func(escape []byte) []byte {
			text := string(escape)
			if len(text) > 2 {
				_ = json.Unmarshal([]byte(`"`+text+`"`), &text) // it is valid
			}
			return []byte(text)
		})
	}
	var doc yaml.Node
	err := loadYAML(data, &doc)
	var bad *yaml.LoadError
	switch {
	case errors.As(err, &bad) && bad.Stage == yaml.ReaderStage:
		before := data[:min(bad.Mark.Index, len(data))]
		at := place{1 + bytes.Count(before, []byte("\n")), utf8.RuneCount(before[1+bytes.LastIndexByte(before, '\n'):]) + 1}
		r.fail(at, "the file is not valid YAML: %s: it must be UTF-8 without control characters", bad.Message)
	case errors.As(err, &bad) && bad.Mark.Line > 0:
		r.fail(place{bad.Mark.Line, bad.Mark.Column}, "the file is not valid YAML: %s", bad.Message)
	case err != nil && strings.Contains(err.Error(), "multiple"):
		r.fail(place{}, "the file has several documents, separated by ---: it must have one")
	case err != nil && !strings.Contains(err.Error(), "no documents"):
		r.fail(place{}, "the file is not valid YAML: %s", strings.Join(strings.Fields(err.Error()), " "))
	case len(doc.Content) == 0:
		r.fail(place{}, "the file is empty: it must have policies")
	default:
		return doc.Content[0]
	}
	return nil
}

// escapes are the surrogate pairs of JSON, which YAML lacks, and other escapes.
var escapes = regexp.MustCompile(`(?i)\\ud[89ab]..\\ud[c-f]..|\\.`)

// loadYAML is yaml.Load, for which a panic is an error: a running program must not end
// because of a file.
func loadYAML(data []byte, doc *yaml.Node) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the parser failed: %v", p)
		}
	}()
	return yaml.Load(data, doc)
}

// Name returns the name of f: the path that was loaded, or the name that was parsed.
func (f *File) Name() string { return f.name }

// Policies returns the policies in the order of the file. Do not change what their slices hold.
func (f *File) Policies() []Policy {
	var list []Policy
	for _, p := range f.policies {
		list = append(list, *p)
	}
	return list
}

// policy returns the policy with the name, or nil.
func (f *File) policy(name string) *Policy {
	for _, p := range f.policies {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func (f *File) policyNames() []string {
	return namesOf(f.policies, func(p *Policy) string { return p.Name })
}

// Describe returns a in the words of f: see the function [Describe].
func (f *File) Describe(a algorithm.Algorithm) string { return describe(f.kinds, a) }
