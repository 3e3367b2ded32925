// Package golden records the golden vectors of histories of decisions: what is sent to a
// store, what the store replies, what the limiter answers, and what the keys then hold.
// docs/reference/golden-vectors.md describes the files. The histories are in the tests, and
// a file has all that is needed to record it again.
package golden

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm/rediscell"
	"github.com/weir-go/weir/store"
)

// Format is the version of the files' format.
const Format = 1

// Never stands for weir.Never in a file.
const Never = -1

// A File has the vectors of one history.
type File struct {
	Format  int               `json:"format"`
	Name    string            `json:"name"`
	Source  string            `json:"source"`
	Policy  *Policy           `json:"policy,omitempty"` // none if each request states its limit
	Scripts map[string]string `json:"scripts"`          // the Lua text, by SHA-1
	Steps   []Step            `json:"steps"`
}

// A Policy describes a weir.Policy.
type Policy struct {
	Prefix   string   `json:"prefix"`
	Name     string   `json:"name"`
	Segments []string `json:"segments"`
	Secret   []string `json:"secret,omitempty"`
	Rules    []Rule   `json:"rules"`
}

// A Rule describes a weir.Rule.
type Rule struct {
	Name      string          `json:"name"`
	By        []string        `json:"by,omitempty"`
	Algorithm string          `json:"algorithm"`
	Limit     json.RawMessage `json:"limit"` // the fields in Go, with durations in nanoseconds
	Cost      int64           `json:"cost,omitempty"`
}

// A Step is one request. Times are in microseconds.
type Step struct {
	At        int64              `json:"at"` // since the Unix epoch
	Request   Request            `json:"request"`
	Answer    *Answer            `json:"answer,omitempty"`
	Numbers   []int64            `json:"numbers,omitempty"`   // of redis-cell
	Published string             `json:"published,omitempty"` // the answer in the source
	Calls     []Call             `json:"calls"`
	Keys      map[string]Content `json:"keys"`
}

// A Request describes a weir.Request, or a call of redis-cell.
type Request struct {
	Op       string   `json:"op"`
	Key      []string `json:"key"`
	Cost     int64    `json:"cost,omitempty"`
	MaxWait  int64    `json:"max_wait,omitempty"`
	For      int64    `json:"for,omitempty"` // of a pause
	ID       string   `json:"id,omitempty"`
	Actual   *int64   `json:"actual,omitempty"` // of a settle
	Metadata string   `json:"metadata,omitempty"`

	MaxBurst int64 `json:"max_burst,omitempty"`
	Count    int64 `json:"count,omitempty"`
	Period   int64 `json:"period,omitempty"`
}

// An Answer describes a weir.Result.
type Answer struct {
	Allowed    bool   `json:"allowed"`
	Granted    int64  `json:"granted"`
	Delay      int64  `json:"delay"`
	Rule       string `json:"rule"`
	Limit      int64  `json:"limit"`
	Window     int64  `json:"window"`
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retry_after"`
	ResetAfter int64  `json:"reset_after"`
	Replayed   bool   `json:"replayed,omitempty"`

	// DeniedBy has the names of all rules that deny the request.
	DeniedBy []string `json:"denied_by,omitempty"`
}

// A Call is an EVALSHA.
type Call struct {
	SHA   string   `json:"sha1"`
	Keys  []string `json:"keys"`
	Args  []string `json:"args"`
	Reply []any    `json:"reply"` // strings, integers and nulls
}

// A Content is what a key holds. One of Text, Set and List is set.
type Content struct {
	Text string   `json:"text,omitempty"`
	Set  []Member `json:"set,omitempty"`  // by score
	List []string `json:"list,omitempty"` // the oldest first
	TTL  int64    `json:"ttl"`            // that the last write has set, in milliseconds
}

// A Member is a member of a sorted set.
type Member struct {
	Text  string `json:"text"`
	Score int64  `json:"score"`
}

// A History is a list of requests to one limiter, or to a rediscell.Throttler.
type History struct {
	Name   string
	Source string
	Policy weir.Policy // has no rules if the requests are calls of redis-cell
	Asks   []Ask
}

// An Ask is one request of a history.
type Ask struct {
	After     time.Duration // the time since the beginning
	Request   weir.Request
	Cell      *Cell
	Published string // the answer in the source
}

// A Cell is a call of redis-cell.
type Cell struct {
	Key             string
	MaxBurst, Count int64
	Period          time.Duration
	Quantity        int64
}

// Start is the time at which every history begins.
var Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Record sends the requests of h to st, and returns the vectors. The function look returns
// what those of the keys hold that exist.
func Record(ctx context.Context, h History, st store.Store, look func(keys []string) (map[string]Content, error)) (*File, error) {
	f := &File{Format: Format, Name: h.Name, Source: h.Source, Scripts: map[string]string{}}
	tape := &tape{Store: st, file: f}
	var now time.Time
	opts := &weir.Options{Clock: func() time.Time { return now }}
	var lim *weir.Limiter
	var cells *rediscell.Throttler
	var err error
	if h.Policy.Rules == nil {
		cells, err = rediscell.New(h.Policy.Name, tape, opts)
	} else if lim, err = weir.NewPolicy(tape, h.Policy, opts); err == nil {
		f.Policy, err = describe(h.Policy)
	}
	if err != nil {
		return nil, err
	}
	var seen []string
	for i, a := range h.Asks {
		now = Start.Add(a.After)
		tape.calls = []Call{}
		s := Step{At: now.UnixMicro(), Published: a.Published}
		if a.Cell != nil {
			err = s.throttle(ctx, cells, *a.Cell)
		} else {
			err = s.decide(ctx, lim, a.Request)
		}
		if err != nil {
			return nil, fmt.Errorf("%s, step %d: %w", h.Name, i, err)
		}
		s.Calls = tape.calls
		for _, c := range s.Calls {
			seen = append(seen, c.Keys...)
		}
		slices.Sort(seen)
		seen = slices.Compact(seen)
		if s.Keys, err = look(seen); err != nil {
			return nil, fmt.Errorf("%s, step %d: %w", h.Name, i, err)
		}
		f.Steps = append(f.Steps, s)
	}
	return f, nil
}

func (s *Step) decide(ctx context.Context, lim *weir.Limiter, r weir.Request) error {
	s.Request = Request{
		Op: opNames[r.Op], Key: r.Key.Segments(), Cost: r.Cost, MaxWait: r.MaxWait.Microseconds(), For: r.For.Microseconds(), ID: r.ID, Metadata: r.Metadata,
	}
	if n, ok := r.Actual.Cost(); ok {
		s.Request.Actual = &n
	}
	each := make([]weir.Result, weir.MaxRules)
	res, err := lim.Decide(ctx, r, each)
	s.Answer = &Answer{
		Allowed: res.Allowed, Granted: res.Granted, Delay: micros(res.Delay), Rule: res.Rule, Limit: res.Limit, Window: micros(res.Window),
		Remaining: res.Remaining, RetryAfter: micros(res.RetryAfter), ResetAfter: micros(res.ResetAfter), Replayed: res.Replayed,
	}
	for _, rule := range each {
		if rule.Rule != "" && !rule.Allowed {
			s.Answer.DeniedBy = append(s.Answer.DeniedBy, rule.Rule)
		}
	}
	return err
}

func (s *Step) throttle(ctx context.Context, cells *rediscell.Throttler, c Cell) error {
	s.Request = Request{Op: throttle, Key: []string{c.Key}, Cost: c.Quantity, MaxBurst: c.MaxBurst, Count: c.Count, Period: c.Period.Microseconds()}
	res, err := cells.Throttle(ctx, c.Key, c.MaxBurst, c.Count, c.Period, c.Quantity)
	numbers := res.Numbers()
	s.Numbers = numbers[:]
	return err
}

// throttle is the Op of a call of redis-cell.
const throttle = "throttle"

var opNames = map[weir.Op]string{
	weir.Consume: "consume", weir.Peek: "peek", weir.TakeUpTo: "take up to", weir.Force: "force",
	weir.Refund: "refund", weir.Settle: "settle", weir.Renew: "renew", weir.Release: "release", weir.Reset: "reset",
	weir.Pause: "pause", weir.Resume: "resume",
}

func micros(d time.Duration) int64 {
	if d == weir.Never {
		return Never
	}
	return d.Microseconds()
}

func describe(p weir.Policy) (*Policy, error) {
	d := &Policy{Prefix: weir.DefaultPrefix, Name: p.Name, Segments: p.Segments, Secret: p.Secret}
	if d.Segments == nil {
		d.Segments = []string{"key"}
	}
	for _, r := range p.Rules {
		limit, err := json.Marshal(r.Algorithm)
		if err != nil {
			return nil, err
		}
		d.Rules = append(d.Rules, Rule{Name: r.Name, By: r.By, Algorithm: reflect.TypeOf(r.Algorithm).Name(), Limit: limit, Cost: r.Cost})
	}
	return d, nil
}

// A tape is a store that keeps what is sent through it.
type tape struct {
	store.Store
	file  *File
	calls []Call
}

func (t *tape) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	out, err := t.Store.Eval(ctx, script, keys, args, reply)
	if err != nil {
		return out, err
	}
	t.file.Scripts[script.SHA()] = script.Lua()
	c := Call{SHA: script.SHA(), Keys: slices.Clone(keys), Args: []string{}, Reply: []any{}}
	for _, a := range args {
		c.Args = append(c.Args, a.String())
	}
	for _, v := range out[len(reply):] {
		switch v.Kind() {
		case store.Integer:
			c.Reply = append(c.Reply, v.Int())
		case store.Bulk:
			c.Reply = append(c.Reply, v.Str())
		default:
			c.Reply = append(c.Reply, nil)
		}
	}
	t.calls = append(t.calls, c)
	return out, nil
}

// MGet is an error, because no step of a history uses it.
func (t *tape) MGet(context.Context, []string, []store.Value) ([]store.Value, error) {
	return nil, errors.New("golden vectors have no MGET")
}

// Text returns the text of f as a file, with one step in a line.
func (f *File) Text() (string, error) {
	head := *f
	head.Steps = nil
	text, err := encode(head, " ")
	var steps strings.Builder
	for i, step := range f.Steps {
		line, err1 := encode(step, "")
		err = errors.Join(err, err1)
		if i > 0 {
			steps.WriteString(",")
		}
		steps.WriteString("\n  " + strings.TrimSuffix(line, "\n"))
	}
	return strings.Replace(text, `"steps": null`, `"steps": [`+steps.String()+"\n ]", 1), err
}

// encode returns the JSON of v. It leaves <, > and & as they are.
func encode(v any, indent string) (string, error) {
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return text.String(), err
}

// Read reads the file of a history in a directory.
func Read(dir, name string) (*File, error) {
	b, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err != nil {
		return nil, err
	}
	f := new(File)
	if err := json.Unmarshal(b, f); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

// Write writes f to a directory.
func (f *File) Write(dir string) error {
	text, err := f.Text()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, f.Name+".json"), []byte(text), 0o644)
}

// TakeReplies sets the replies of f to those of other. The Go forms of scripts reply with
// other values than a server does.
func (f *File) TakeReplies(other *File) {
	for i := range min(len(f.Steps), len(other.Steps)) {
		for j := range min(len(f.Steps[i].Calls), len(other.Steps[i].Calls)) {
			f.Steps[i].Calls[j].Reply = other.Steps[i].Calls[j].Reply
		}
	}
}

// TakeTTLs sets the TTLs of f to those of other, if they are shorter by less than slack: on a
// server, time passes.
func (f *File) TakeTTLs(other *File, slack time.Duration) {
	for i := range min(len(f.Steps), len(other.Steps)) {
		for key, c := range f.Steps[i].Keys {
			if ttl := other.Steps[i].Keys[key].TTL; c.TTL <= ttl && c.TTL > ttl-slack.Milliseconds() {
				c.TTL = ttl
				f.Steps[i].Keys[key] = c
			}
		}
	}
}

// Differ returns the first line in which the texts of f and want differ, or "" if none does.
// A step is one line.
func (f *File) Differ(want *File) string {
	got, err1 := f.Text()
	should, err2 := want.Text()
	if err := errors.Join(err1, err2); err != nil {
		return err.Error()
	}
	all := strings.Split(should, "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(all) || line != all[i] {
			return fmt.Sprintf("line %d of %d:\ngot  %s\nwant %s", i+1, len(all), line, strings.Join(all[i:min(i+1, len(all))], ""))
		}
	}
	return ""
}
