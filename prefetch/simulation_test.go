package prefetch_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/marked"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/prefetch"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

var update = flag.Bool("update", false, "write what TestSimulation simulates to "+simulationPage)

const simulationPage = "../docs/reference/round-trips.md"

// The simulated service.
const (
	simProcesses = 50
	simRate      = 8_000 // requests per second, of all processes
	simTime      = 3 * time.Second
	simTrip      = 2 * time.Millisecond // a round trip
)

// A traffic is a limit, and the number of keys in a simulation.
type traffic struct {
	name      string
	algorithm algorithm.Algorithm
	limit     float64
	keys      int
}

var traffics = []traffic{
	{"below", algorithm.GCRA{Rate: algorithm.PerSecond(4000), Burst: 4000}, 4000, 20},
	{"above", algorithm.FixedWindow{Limit: 400, Window: time.Second}, 400, 100},
	{"budget", algorithm.FixedWindow{Limit: 12_000, Window: time.Hour}, 12_000, 1}, // is used up in half of the time
}

// A saving is a way to save round trips.
type saving struct {
	name     string
	coalesce bool
	cache    bool
	pool     bool
}

var savings = []saving{
	{name: "nothing"},
	{name: "`denycache`", cache: true},
	{name: "`prefetch`", pool: true},
	{name: "`prefetch` and `denycache`", cache: true, pool: true},
	{name: "`store.Coalesce`", coalesce: true},
}

// A network is a store that is one round trip away.
type network struct {
	*memory.Store
	trips atomic.Int64
}

func (n *network) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	n.trips.Add(1)
	time.Sleep(simTrip / 2)
	reply, err := n.Store.Eval(ctx, s, keys, args, reply)
	time.Sleep(simTrip / 2)
	return reply, err
}

func (n *network) EvalBatch(ctx context.Context, calls []store.Eval) {
	n.trips.Add(1)
	time.Sleep(simTrip / 2)
	for i := range calls {
		calls[i].Reply, calls[i].Err = n.Store.Eval(ctx, calls[i].Script, calls[i].Keys, calls[i].Args, calls[i].Reply)
	}
	time.Sleep(simTrip / 2)
}

// A figures is what a simulation measures.
type figures struct {
	requests, allowed, trips int
	took                     time.Duration // all requests together
	heldMost                 int64         // by all processes at one time
	denials                  int
	heldDenied, heldFirst    int64  // of the key, at all denials together, and at the first one
	busy, others             [2]int // requests and allowed requests of the key with most requests
	lost                     int64  // tokens, when the busiest process died
	unanswered               int    // requests, when it died
}

// zipf returns the cumulated weights of n things: the i-th has the weight 1/i.
func zipf(n int) []float64 {
	sums, sum := make([]float64, n), 0.0
	for i := range sums {
		sum += 1 / float64(i+1)
		sums[i] = sum
	}
	return sums
}

// pick returns a random index with those weights.
func pick(rng *rand.Rand, sums []float64) int {
	i, _ := slices.BinarySearch(sums, rng.Float64()*sums[len(sums)-1])
	return i
}

// simulate runs the requests of all processes in virtual time. The busiest process dies
// after two thirds of the time.
func simulate(t *testing.T, s saving, tr traffic) (f figures) {
	st := memory.New(nil)
	nets, processes, pools := make([]*network, simProcesses), make([]*weir.Limiter, simProcesses), make([]*prefetch.Pool, simProcesses)
	for i := range processes {
		nets[i] = &network{Store: st}
		var net store.Store = nets[i]
		if s.coalesce {
			net = store.Coalesce(net)
		}
		l, err := weir.New("sim", net, tr.algorithm, nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.pool {
			pools[i] = prefetch.New(nil)
			l = weirtest.Wrap(t, l, pools[i].Wrap)
		}
		if s.cache {
			l = weirtest.Wrap(t, l, denycache.New(&denycache.Options{MaxKeys: 1 << 16}).Wrap)
		}
		processes[i] = l
	}
	held := func(key string) (n int64) {
		for i, p := range pools {
			n += p.Held(processes[i], key)
		}
		return n
	}
	heldNow := func() (n int64) {
		for k := range tr.keys {
			n += held(weirtest.Number(k))
		}
		return n
	}
	rng := rand.New(rand.NewPCG(1, 2))
	byKey, byProcess := zipf(tr.keys), zipf(simProcesses)
	var wg sync.WaitGroup
	var mu sync.Mutex // for f, died and underWay
	underWay, taken := make([]int, simProcesses), map[time.Duration]bool{}
	start, died, sampled := time.Now(), false, 0
	for at := time.Duration(0); ; {
		// No two things happen at the same instant, because everything takes halves of
		// round trips.
		at += time.Duration(rng.ExpFloat64() * float64(time.Second) / simRate)
		for taken[at%(simTrip/2)] {
			at++
		}
		taken[at%(simTrip/2)] = true
		if at >= simTime {
			break
		}
		time.Sleep(time.Until(start.Add(at)))
		if now := int(at / (10 * time.Millisecond)); now > sampled {
			sampled, f.heldMost = now, max(f.heldMost, heldNow())
		}
		p, k := pick(rng, byProcess), pick(rng, byKey)
		if at > simTime*2/3 && p == 0 {
			if !died {
				mu.Lock()
				died, f.unanswered = true, underWay[0]
				mu.Unlock()
				for k := range tr.keys {
					f.lost += pools[0].Held(processes[0], weirtest.Number(k))
				}
				processes[0], pools[0] = nil, nil
			}
			continue
		}
		mu.Lock()
		underWay[p]++
		mu.Unlock()
		asked, l := time.Now(), processes[p]
		wg.Go(func() {
			res, err := l.Allow(context.Background(), weirtest.Number(k))
			if err != nil {
				t.Error(err)
			}
			mu.Lock() // the requests of one batch end together
			defer mu.Unlock()
			underWay[p]--
			f.requests++
			f.took += time.Since(asked)
			if !res.Allowed {
				n := held(weirtest.Number(k))
				if f.heldDenied += n; f.denials == 0 {
					f.heldFirst = n
				}
				f.denials++
			} else {
				f.allowed++
			}
			if k == 0 && !died {
				group := &f.others
				if p < simProcesses/10 {
					group = &f.busy
				}
				group[0]++
				if res.Allowed {
					group[1]++
				}
			}
		})
		synctest.Wait()
	}
	wg.Wait()
	for _, n := range nets {
		f.trips += int(n.trips.Load())
	}
	return f
}

// row returns a line of the table of the page. base is the simulation without a saving.
func (f figures) row(name string, base figures, limit float64) string {
	ratio := func(a, b [2]int) float64 { return float64(a[1]) / float64(a[0]) / (float64(b[1]) / float64(b[0])) }
	return fmt.Sprintf("| %s | %.0f %% | %.2f | %d | %.2f | %d | %.0f %% | %.0f %% | %d | %d |\n", name,
		100-100*float64(f.trips)/float64(base.trips),
		f.took.Seconds()/float64(f.requests)/simTrip.Seconds(),
		f.allowed, ratio(f.busy, f.others), f.heldMost,
		100*float64(f.heldFirst)/limit, 100*float64(f.heldDenied)/float64(max(f.denials, 1))/limit, f.lost, f.unanswered)
}

// TestSimulation simulates processes with skewed traffic, and compares the figures with
// those of the page. They can differ a little, because goroutines that wait for the same
// prefetch go on in any order.
func TestSimulation(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long")
	}
	page, err := os.ReadFile(simulationPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range traffics {
		table := "\n| | Round trips saved | Time | Allowed | Busy processes | Held at most | Held at the first denial | Held at denials | Tokens lost | Requests lost |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
		var base figures
		for i, s := range savings {
			synctest.Test(t, func(t *testing.T) {
				f := simulate(t, s, tr)
				if i == 0 {
					base = f
				}
				table += f.row(s.name, base, tr.limit)
			})
		}
		begin, end := "<!-- simulation "+tr.name+" -->\n", "\n<!-- end -->"
		if *update {
			text, err := marked.Replace(string(page), begin, end, table)
			if err != nil {
				t.Fatal(err)
			}
			page = []byte(text)
			continue
		}
		_, rest, _ := strings.Cut(string(page), begin)
		want, _, ok := strings.Cut(rest, end)
		if err := sameFigures(table, want); !ok || err != nil {
			t.Errorf("the table %q of %s is not up to date: %v: run go test ./prefetch -run TestSimulation -update\ngot:%s", tr.name, simulationPage, err, table)
		}
	}
	if *update {
		if err := os.WriteFile(simulationPage, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var figure = regexp.MustCompile(`\d+(\.\d+)?`)

// sameFigures returns an error if the texts of two tables differ, or two figures by more
// than 10 %. A small figure can differ by 1, and a fraction by 0.1.
func sameFigures(got, want string) error {
	if figure.ReplaceAllString(got, "0") != figure.ReplaceAllString(want, "0") {
		return fmt.Errorf("the texts differ")
	}
	for i, a := range figure.FindAllString(got, -1) {
		x, _ := strconv.ParseFloat(a, 64)
		b := figure.FindAllString(want, -1)[i]
		least := 1.0
		if strings.Contains(b, ".") {
			least = 0.1
		}
		if y, _ := strconv.ParseFloat(b, 64); math.Abs(x-y) > max(0.1*y, least) {
			return fmt.Errorf("the simulation gave %s, the page has %s", a, b)
		}
	}
	return nil
}
