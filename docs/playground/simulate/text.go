package simulate

import (
	"fmt"
	"reflect"
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
		fmt.Fprintf(&rules, "\t\t\t{Name: %q, %sAlgorithm: %s},\n", r.Name, by, literal(reflect.ValueOf(r.Algorithm)))
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

// literal returns a value as Go code.
func literal(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case algorithm.Rate:
		switch x.Period {
		case time.Second:
			return fmt.Sprintf("algorithm.PerSecond(%d)", x.Count)
		case time.Minute:
			return fmt.Sprintf("algorithm.PerMinute(%d)", x.Count)
		}
	case algorithm.Period:
		return "algorithm." + strings.ToUpper(string(x[:1])) + string(x[1:])
	case time.Duration:
		return duration(x)
	}
	var parts []string
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Field(i); !field.IsZero() {
				parts = append(parts, v.Type().Field(i).Name+": "+literal(field))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			parts = append(parts, strings.TrimPrefix(literal(v.Index(i)), v.Type().Elem().String()))
		}
	default:
		return fmt.Sprintf("%#v", v)
	}
	return fmt.Sprintf("%v{%s}", v.Type(), strings.Join(parts, ", "))
}

func duration(d time.Duration) string {
	n, unit := d/time.Second, "time.Second"
	if d%time.Minute == 0 {
		n, unit = d/time.Minute, "time.Minute"
	}
	if n == 1 {
		return unit
	}
	return fmt.Sprintf("%d * %s", n, unit)
}
