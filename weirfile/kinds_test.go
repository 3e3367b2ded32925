package weirfile

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// one returns a file with one rule.
func one(rule string) []byte {
	return []byte("policies: {api: {rules: {r: {" + rule + "}}}}\n")
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
		"algorithm: calendar, limit: 3, every: month, carry: 2":                   algorithm.Calendar{Limit: 3, Every: algorithm.Month, Carry: 2},
		"algorithm: calendar, limit: 3, every: day, zone: Europe/Berlin":          algorithm.Calendar{Limit: 3, Every: algorithm.Day, Zone: "Europe/Berlin"},
		"algorithm: calendar, limit: 3, every: week, day: sunday":                 algorithm.Calendar{Limit: 3, Every: algorithm.Week, Day: 7},
		`algorithm: calendar, limit: 3, every: month, day: 17, at: "06:30"`:       algorithm.Calendar{Limit: 3, Every: algorithm.Month, Day: 17, At: 6*time.Hour + 30*time.Minute},
		`algorithm: calendar, limit: 3, every: quarter, zone: Etc/GMT+5, month: march, day: 5, at: "06:30:07.000001"`: algorithm.Calendar{
			Limit: 3, Every: algorithm.Quarter, Zone: "Etc/GMT+5", Month: time.March, Day: 5, At: 6*time.Hour + 30*time.Minute + 7*time.Second + time.Microsecond,
		},
		"algorithm: calendar, limit: 3, every: year, zone: UTC, month: april":     algorithm.Calendar{Limit: 3, Every: algorithm.Year, Zone: "UTC", Month: time.April},
		"algorithm: sliding buckets, width: 1s, spans: [{window: 10s, limit: 5}]": algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: 10 * time.Second, Limit: 5}}},
		"algorithm: sliding buckets, width: 100ms, spans: [{window: 1s, limit: 5}, {window: 10s, limit: 20}]": algorithm.SlidingBuckets{
			Width: 100 * time.Millisecond, Spans: []algorithm.Span{{Window: time.Second, Limit: 5}, {Window: 10 * time.Second, Limit: 20}},
		},
	} {
		if got := parse(t, string(one(text)), nil).Policies()[0].Rules[0].Algorithm; !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %#v\nwant %#v", text, got, want)
		}
		if got := Describe(want, nil); got != text {
			t.Errorf("got %s\nwant %s", got, text)
		}
	}
}

// A file can name every algorithm of package algorithm, and set all its fields.
func TestEveryAlgorithm(t *testing.T) {
	t.Parallel()
	list, err := kinds(nil)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob("../algorithm/*.go")
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range newLimit.FindAllSubmatch(text, -1) {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			found++
			name := string(m[1])
			if k := find(list, words(name)); k == nil || k.prototype.Type().Name() != name || len(k.fields) != k.prototype.NumField() {
				t.Errorf("algorithm.%s is not in the list builtin, or a file cannot set all its fields", name)
			}
		}
	}
	if found != len(list) {
		t.Errorf("package algorithm has %d algorithms, and the list builtin %d", found, len(list))
	}
}

var newLimit = regexp.MustCompile(`(?m)^func \((?:\w+ )?(\w+)\) NewLimit\(`)
