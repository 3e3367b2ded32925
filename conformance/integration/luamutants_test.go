package integration

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/examples/dailyquota"
)

// A luaMutant is dailyquota.lua with wrong for old. The rule shows it.
type luaMutant struct{ rule, old, wrong string }

var luaMutants = []luaMutant{
	{"Same", "count + cost", "count + 1"},
	{"Same", "clock - offset, 0", "clock, 0"},
	{"Exact", "if now >= edge", "if now > edge"},
	{"Foreign", "if not e then return redis.error_reply('WEIRFOREIGN 1') end", "if not e then e, c = 0, 0 end"},
	{"ForeignType", "true) then return redis.error_reply('WEIRFOREIGN 1')", "true) then return redis.error_reply('ERR odd')"},
	{"TTL", "+ slack", ""},
	{"UpTo", "cost = take", "cost = 1"},
	{"Refund", "gave = 1", "gave = 0"},
}

// run proves the mutant, on miniredis, to be right.
func (m luaMutant) run(t *testing.T) {
	quota, err := dailyquota.Quota{Limit: 1, Zone: time.UTC}.NewLimit()
	if err != nil {
		t.Fatal(err)
	}
	fragment := *quota.Fragment()
	if fragment.Lua = strings.ReplaceAll(fragment.Lua, m.old, m.wrong); fragment.Lua == quota.Fragment().Lua {
		t.Skipf("there is no %q", m.old)
	}
	s := quotas(t)
	right := s.New
	s.New = func(r *rand.Rand) algorithm.Algorithm { return rewritten{right(r).(dailyquota.Quota), &fragment} }
	s.Huge = nil
	e := servers.Endpoint{Kind: servers.Single, Addrs: []string{miniredis.RunT(t).Addr()}}
	conformance.RunAlgorithm(t, seen(t, adapters[0], e, e), s)
}

// A rewritten Quota has other Lua, and the same Go.
type rewritten struct {
	dailyquota.Quota
	fragment *algorithm.Fragment
}

type rewrittenLimit struct {
	algorithm.Limit
	fragment *algorithm.Fragment
}

func (m rewritten) NewLimit() (algorithm.Limit, error) {
	l, err := m.Quota.NewLimit()
	return rewrittenLimit{l, m.fragment}, err
}

func (l rewrittenLimit) Fragment() *algorithm.Fragment { return l.fragment }

// TestLuaMutants shows that RunAlgorithm sees Lua that means something else than the
// Go beside it. What fails there fails in a process of its own.
func TestLuaMutants(t *testing.T) {
	const which = "WEIR_LUA_MUTANT"
	for _, m := range luaMutants {
		name := m.rule + " " + m.wrong
		switch os.Getenv(which) {
		case name:
			m.run(t)
			continue
		case "":
		default:
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run", "^TestLuaMutants$/^Algorithm$/^"+m.rule+"$")
			cmd.Env = append(os.Environ(), which+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestLuaMutants/Algorithm/"+m.rule) {
				t.Errorf("%s for %s: %s passed: %v\n%s", m.wrong, m.old, m.rule, err, out)
			}
		})
	}
}
