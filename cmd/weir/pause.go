package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

var pauseCommand = &command{
	name:    "pause",
	args:    "FILE POLICY KEY…",
	summary: "Deny a caller everything for a while, in all processes.",
	example: "weir pause -for 5m limits.yaml api acme ann",
	text: `
The policy must have a rule with "algorithm: pause". It prints the ID of the pause, which weir resume
needs to end it early. A second pause never shortens the first. The pause ends after -for in any case.
If other keys share the rule, for example those of a tenant, it asks, because all of them are denied.
Without a terminal, it then needs -yes.`,
	flags: func(t *tool, set *flag.FlagSet) func(context.Context, []string) error {
		p := &pause{policyFlags: t.policyFlags(set)}
		p.time = 5 * time.Minute
		set.Var((*span)(&p.time), "for", "the `time` until the caller is served again")
		set.StringVar(&p.rule, "rule", "", "the name of the `rule`, if several are pauses")
		p.sure = t.sure(set)
		return p.pause
	},
}

var resumeCommand = &command{
	name:    "resume",
	args:    "FILE POLICY KEY…",
	summary: "End a pause early.",
	example: "weir resume -id RKOMHVS2N5QXS4XKMFJHV7DHLD limits.yaml api acme ann",
	text: `
It ends the pause with the ID that weir pause printed, and leaves the pauses of others. The exit code
is 1 if there is no such pause. With -all, it ends all pauses of the caller. If other keys share the
rule, -all asks, because it ends their pauses too.`,
	flags: func(t *tool, set *flag.FlagSet) func(context.Context, []string) error {
		p := &pause{policyFlags: t.policyFlags(set)}
		set.StringVar(&p.id, "id", "", "the `ID` of the pause")
		set.BoolVar(&p.all, "all", false, "end all pauses of the caller, of programs too")
		set.StringVar(&p.rule, "rule", "", "the name of the `rule`, if several are pauses")
		p.sure = t.sure(set)
		return p.resume
	},
}

// A pause is the flags of pause and resume.
type pause struct {
	*policyFlags
	time time.Duration
	rule string
	id   string
	all  bool
	sure func(question string) error
}

// only returns the limiter of the rule that is a pause.
func (p *pause) only(s *subject) (*weir.Limiter, error) {
	var names []string
	for _, info := range s.lim.Rules() {
		if info.Type == weir.PauseRule && (p.rule == "" || p.rule == info.Name) {
			names = append(names, info.Name)
		}
	}
	switch {
	case len(names) == 1:
		return s.lim.Bare().Only(names[0])
	case len(names) > 1:
		return nil, usagef("the rules %s are pauses: name one with -rule", quotedAll(names))
	case p.rule != "":
		return nil, usagef("-rule is %q: it must be a rule with \"algorithm: pause\"", p.rule)
	}
	return nil, usagef("policy %q cannot be paused: add a rule with \"algorithm: pause\" to it", s.policy.Name)
}

// begin opens the policy. If other keys share the rule, it asks whether to do what the words say.
func (p *pause) begin(ctx context.Context, args []string, does string) (s *subject, lim *weir.Limiter, err error) {
	if s, err = p.open(ctx, args, true); err != nil {
		return nil, nil, err
	}
	if lim, err = p.only(s); err == nil && does != "" && s.sharedBy(lim.Rules()[0].By) {
		err = p.sure(fmt.Sprintf("This %s all keys with the same %s.", does, strings.Join(lim.Rules()[0].By, " and ")))
	}
	if err != nil {
		s.close()
	}
	return s, lim, err
}

func (p *pause) pause(ctx context.Context, args []string) error {
	if p.time <= 0 {
		return usagef("-for is %v: it must be above 0", p.time)
	}
	s, lim, err := p.begin(ctx, args, "pauses")
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	id := rand.Text()
	if _, err := lim.Decide(ctx, weir.Request{Key: s.caller, Op: weir.Pause, ID: id, For: p.time}, nil); err != nil {
		return err
	}
	if *p.output == "json" {
		p.print(p.out, jsonText(map[string]any{"policy": s.policy.Name, "rule": lim.Rules()[0].Name, "id": id, "seconds": p.time.Seconds()}))
		return nil
	}
	p.printf("%s\n", id)
	return nil
}

func (p *pause) resume(ctx context.Context, args []string) error {
	if (p.id == "") != p.all {
		return usagef("give either -id with the ID that weir pause printed, or -all")
	}
	does, op := "", weir.Resume // a pause with an ID is of one command
	if p.all {
		does, op = "ends all pauses of", weir.Reset
	}
	s, lim, err := p.begin(ctx, args, does)
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	before, err := lim.Decide(ctx, weir.Request{Key: s.caller, Op: weir.Peek}, nil)
	if err != nil {
		return err
	}
	res, err := lim.Decide(ctx, weir.Request{Key: s.caller, Op: op, ID: p.id}, nil)
	if err != nil {
		return err
	}
	return p.resumed(ctx, s, lim, res.Allowed && !before.Allowed)
}

// resumed prints what resume did, and what holds now: another pause can go on.
func (p *pause) resumed(ctx context.Context, s *subject, lim *weir.Limiter, resumed bool) error {
	res, err := lim.Decide(ctx, weir.Request{Key: s.caller, Op: weir.Peek}, nil)
	if err != nil {
		return err
	}
	if *p.output == "json" {
		p.print(p.out, jsonText(map[string]any{"policy": s.policy.Name, "rule": lim.Rules()[0].Name, "resumed": resumed, "paused": !res.Allowed}))
	} else {
		var text []string
		if text = append(text, "resumed"); !resumed {
			text[0] = "there is no such pause"
		}
		if !res.Allowed {
			text = append(text, fmt.Sprintf("the caller is paused for another %v", res.RetryAfter.Round(time.Millisecond)))
		}
		p.printf("%s\n", strings.Join(text, "; "))
	}
	if !resumed {
		return errNo
	}
	return nil
}
