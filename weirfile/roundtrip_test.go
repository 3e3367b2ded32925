package weirfile

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// one returns a file with one rule.
func one(rule string) []byte {
	return []byte("policies: {api: {rules: {r: {" + rule + "}}}}\n")
}

// read returns the algorithm of a file with one rule.
func read(t *testing.T, rule string) algorithm.Algorithm {
	t.Helper()
	f, err := Parse("x.yaml", one(rule), nil)
	if err != nil {
		t.Fatalf("%s: %v", rule, err)
	}
	return f.Policies()[0].Rules[0].Algorithm
}

func TestAlgorithms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]algorithm.Algorithm{
		"algorithm: gcra, rate: 10 per second, burst: 20":                         algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20},
		"algorithm: fixed window, limit: 1000, window: 1h":                        algorithm.FixedWindow{Limit: 1000, Window: time.Hour},
		"algorithm: fixed window, limit: 1000, window: 1h, aligned: true":         algorithm.FixedWindow{Limit: 1000, Window: time.Hour, Aligned: true},
		"algorithm: sliding counter, limit: 7, window: 1d":                        algorithm.SlidingCounter{Limit: 7, Window: 24 * time.Hour},
		"algorithm: sliding log, limit: 5, window: 15m":                           algorithm.SlidingLog{Limit: 5, Window: 15 * time.Minute},
		"algorithm: token bucket, capacity: 5, refill: 1 per 30s":                 algorithm.TokenBucket{Capacity: 5, Refill: algorithm.Every(30 * time.Second)},
		"algorithm: token bucket, capacity: 5, refill: 5 per hour, at once: true": algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerHour(5), AtOnce: true},
		"algorithm: leaky bucket, rate: 3 per second":                             algorithm.LeakyBucket{Rate: algorithm.PerSecond(3)},
		"algorithm: leaky bucket, rate: 3 per second, queue: 9":                   algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 9},
		"algorithm: metadata window, limit: 3, window: 30s, aligned: true":        algorithm.MetadataWindow{Limit: 3, Window: 30 * time.Second, Aligned: true},
		"algorithm: concurrency, limit: 3, lease: 2m":                             algorithm.Concurrency{Limit: 3, Lease: 2 * time.Minute},
		"algorithm: calendar, limit: 3, every: day":                               algorithm.Calendar{Limit: 3, Every: algorithm.Day},
		"algorithm: calendar, limit: 3, every: day, zone: Europe/Berlin":          algorithm.Calendar{Limit: 3, Every: algorithm.Day, Zone: "Europe/Berlin"},
		"algorithm: calendar, limit: 3, every: week, day: sunday":                 algorithm.Calendar{Limit: 3, Every: algorithm.Week, Day: 7},
		`algorithm: calendar, limit: 3, every: month, day: 17, at: "06:30"`:       algorithm.Calendar{Limit: 3, Every: algorithm.Month, Day: 17, At: 6*time.Hour + 30*time.Minute},
		"algorithm: calendar, limit: 3, every: year, zone: UTC, month: april":     algorithm.Calendar{Limit: 3, Every: algorithm.Year, Zone: "UTC", Month: time.April},
		"algorithm: sliding buckets, width: 1s, spans: [{window: 10s, limit: 5}]": algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: 10 * time.Second, Limit: 5}}},
		"algorithm: sliding buckets, width: 100ms, spans: [{window: 1s, limit: 5}, {window: 10s, limit: 20}]": algorithm.SlidingBuckets{
			Width: 100 * time.Millisecond, Spans: []algorithm.Span{{Window: time.Second, Limit: 5}, {Window: 10 * time.Second, Limit: 20}},
		},
	} {
		if got := read(t, text); !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %#v\nwant %#v", text, got, want)
		}
		if got := Describe(want, nil); got != text {
			t.Errorf("got %s\nwant %s", got, text)
		}
	}
}

func builtinKinds(t *testing.T) []*kind {
	t.Helper()
	list, err := kinds(nil)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Random limits of every algorithm are read as Describe writes them.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for _, k := range builtinKinds(t) {
		t.Run(k.name, func(t *testing.T) {
			valid := 0
			for range 50_000 {
				v := reflect.New(k.prototype.Type())
				fill(random, v.Elem())
				a := k.algorithm(v)
				if _, err := a.NewLimit(); err != nil {
					continue
				}
				valid++
				if got := read(t, Describe(a, nil)); !reflect.DeepEqual(got, a) {
					t.Fatalf("%s\n got %#v\nwant %#v", Describe(a, nil), got, a)
				}
				if valid == 200 {
					break
				}
			}
			if valid < 100 && k.prototype.NumField() > 0 {
				t.Errorf("only %d limits were valid", valid)
			}
		})
	}
}

// fill sets a struct to plausible values.
func fill(random *rand.Rand, v reflect.Value) {
	pick := func(n ...int64) int64 { return n[random.IntN(len(n))] }
	for i := range v.NumField() {
		switch f := v.Field(i); f.Interface().(type) {
		case algorithm.Rate:
			f.Set(reflect.ValueOf(algorithm.Rate{Count: 1 + random.Int64N(1000), Period: time.Duration(pick(1, 1000, 1e6, 1e9, 60e9, 7e9, 3600e9, 86400e9))}))
		case time.Duration:
			if f.SetInt(pick(1, 7, 1000) * pick(1e3, 1e6, 1e9, 60e9, 3600e9)); v.Type().Field(i).Name == "At" {
				f.SetInt(pick(0, 0, random.Int64N(86400e6)*1000))
			}
		case time.Month:
			f.SetInt(pick(0, 0, 1+random.Int64N(12)))
		case algorithm.Period:
			f.SetString(every[random.IntN(len(every))])
		case []algorithm.Span:
			list := make([]algorithm.Span, 1+random.IntN(3))
			width := v.Field(0).Int()
			for i := range list {
				list[i] = algorithm.Span{Window: time.Duration(width * (1 + random.Int64N(60))), Limit: 1 + random.Int64N(1e6)}
			}
			f.Set(reflect.ValueOf(list))
		case string:
			f.SetString([]string{"", "UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"}[random.IntN(5)])
		case bool:
			f.SetBool(random.IntN(2) == 0)
		case int:
			f.SetInt(pick(0, 1+random.Int64N(31)))
		case int64:
			f.SetInt(pick(0, 1, 2, 3, random.Int64N(1e6), random.Int64N(1<<40)))
		default:
			panic(fmt.Sprintf("%T has a field %s of type %T", v.Interface(), v.Type().Field(i).Name, f.Interface()))
		}
	}
}

// A file can name every algorithm of package algorithm, and set all its fields.
func TestEveryAlgorithm(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../algorithm/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	list, found := builtinKinds(t), 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Name.Name != "NewLimit" || f.Recv == nil {
				continue
			}
			found++
			name := f.Recv.List[0].Type.(*ast.Ident).Name
			k := find(list, words(name))
			if k == nil || k.prototype.Type().Name() != name {
				t.Errorf("%s: algorithm.%s is not in the list builtin", file, name)
				continue
			}
			if typ := k.prototype.Type(); len(k.fields) != typ.NumField() {
				t.Errorf("algorithm.%s has %d fields, and a file can set only %v", name, typ.NumField(), namesOf(k.fields))
			}
		}
	}
	if found < len(list) {
		t.Errorf("package algorithm has %d algorithms, and the list builtin %d", found, len(list))
	}
}
