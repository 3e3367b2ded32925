package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/store"
)

var resetCommand = &command{
	name:    "reset",
	args:    "FILE POLICY KEY…",
	summary: "Give a caller its full limit again.",
	example: "weir reset -rule user limits.yaml api acme ann",
	text: `
Without -rule, it resets every rule that the whole key identifies, shadow rules too. It asks before it
resets more than one rule, or a rule that other keys share, for example a tenant's. Without a
terminal, it then needs -yes.`,
	flags: func(t *tool, set *flag.FlagSet) func(context.Context, []string) error {
		r := &reset{policyFlags: t.policyFlags(set)}
		set.StringVar(&r.rule, "rule", "", "reset only the `rule` with this name")
		r.sure = t.sure(set)
		return r.run
	},
}

type reset struct {
	*policyFlags
	rule string
	sure func(question string) error
}

// A resetRule is a rule that is reset.
type resetRule struct {
	Name string   `json:"name"`
	By   []string `json:"by"`
	Keys []string `json:"keys"`

	Reset bool `json:"reset"` // there is state
}

func (r *reset) run(ctx context.Context, args []string) error {
	s, err := r.open(ctx, args, true)
	if err != nil {
		return err
	}
	defer s.close()
	lim := s.lim.Bare()
	if r.rule != "" {
		if lim, err = s.lim.Bare().Only(r.rule); err != nil {
			return usageError{err}
		}
	}
	rules, err := r.rules(s)
	if err != nil {
		return err
	}
	shared := s.sharedBy(rules[0].By)
	if len(rules) > 1 || shared {
		var names []string
		for _, rule := range rules {
			names = append(names, fmt.Sprintf("rule %s (%s)", quoted(rule.Name), quotedAll(rule.Keys)))
		}
		question := "This resets " + strings.Join(names, " and ")
		if shared {
			question += fmt.Sprintf(", for all keys with the same %s", strings.Join(rules[0].By, " and "))
		}
		if err := r.sure(question + "."); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	for i := range rules {
		only, err := s.lim.Bare().Only(rules[i].Name)
		if err != nil {
			return err
		}
		res, err := only.Decide(ctx, weir.Request{Key: s.caller, Op: weir.Peek, Costs: gate.Each(only, 1)}, nil)
		if err != nil && !errors.Is(err, store.ErrForeign) { // the reset deletes it, or says what it is
			return err
		}
		rules[i].Reset = err != nil || res.Remaining < res.Limit || res.ResetAfter > 0
	}
	if _, err := lim.Decide(ctx, weir.Request{Key: s.caller, Op: weir.Reset}, nil); err != nil {
		return err
	}
	if *r.output == "json" {
		r.print(r.out, jsonText(map[string]any{"policy": s.policy.Name, "rules": rules}))
		return nil
	}
	for _, rule := range rules {
		did := map[bool]string{true: "reset", false: "there was nothing to reset in"}[rule.Reset]
		r.printf("%s rule %s: %s\n", did, quoted(rule.Name), quotedAll(rule.Keys))
	}
	return nil
}

// rules returns the rules that are reset. There is at least one. Limiter.Reset needs a rule that is
// no shadow rule, and then clears shadow rules too.
func (r *reset) rules(s *subject) ([]resetRule, error) {
	keys, err := s.lim.Bare().StoreKeys(s.caller)
	if err != nil {
		return nil, err
	}
	var list []resetRule
	enforced := false
	for i, info := range s.lim.Rules() {
		if r.rule == info.Name || r.rule == "" && !s.sharedBy(info.By) {
			list = append(list, resetRule{Name: info.Name, By: info.By, Keys: keys[i]})
			enforced = enforced || !info.Shadow || r.rule != ""
		}
	}
	if !enforced {
		return nil, usagef("no rule is identified by the whole key: name one with -rule")
	}
	return list, nil
}
