// Package golden records the golden vectors of histories of decisions: what is sent to a
// store, what the store replies, what the limiter answers, and what the keys then hold.
// conformance/reports/golden-vectors.md describes the files. A file has the requests of its history,
// so it can be recorded again.
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
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/rediscell"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
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

// Record sends the requests of f to st, and returns their vectors. The function look
// returns what each existing key holds.
func (f *File) Record(ctx context.Context, st store.Store, look func(keys []string) (map[string]Content, error)) (*File, error) {
	got := &File{Format: Format, Name: f.Name, Source: f.Source, Policy: f.Policy, Scripts: map[string]string{}}
	tape := &tape{Store: st, file: got}
	var now time.Time
	opts := &weir.Options{Clock: func() time.Time { return now }}
	var lim *weir.Limiter
	var cells *rediscell.Throttler
	var err error
	if f.Policy == nil { // a limiter of redis-cell, whose name is in its keys
		cells, err = rediscell.New(strings.Split(f.Steps[0].Calls[0].Keys[0], ":")[1], tape, opts)
	} else {
		lim, err = f.Policy.limiter(tape, opts)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	var seen []string
	for i, want := range f.Steps {
		now = time.UnixMicro(want.At).UTC()
		tape.calls = []Call{}
		s := Step{At: want.At, Request: want.Request, Published: want.Published}
		if r := &s.Request; cells != nil {
			res, err1 := cells.Throttle(ctx, r.Key[0], r.MaxBurst, r.Count, duration(r.Period), r.Cost)
			numbers := res.Numbers()
			s.Numbers, err = numbers[:], err1
		} else {
			s.Answer, err = r.decide(ctx, lim)
		}
		s.Calls = tape.calls
		for _, c := range s.Calls {
			seen = append(seen, c.Keys...)
		}
		slices.Sort(seen)
		seen = slices.Compact(seen)
		if err == nil {
			s.Keys, err = look(seen)
		}
		if err != nil {
			return nil, fmt.Errorf("%s, step %d: %w", f.Name, i, err)
		}
		got.Steps = append(got.Steps, s)
	}
	return got, nil
}

// limiter returns the limiter of p.
func (p *Policy) limiter(st store.Store, opts *weir.Options) (*weir.Limiter, error) {
	opts.Prefix = p.Prefix
	policy := weir.Policy{Name: p.Name, Segments: p.Segments, Secret: p.Secret}
	for _, r := range p.Rules {
		a, err := r.algorithm()
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", r.Name, err)
		}
		policy.Rules = append(policy.Rules, weir.Rule{Name: r.Name, By: r.By, Algorithm: a, Cost: r.Cost})
	}
	return weir.NewPolicy(st, policy, opts)
}

// algorithm returns the algorithm of r.
func (r *Rule) algorithm() (algorithm.Algorithm, error) {
	for _, a := range []algorithm.Algorithm{
		algorithm.GCRA{}, algorithm.TokenBucket{}, algorithm.LeakyBucket{}, algorithm.FixedWindow{}, algorithm.MetadataWindow{},
		algorithm.SlidingCounter{}, algorithm.SlidingLog{}, algorithm.SlidingBuckets{}, algorithm.Concurrency{}, algorithm.Calendar{},
		algorithm.Pause{},
	} {
		if kind := reflect.TypeOf(a); kind.Name() == r.Algorithm {
			v := reflect.New(kind)
			err := json.Unmarshal(r.Limit, v.Interface())
			return v.Elem().Interface().(algorithm.Algorithm), err
		}
	}
	return nil, fmt.Errorf("there is no algorithm %q", r.Algorithm)
}

// decide makes the decision that r describes.
func (r *Request) decide(ctx context.Context, lim *weir.Limiter) (*Answer, error) {
	i := slices.Index(ops, r.Op)
	if i < 0 {
		return nil, fmt.Errorf("there is no op %q", r.Op)
	}
	req := weir.Request{
		Key: weir.KeyOf(r.Key...), Op: weir.Op(i), Cost: r.Cost, MaxWait: duration(r.MaxWait), For: duration(r.For), ID: r.ID, Metadata: r.Metadata,
	}
	if r.Actual != nil {
		req.Actual = weir.ActualCost(*r.Actual)
	}
	each := make([]weir.Result, weir.MaxRules)
	res, err := lim.Decide(ctx, req, each)
	a := &Answer{
		Allowed: res.Allowed, Granted: res.Granted, Delay: micros(res.Delay), Rule: res.Rule, Limit: res.Limit, Window: micros(res.Window),
		Remaining: res.Remaining, RetryAfter: micros(res.RetryAfter), ResetAfter: micros(res.ResetAfter), Replayed: res.Replayed,
	}
	for _, rule := range each {
		if rule.Rule != "" && !rule.Allowed {
			a.DeniedBy = append(a.DeniedBy, rule.Rule)
		}
	}
	return a, err
}

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// ops are the names of each weir.Op.
var ops = []string{
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

// Read reads the files in a directory.
func Read(dir string) ([]*File, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	var all []*File
	for _, name := range names {
		b, err1 := os.ReadFile(name)
		f := new(File)
		err = errors.Join(err, err1, json.Unmarshal(b, f))
		if f.Name+".json" != filepath.Base(name) {
			err = errors.Join(err, fmt.Errorf("%s has the name %q", name, f.Name))
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		err = errors.Join(err, fmt.Errorf("%s has no file", dir))
	}
	return all, err
}

// Write writes f to a directory.
func (f *File) Write(dir string) error {
	text, err := f.Text()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, f.Name+".json"), []byte(text), 0o644)
}

// TakeReplies copies the replies of other to f, because the Go forms of scripts reply
// with other values than a server does.
func (f *File) TakeReplies(other *File) {
	for i := range min(len(f.Steps), len(other.Steps)) {
		for j := range min(len(f.Steps[i].Calls), len(other.Steps[i].Calls)) {
			f.Steps[i].Calls[j].Reply = other.Steps[i].Calls[j].Reply
		}
	}
}

// TakeTTLs copies each TTL of other to f that is longer by less than slack, because time
// passes on a server.
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

// OnMemory records f on a memory store whose clock stands still. So no key expires, as on a
// server, where all requests of a history come within a minute.
func (f *File) OnMemory(ctx context.Context) (*File, error) {
	now := time.UnixMicro(f.Steps[0].At)
	st := memory.New(&memory.Options{Now: func() time.Time { return now }})
	return f.Record(ctx, st, look(ctx, st))
}

// look returns what keys of a memory store hold. The list of a MetadataWindow is a sorted
// set there.
func look(ctx context.Context, st *memory.Store) func(keys []string) (map[string]Content, error) {
	return func(keys []string) (map[string]Content, error) {
		found := map[string]Content{}
		for key, ttl := range st.All() {
			if !slices.Contains(keys, key) {
				return nil, fmt.Errorf("%q is a key that no script had", key)
			}
			c := Content{TTL: ttl.Milliseconds()}
			script := store.NewReadOnlyScript("look", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
				if n, ok, err := tx.Get(0); err == nil && ok {
					c.Text = n.String()
					return reply, nil
				}
				_, all, err := tx.Count(0, 0)
				for i := all - 1; i >= 0 && err == nil; i-- {
					var m store.Member
					if m, _, err = tx.At(0, i); strings.HasPrefix(m.Text, "m") {
						c.List = append(c.List, m.Text)
					} else {
						c.Set = append(c.Set, Member{m.Text, m.Score})
					}
				}
				return reply, err
			})
			if _, err := st.Eval(ctx, script, []string{key}, nil, nil); err != nil {
				return nil, err
			}
			found[key] = c
		}
		return found, nil
	}
}
