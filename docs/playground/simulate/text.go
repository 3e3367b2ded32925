package simulate

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/weirfile"
)

// file returns the policy as package weirfile reads it.
func (s side) file() string {
	var b strings.Builder
	fmt.Fprintf(&b, "policies:\n  %s:\n    segments: [%s]\n    rules:\n", s.policy.Name, strings.Join(s.policy.Segments, ", "))
	for _, r := range s.policy.Rules {
		fmt.Fprintf(&b, "      %s:\n", r.Name)
		if r.By != nil {
			fmt.Fprintf(&b, "        by: [%s]\n", strings.Join(r.By, ", "))
		}
		fields := strings.SplitN(weirfile.Describe(r.Algorithm, nil), ", spans: ", 2)
		fmt.Fprintf(&b, "        %s\n", strings.ReplaceAll(fields[0], ", ", "\n        "))
		if len(fields) == 2 {
			fmt.Fprintf(&b, "        spans: %s\n", fields[1])
		}
	}
	return b.String()
}

// code returns a package in Go that has the policy and makes the requests.
func (s side) code() string {
	var b strings.Builder
	b.WriteString("package limits\n\nimport (\n\t\"context\"\n")
	var rules strings.Builder
	for _, r := range s.policy.Rules {
		by := ""
		if r.By != nil {
			by = fmt.Sprintf("By: %#v, ", r.By)
		}
		fmt.Fprintf(&rules, "\t\t\t{Name: %q, %sAlgorithm: %s},\n", r.Name, by, literal(r.Algorithm))
	}
	request, parameters := "Key: weir.KeyOf(tenant, client)", "tenant, client"
	if s.wait > 0 {
		request += ", MaxWait: " + duration(s.wait)
	}
	if strings.Contains(rules.String()+request, "time.") {
		b.WriteString("\t\"time\"\n")
	}
	b.WriteString("\n\t\"github.com/weir-go/weir\"\n\t\"github.com/weir-go/weir/algorithm\"\n\t\"github.com/weir-go/weir/store\"\n)\n\n")
	fmt.Fprintf(&b, "// New returns the limiter of the API.\nfunc New(st store.Store) (*weir.Limiter, error) {\n\treturn weir.NewPolicy(st, weir.Policy{\n\t\tName:     %q,\n\t\tSegments: %#v,\n\t\tRules: []weir.Rule{\n%s\t\t},\n\t}, nil)\n}\n\n",
		s.policy.Name, s.policy.Segments, &rules)
	switch {
	case s.hold > 0:
		b.WriteString("// Allow decides one request. An allowed request holds a lease: release it with\n// Limiter.Decide, the op weir.Release and the same ID when the request ends.\n")
		parameters, request = parameters+", id", request+", ID: id"
	case s.wait > 0:
		b.WriteString("// Allow decides one request. An allowed request may go ahead after the Delay of the result.\n")
	default:
		b.WriteString("// Allow decides one request.\n")
	}
	fmt.Fprintf(&b, "func Allow(ctx context.Context, lim *weir.Limiter, %s string) (weir.Result, error) {\n\treturn lim.Decide(ctx, weir.Request{%s}, nil)\n}\n", parameters, request)
	return b.String()
}

// literal returns a as Go code.
func literal(a algorithm.Algorithm) string {
	text := ""
	switch a := a.(type) {
	case algorithm.GCRA:
		text = fmt.Sprintf("Rate: %s, Burst: %d", rate(a.Rate), a.Burst)
	case algorithm.TokenBucket:
		text = fmt.Sprintf("Capacity: %d, Refill: %s", a.Capacity, rate(a.Refill))
		if a.AtOnce {
			text += ", AtOnce: true"
		}
	case algorithm.LeakyBucket:
		text = fmt.Sprintf("Rate: %s, Queue: %d", rate(a.Rate), a.Queue)
	case algorithm.FixedWindow:
		text = quota(a.Limit, a.Window, a.Aligned)
	case algorithm.MetadataWindow:
		text = quota(a.Limit, a.Window, a.Aligned)
	case algorithm.SlidingCounter:
		text = quota(a.Limit, a.Window, false)
	case algorithm.SlidingLog:
		text = quota(a.Limit, a.Window, false)
	case algorithm.Calendar:
		text = fmt.Sprintf("Limit: %d, Every: algorithm.%s", a.Limit, strings.ToUpper(string(a.Every[:1]))+string(a.Every[1:]))
		if a.Day != 0 {
			text += fmt.Sprintf(", Day: %d", a.Day)
		}
	case algorithm.SlidingBuckets:
		text = fmt.Sprintf("Width: %s, Spans: []algorithm.Span{{Window: %s, Limit: %d}}", duration(a.Width), duration(a.Spans[0].Window), a.Spans[0].Limit)
	case algorithm.Concurrency:
		text = fmt.Sprintf("Limit: %d, Lease: %s", a.Limit, duration(a.Lease))
	}
	return fmt.Sprintf("%T{%s}", a, text)
}

func quota(limit int64, window time.Duration, aligned bool) string {
	text := fmt.Sprintf("Limit: %d, Window: %s", limit, duration(window))
	if aligned {
		text += ", Aligned: true"
	}
	return text
}

func rate(r algorithm.Rate) string {
	switch r.Period {
	case time.Second:
		return fmt.Sprintf("algorithm.PerSecond(%d)", r.Count)
	case time.Minute:
		return fmt.Sprintf("algorithm.PerMinute(%d)", r.Count)
	}
	return fmt.Sprintf("algorithm.Rate{Count: %d, Period: %s}", r.Count, duration(r.Period))
}

func duration(d time.Duration) string {
	switch {
	case d == time.Second:
		return "time.Second"
	case d == time.Minute:
		return "time.Minute"
	case d%time.Minute == 0:
		return fmt.Sprintf("%d * time.Minute", d/time.Minute)
	}
	return fmt.Sprintf("%d * time.Second", d/time.Second)
}
