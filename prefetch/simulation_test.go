package prefetch_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
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
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/prefetch"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// The simulated service.
const (
	simProcesses = 50
	simRate      = 8_000 // requests per second, of all processes
	simTime      = 3 * time.Second
	simTrip      = 2 * time.Millisecond // a round trip
)

// A traffic is a limit, and the number of keys in a simulation.
type traffic struct {
	algorithm algorithm.Algorithm
	keys      int
}

// traffics are most keys below their limit, several keys above it, and a budget that is
// used up in half of the time.
var traffics = [3]traffic{
	{algorithm.GCRA{Rate: algorithm.PerSecond(4000), Burst: 4000}, 20},
	{algorithm.FixedWindow{Limit: 400, Window: time.Second}, 100},
	{algorithm.FixedWindow{Limit: 12_000, Window: time.Hour}, 1},
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
	requests, trips int
	took            time.Duration // all requests together
	busy, others    [2]int        // requests and allowed requests of the key with most requests
	lost            int64         // tokens, when the busiest process died
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
	rng := rand.New(rand.NewPCG(1, 2))
	byKey, byProcess := zipf(tr.keys), zipf(simProcesses)
	var wg sync.WaitGroup
	var mu sync.Mutex // for f and died
	start, died, taken := time.Now(), false, map[time.Duration]bool{}
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
		p, k := pick(rng, byProcess), pick(rng, byKey)
		if at > simTime*2/3 && p == 0 {
			if !died {
				mu.Lock()
				died = true
				mu.Unlock()
				for k := range tr.keys {
					f.lost += pools[0].Held(processes[0], weirtest.Number(k))
				}
				processes[0], pools[0] = nil, nil
			}
			continue
		}
		asked, l := time.Now(), processes[p]
		wg.Go(func() {
			res, err := l.Allow(context.Background(), weirtest.Number(k))
			if err != nil {
				t.Error(err)
			}
			mu.Lock() // the requests of one batch end together
			defer mu.Unlock()
			f.requests++
			f.took += time.Since(asked)
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

// TestSimulation simulates processes with skewed traffic, and compares the figures with
// those of the page, line by line. They can differ a little, because goroutines that wait
// for the same prefetch go on in any order: by 10 %, a small figure by 1, and a fraction
// by 0.1.
func TestSimulation(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long")
	}
	if _, err := os.Stat("../docs"); err != nil {
		t.Skip("docs is another module, which a copy of this one lacks")
	}
	page, err := os.ReadFile("../docs/reference/round-trips.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "<!-- simulation -->")
	var base [3]figures
	for _, s := range savings {
		var f [3]figures
		for j, tr := range traffics {
			synctest.Test(t, func(t *testing.T) { f[j] = simulate(t, s, tr) })
		}
		if s.name == "nothing" {
			base = f
		}
		var saved [3]float64
		for j := range f {
			saved[j] = 100 - 100*float64(f[j].trips)/float64(base[j].trips)
		}
		above := &f[1]
		fair := float64(above.busy[1]) / float64(above.busy[0]) / (float64(above.others[1]) / float64(above.others[0]))
		line := fmt.Sprintf("| %s | %.0f %% | %.0f %% | %.0f %% | %.2f | %.2f | %d |", s.name, saved[0], saved[1], saved[2],
			above.took.Seconds()/float64(above.requests)/simTrip.Seconds(), fair, max(f[0].lost, f[1].lost, f[2].lost))
		_, want, _ := strings.Cut(table, "\n| "+s.name+" |")
		want, _, _ = strings.Cut(want, "\n")
		wants := strings.Fields(want)
		for i, word := range strings.Fields(strings.TrimPrefix(line, "| "+s.name+" |")) {
			got, err := strconv.ParseFloat(word, 64)
			if err != nil {
				continue
			}
			least, want := 1.0, math.NaN()
			if strings.Contains(word, ".") {
				least = 0.1
			}
			if i < len(wants) {
				want, _ = strconv.ParseFloat(wants[i], 64)
			}
			if !(math.Abs(got-want) <= max(0.1*want, least)) {
				t.Errorf("the page has %s instead of %s: correct its line to\n%s", wants, word, line)
				break
			}
		}
	}
}
