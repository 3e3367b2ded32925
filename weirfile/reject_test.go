package weirfile

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-go/weir"
)

// A reload does not change what the calls of a running program mean, and Diff says what
// Reload rejects.
func TestReloadRejects(t *testing.T) {
	t.Parallel()
	const (
		window   = "{by: [tenant], algorithm: fixed window, limit: 2, window: 1h}"
		base     = "tenant: " + window
		lease    = ", l: {algorithm: concurrency, limit: 300, lease: 1m, cost: 1}"
		other    = ", m: {algorithm: concurrency, limit: 300, lease: 1m, cost: 1}"
		pause    = ", p: {algorithm: pause}"
		kept     = ", m: {algorithm: metadata window, limit: 900, window: 1h}"
		units    = "[tenant, user], units: [input] "
		input    = ", in: {algorithm: fixed window, limit: 9, window: 1h, unit: input}"
		inCost   = ", in: {algorithm: fixed window, limit: 9, window: 1h}"
		settles  = "[tenant, user], settles: true, units: [input] "
		finishes = "refunds or finishes decisions, and the rules or the field settles do not allow it any more"
		unit     = "counts the rule in its earlier unit"
		order    = "passes the segments of its keys in their order"
		asked    = "can get the rule from Options.Override, and it is removed or has another algorithm"
	)
	asks := &Options{Override: func(context.Context, string, weir.Key) (o Override, found bool, err error) { return }}
	for _, c := range []struct {
		from, to string // the segments, if they are not tenant and user, the units and the rules
		opts     *Options
		want     string // what a running program does, and the file does not suit
	}{
		{base, "[user, tenant] " + base, nil, order},
		{base, "[tenant, user, device] " + base, nil, order},
		{base, "[tenant] " + base, nil, order},
		{base, "[person, tenant] " + base, nil, order},
		{"[tenant, user, device] " + base, "[tenant, device, user] " + base, nil, order},
		{base, "[tenant, person] " + base, asks, ""},
		{"[person, user] l: {" + lease[6:], "[tenant, device] l: {" + lease[6:], nil, ""},
		{base, base + lease, nil, "calls Allow, and a rule holds leases now; " + finishes},
		{settles + base + lease, units + base + lease, nil, finishes},
		{units + base + lease, settles + base + lease, nil, ""},
		{base + lease, base, nil, "calls Acquire, and no rule holds leases any more"},
		{base + lease, base + other, nil, ""},
		{base, base + pause, nil, ""},
		{base + pause, base, nil, "calls Pause, and no rule pauses keys any more"},
		{base + kept, base, nil, "sets Request.Metadata, and no rule stores it any more"},
		{base, units + base, nil, ""},
		{base, units + base + strings.Replace(input, "unit", "shadow: true, unit", 1), nil, ""},
		{base, units + base + input, nil, `could not name the unit "input" in Request.Costs yet, and a rule counts it now`},
		{units + base, base, nil, "can name the unit in Request.Costs, and the file does not declare it"},
		{units + base, units + base + input, nil, ""},
		{units + base + input, units + base, nil, ""},
		{units + base + input, strings.Replace(units, "input", "output, input", 1) + base + input, nil, ""},
		{units + base + input, units + base + inCost, nil, unit},
		{units + base + inCost, units + base + input, nil, unit},
		{units + base + inCost, units + base + strings.Replace(input, "in:", "in2:", 1), nil, ""},
		{units + base + input, units + base + input + lease, nil, "calls Allow, and a rule holds leases now; " + finishes},
		{units + base + input + lease, units + base + input, nil, "calls Acquire, and no rule holds leases any more"},
		{units + base + input + pause, units + base + input, nil, "calls Pause, and no rule pauses keys any more"},
		{base, "all: " + window, nil, ""},
		{base, "all: " + window, asks, asked},
		{base, strings.Replace(base, "fixed window", "sliding log", 1), asks, asked},
		{base, strings.Replace(base, "limit: 2", "limit: 3", 1), asks, ""},
	} {
		text := func(policy string) string {
			if !strings.HasPrefix(policy, "[") {
				policy = "[tenant, user] " + policy
			}
			return "policies: {api: {segments: " + strings.Replace(policy, "] ", "], rules: {", 1) + "}}}\n"
		}
		path := filepath.Join(t.TempDir(), "limits.yaml")
		write(t, path, text(c.from))
		l := load(t, path, c.opts)
		old := l.File()
		write(t, path, text(c.to))
		err := l.Reload()
		now, parsed := Load(path, c.opts)
		if parsed != nil {
			t.Fatal(parsed)
		}
		var got []string
		for _, change := range Diff(old, now) {
			if change.Effect != Rejected {
				continue
			}
			text, advice, _ := strings.Cut(strings.TrimPrefix(change.Text, "a running program "), ": ")
			got = append(got, text)
			if !strings.Contains(fmt.Sprint(err), change.String()) || !strings.HasPrefix(advice, "restart it") && advice != "give the rule a new name" {
				t.Errorf("%s to %s: Reload returned %v, and Diff %v", c.from, c.to, err, change)
			}
		}
		if list := strings.Join(got, "; "); list != c.want {
			t.Errorf("%s to %s:\n got %s\nwant %s", c.from, c.to, list, c.want)
		}
		if rejected := c.want != ""; (err != nil) != rejected || (l.File() == old) != rejected {
			t.Errorf("%s to %s: Reload returned %v", c.from, c.to, err)
		}
	}
}
