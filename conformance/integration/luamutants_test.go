package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/conformance/internal/random"
	"github.com/weir-go/weir/store"
)

// A luaMutant is an error in the Lua of a script. Its Go form stays right.
type luaMutant struct {
	Kind  string // the kind of the algorithm, which scripts are named by
	Check string // a check that finds the mutant, of RunAlgorithm ("Algorithm/Same") or of Run ("Concurrency/Same")

	// Old is replaced by Wrong in every script of the kind, where it stands in the text
	// of Kind.Lua, or of the composer. $name stands for that name of the kind.
	Old, Wrong string
}

// luaMutants are errors that the suite must find.
var luaMutants = []luaMutant{
	{"calendar", "Algorithm/Same", "$count = $count + n", "$count = $count + 1"},
	{"calendar", "Algorithm/Same", "target - offset", "target"},
	{"calendar", "Algorithm/Same", "(month - first) % every", "month % every"},
	{"calendar", "Algorithm/Same", "days(month + 1) - 1)", "days(month + 1))"},
	{"calendar", "Algorithm/Same", "(latest + shift) % every", "latest % every"},
	{"calendar", "Algorithm/Refund", "if $count == 0 then $edge = 0 end", "if $count ~= 0 then $edge = 0 end"},
	{"concurrency", "Concurrency/Same", "if $held <= now then $held", "if $held < now then $held"},
	{"concurrency", "Concurrency/Exact", "$live > rank and rank >= 0", "$live >= rank and rank >= 0"},
	{"concurrency", "Concurrency/Same", "if $live == 0 then", "if $live ~= 0 then"},
	{"dailyquota", "Algorithm/Same", "$count = $count + n", "$count = $count + 1"},
	{"dailyquota", "Algorithm/Same", "local clock = now + offset", "local clock = now"},
	{"dailyquota", "Algorithm/Refund", "math.max($count - n, 0)", "math.max($count - 1, 0)"},
	{"fixedwindow", "Algorithm/Refund", "$count = math.max($count - n, 0)", "$count = math.max($count - n - 1, 0)"},
	{"fixedwindow", "Algorithm/Refund", "if $count == 0 then $edge = 0 end", "if $count ~= 0 then $edge = 0 end"},
	{"fixedwindow", "Algorithm/Same", "if rest and rest > 0 then", "if false then"},
	{"gcra", "Algorithm/Same", "if $rem > 0 then $ends = $tat + 1 end", "if $rem > 0 then $ends = $tat end"},
	{"gcra", "Algorithm/Same", "if $den ~= $parts then", "if $den == $parts then"},
	{"gcra", "Algorithm/Same", "if $tat >= at then ahead", "if $tat > at then ahead"},
	{"gcra", "Algorithm/Refund", "$tat - now > $span then", "$tat - now >= $span then"},
	{"gcra", "Algorithm/Refund", "$from + size), $was_tat)", "$from), $was_tat)"},
	{"gcra", "Algorithm/Refund", "and ahead > $total then", "and ahead >= $total then"},
	{"gcra", "Algorithm/Refund", "behind, rest = behind - over, rest + over", ""},
	{"gcra", "Algorithm/Refund", "if rem < 0 then tat", "if rem <= 0 then tat"},
	{"gcra", "Algorithm/Refund", "math.max(late - size, 0)", "math.min(late - size, 0)"},
	{"gcra", "Algorithm/Refund", "math.min(first, $from)", "math.max(first, $from)"},
	{"gcra", "Algorithm/Same", "local ok = $room >= n", "local ok = $room > n"},
	{"gcra", "Algorithm/Same", "if slack == 0 and from", "if from"},
	{"gcra", "Algorithm/Same", "if take < 0 then take = 0 end", "if take < 0 then take = 1 end"},
	{"gcra", "Algorithm/MaxWait", "at = now + ARGV[4]", "at = now"},
	{"gcra", "Algorithm/TTL", "from <= $prev and $prev < from + 1048576", "true"},
	{"gcra", "Algorithm/Layout", "if $tat > 9007199254740991 then", "if false then"},
	{"gcra", "Algorithm/Layout", "or #t_$tat > 1 and t_$tat < '1'", ""},
	{"gcra", "Algorithm/Refund", "if ends <= now then", "if ends < now then"},
	{"gcra", "Algorithm/Refund", "~= '' and $gen == was[1] then", "~= '' then"},
	{"gcra", "Algorithm/Refund", "redis.call('UNLINK', KEYS[2])", ""},
	{"gcra", "Algorithm/Refund", "' ' .. ARGV[3] .. ' ' .. ARGV[6] .. ints", "' 1 ' .. ARGV[6] .. ints"},
	{"gcra", "Algorithm/Refund", "else\ngave = 2\nend", "end"},
	{"leakybucket", "Algorithm/Same", "waits = $tat > at or", "waits = $tat >= at or"},
	{"leakybucket", "Algorithm/Same", "if waits and $room > 0 then $room = 0 end", ""},
	{"leakybucket", "Algorithm/Exact", "local at = now\n", ""},
	{"metadatawindow", "Algorithm/Same", "if now >= $edge then", "if now > $edge then"},
	{"metadatawindow", "Algorithm/Same", "if rest > 0 then $edge", "if false then $edge"},
	{"metadatawindow", "Algorithm/TTL", "$count == 0 or rest > 0 or", "$count == 0 or"},
	{"pause", "Pause/Until", "if $until > now then", "if $until >= now then"},
	{"pause", "Pause/Until", "if ends < held then ends = held end", ""},
	{"pause", "Pause/Until", "$until = score + 0", "$until = score + 1"},
	{"pause", "Pause/Full", ">= 64", "> 64"},
	{"pause", "Pause/Full", "if held <= now and", "if held > now and"},
	{"pause", "Pause/Full", "if ended > 0 then", "if false then"},
	{"pause", "Pause/Wait", "if $until > now then", "if $until > at then"},
	{"pause", "Pause/Resume", "== 1 and held > now then", "== 1 then"},
	{"pause", "Pause/TTL", "if ends < $until then ends = $until end", ""},
	{"pause", "Pause/Foreign", "string.sub(newest[1], 1, 3) ~= 'p1 '", "false"},
	{"slidingbuckets", "Algorithm/Same", "if began == start then", "if began ~= start then"},
	{"slidingbuckets", "Algorithm/Refund", "if i == 1 then $owner", "if i ~= 1 then $owner"},
	{"slidingcounter", "Algorithm/Same", "elseif now - $start >= $window then", "elseif now - $start > $window then"},
	{"slidingcounter", "Algorithm/Same", "if rest > 0 then weight", "if rest >= 0 then weight"},
	{"slidinglog", "Algorithm/Same", "if time <= after then", "if time < after then"},
	{"slidinglog", "Algorithm/Same", "after + 1), nil, nil", "after), nil, nil"},
	{"slidinglog", "Algorithm/Refund", "(back + more) % 4503599627370496", "back"},
	{"tokenbucket", "Algorithm/Refund", "if lack > $capacity then", "if lack >= $capacity then"},
	{"tokenbucket", "Algorithm/Refund", "from + was[2]), left)", "from), left)"},
	{"tokenbucket", "Algorithm/Refund", "from < left - was[2]", "from <= left - was[2]"},
}

// TestLuaMutants checks that the suite finds every mutant on a real server. Each runs in a
// process of its own, because its check fails.
func TestLuaMutants(t *testing.T) {
	const which, where = "WEIR_LUA_MUTANT", "WEIR_LUA_MUTANT_ADDR"
	if text := os.Getenv(which); text != "" {
		var m luaMutant
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		m.run(t, servers.Endpoint{Kind: servers.Single, Addrs: []string{os.Getenv(where)}})
		return
	}
	notShort(t)
	inLua(t)
	servers.Need(t)
	t.Parallel()
	// Each process has a server to itself: the suite lists keys, and the keys of others
	// would make that slow.
	idle := make(chan *redis.Client, cap(lanes))
	for range cap(idle) {
		_, rdb := adapters[0].single(t)
		idle <- rdb
	}
	for _, m := range luaMutants {
		t.Run(m.Kind+" "+m.Wrong, func(t *testing.T) {
			busyParallel(t)
			progress(t)
			rdb := <-idle
			defer func() { idle <- rdb }()
			must(t, rdb, "FLUSHALL")
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			subject, check, _ := strings.Cut(m.Check, "/")
			// Random histories find some mutants in every second run, and one in every fourth.
			cmd := exec.Command(os.Args[0], "-test.run", "^TestLuaMutants$/^"+subject+"$/^"+check+"$", "-test.count=100", "-test.failfast")
			cmd.Env = append(os.Environ(), which+"="+string(text), where+"="+rdb.Options().Addr)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestLuaMutants/"+m.Check) {
				t.Errorf("%q for %q: %s did not fail in 100 runs: %v\n%s", m.Wrong, m.Old, m.Check, err, out)
			}
			if strings.Contains(string(out), notFound) {
				t.Errorf("%q for %q: %s", m.Wrong, m.Old, notFound)
			}
		})
	}
}

// notFound is the error of a mutant of a text that no script has.
const notFound = "no script that ran has this text"

// run runs the suite over a store whose scripts have the mutant.
func (m luaMutant) run(t *testing.T, e servers.Endpoint) {
	old, wrong := m.patterns()
	mutated := &sync.Map{}
	right := adapters[0].backend(adapters[0].always(t, e, e))
	b := conformance.Backend{
		New: func(t *testing.T) store.Store { return mutant{right.New(t), m.Kind, old, wrong, mutated} },
		Keys: func(t *testing.T, st store.Store, part string) map[string]time.Duration {
			return right.Keys(t, st.(mutant).Store, part)
		},
	}
	t.Cleanup(func() {
		found := false
		mutated.Range(func(script, other any) bool {
			found = found || script != other
			return !found
		})
		if !found {
			t.Error(notFound)
		}
	})
	if s, ok := mutantSubjects(t)[m.Kind]; ok {
		conformance.RunAlgorithm(t, b, s)
	}
	conformance.Run(t, b)
}

var luaName = regexp.MustCompile(`\\\$([a-z_]+\d*)`)

// patterns returns the expression that finds Old in a script, and its replacement.
func (m luaMutant) patterns() (*regexp.Regexp, string) {
	var names []string
	old := luaName.ReplaceAllStringFunc(regexp.QuoteMeta(m.Old), func(name string) string {
		name = luaName.FindStringSubmatch(name)[1]
		names = append(names, name)
		return `(` + regexp.QuoteMeta(name) + `\d*|\(ARGV\[\d+\]\+0\)|ARGV\[\d+\]|KEYS\[\d+\]|was\[\d+\]|redis.error_reply\('WEIRFOREIGN \d+'\))`
	})
	wrong := regexp.MustCompile(`\$([a-z_]+\d*)`).ReplaceAllStringFunc(m.Wrong, func(name string) string {
		for i, n := range names {
			if "$"+n == name {
				return "${" + string(rune('1'+i)) + "}"
			}
		}
		return "$" + name // not in Old: as it stands
	})
	return regexp.MustCompile(old), wrong
}

// A mutant is a store whose scripts are wrong.
type mutant struct {
	store.Store
	kind    string
	old     *regexp.Regexp
	wrong   string
	mutated *sync.Map // what runs in place of each *store.Script
}

func (m mutant) script(s *store.Script) *store.Script {
	if other, ok := m.mutated.Load(s); ok {
		return other.(*store.Script)
	}
	other := s
	kinds := strings.FieldsFunc(s.Name(), func(r rune) bool { return r == '+' || r == '.' })
	if slices.Contains(kinds, m.kind) {
		if lua := m.old.ReplaceAllString(s.Lua(), m.wrong); lua != s.Lua() {
			if other = store.NewScript(s.Name(), lua, s.GoForm()); s.ReadOnly() {
				other = store.NewReadOnlyScript(s.Name(), lua, s.GoForm())
			}
		}
	}
	m.mutated.Store(s, other)
	return other
}

func (m mutant) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	return m.Store.Eval(ctx, m.script(s), keys, args, reply)
}

func (m mutant) EvalBatch(ctx context.Context, calls []store.Eval) {
	for i := range calls {
		calls[i].Script = m.script(calls[i].Script)
	}
	m.Store.(store.Batcher).EvalBatch(ctx, calls)
}

// anyOf returns one of list.
func anyOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// mutantSubjects returns random limits of each kind.
func mutantSubjects(t *testing.T) map[string]conformance.Subject {
	window := func(r *rand.Rand) time.Duration {
		return anyOf(r, 7*time.Microsecond, time.Millisecond, time.Second, time.Minute, 24*time.Hour)
	}
	limit := func(r *rand.Rand) int64 { return anyOf(r, 1, 2, 5, 7, 1+r.Int64N(20)) }
	interval := func(rate algorithm.Rate) time.Duration { return rate.Period / time.Duration(rate.Count) }
	whole := func(r *rand.Rand) algorithm.Rate {
		return algorithm.Rate{Count: anyOf[int64](r, 1, 2, 5, 10, 1000), Period: anyOf(r, time.Millisecond, time.Second, time.Minute, time.Hour)}
	}
	fraction := func(r *rand.Rand) algorithm.Rate {
		return algorithm.Rate{Count: anyOf[int64](r, 3, 7, 11, 997), Period: anyOf(r, time.Microsecond, time.Millisecond, time.Second, time.Minute)}
	}
	rate := func(r *rand.Rand) algorithm.Rate { return anyOf(r, whole, fraction)(r) }
	gcra := conformance.Subject{ // of both kinds, which share their state
		New:  func(r *rand.Rand) algorithm.Algorithm { return algorithm.GCRA{Rate: rate(r), Burst: limit(r)} },
		Unit: func(a algorithm.Algorithm) time.Duration { return interval(a.(algorithm.GCRA).Rate) },
	}
	return map[string]conformance.Subject{
		"dailyquota": quotas(t),
		"gcra":       gcra,
		"leakybucket": {
			New: func(r *rand.Rand) algorithm.Algorithm {
				return algorithm.LeakyBucket{Rate: rate(r), Queue: limit(r) - 1}
			},
			Unit: func(a algorithm.Algorithm) time.Duration { return interval(a.(algorithm.LeakyBucket).Rate) },
		},
		"tokenbucket": {
			New: func(r *rand.Rand) algorithm.Algorithm {
				return algorithm.TokenBucket{Capacity: limit(r), Refill: rate(r), AtOnce: r.IntN(3) == 0}
			},
			Unit: func(a algorithm.Algorithm) time.Duration { return interval(a.(algorithm.TokenBucket).Refill) },
		},
		"calendar": {New: random.Calendar, Unit: random.Unit},
		"fixedwindow": {
			New: func(r *rand.Rand) algorithm.Algorithm {
				return algorithm.FixedWindow{Limit: limit(r), Window: window(r), Aligned: r.IntN(2) == 0}
			},
			Unit: func(a algorithm.Algorithm) time.Duration { return a.(algorithm.FixedWindow).Window / 4 },
		},
		"metadatawindow": {
			New: func(r *rand.Rand) algorithm.Algorithm {
				return algorithm.MetadataWindow{Limit: limit(r), Window: window(r), Aligned: r.IntN(2) == 0}
			},
			Unit: func(a algorithm.Algorithm) time.Duration { return a.(algorithm.MetadataWindow).Window / 4 },
		},
		"slidingcounter": {
			New: func(r *rand.Rand) algorithm.Algorithm {
				return algorithm.SlidingCounter{Limit: limit(r), Window: window(r)}
			},
			Unit: func(a algorithm.Algorithm) time.Duration { return a.(algorithm.SlidingCounter).Window / 4 },
		},
		"slidinglog": {
			New: func(r *rand.Rand) algorithm.Algorithm {
				return algorithm.SlidingLog{Limit: limit(r), Window: window(r)}
			},
			Unit: func(a algorithm.Algorithm) time.Duration { return a.(algorithm.SlidingLog).Window / 4 },
		},
		"slidingbuckets": {
			New: func(r *rand.Rand) algorithm.Algorithm {
				width := anyOf(r, time.Millisecond, time.Second, time.Hour)
				spans := []algorithm.Span{{Window: time.Duration(1+r.IntN(3)) * width, Limit: limit(r)}}
				if r.IntN(2) == 0 {
					spans = append(spans, algorithm.Span{Window: time.Duration(4+r.IntN(5)) * width, Limit: spans[0].Limit + r.Int64N(9)})
				}
				return algorithm.SlidingBuckets{Width: width, Spans: spans}
			},
			Unit: func(a algorithm.Algorithm) time.Duration { return cmp.Or(a.(algorithm.SlidingBuckets).Width, 1) },
		},
	}
}
