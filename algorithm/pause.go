package algorithm

import (
	_ "embed"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// Pause is a rule without a limit, which can close a key for some time: until then, every
// process denies its requests. [weir.Limiter.Pause] begins a pause, and
// [weir.Limiter.Resume] ends it. The request's ID is the name of the pause.
//
//	lim, err := weir.NewPolicy(st, weir.Policy{
//		Name:     "partner",
//		Segments: []string{"host"},
//		Rules: []weir.Rule{
//			{Name: "pace", Algorithm: algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(10)}},
//			{Name: "pause", Algorithm: algorithm.Pause{}},
//		},
//	}, nil)
//
// A key can have several pauses, and is closed until the last of them ends. So a shorter
// pause does not shorten a longer one, and holds again if the longer one is resumed. A
// pause that begins again under its name never ends earlier than before. A key has at
// most [MaxPauses] pauses with names. Further pauses are kept together under no name,
// until the last of them ends, so Resume cannot end them.
//
// The rule consumes and writes nothing for a request. While the key is open, it allows
// any cost, and Remaining is MaxTokens. While the key is closed, every request is denied,
// whatever its MaxWait is, so nobody reserves tokens. Remaining is then 0, and RetryAfter
// and ResetAfter are the time until the last pause ends. [weir.Limiter.Wait] sleeps until
// then, and asks again.
//
// Only new requests are denied. Force, Refund, Settle, Finish, Renew and Release ignore pauses,
// and a Reset ends all pauses of the key. A reservation made before the pause goes ahead
// at its turn. A repeat of an earlier decision is denied, because its caller has not gone
// ahead. If the tokens of the decision have been refilled by the end of the pause, it is
// decided again.
//
// The rule takes no feature, for example refunds, away from a limiter. It must have no
// Cost, and cannot be a shadow rule.
//
// The state is one sorted set with an entry for each pause. Without a pause there is no
// key.
type Pause struct{}

// MaxPauses is the largest number of pauses with names that a key of a [Pause] has at
// once.
const MaxPauses = 64

//go:embed pause.lua
var pauseLua string

var pauseKind = &contract.StepKind{
	Head: contract.Head{Name: "pause", Tag: store.Tag{'p', '1'}, Cell: "until", Lua: pauseLua},
	Sets: true, Pauses: true,
	Step: func([]store.Arg) contract.Step { return pause{} },
}

// NewLimit implements [Algorithm].
func (Pause) NewLimit() (*contract.Limit, error) {
	return &contract.Limit{Kind: pauseKind, Capacity: MaxTokens}, nil
}

// A pause is the Step of a Pause. Its state is until: see pause.lua.
type pause struct{}

func (pause) Read(tx store.Tx, key int, _ int64, _ contract.Ask) (s contract.State, err error) {
	last, ok, err := tx.At(key, 0)
	if err != nil || !ok {
		return s, err
	}
	if !strings.HasPrefix(last.Text, "p1 ") {
		return s, store.ForeignAt(key)
	}
	s[0] = last.Score
	return s, nil
}

func (pause) Room(now int64, s contract.State, _ contract.Ask) int64 {
	if s[0] > now {
		return 0
	}
	return MaxTokens + 1
}

// Write adds the pause named a.Text, which ends after a.Wait.
func (pause) Write(tx store.Tx, key int, now int64, s contract.State, _ int64, a contract.Ask, _ int64, slack time.Duration) error {
	name := "p1 " + a.Text
	held, _, err := tx.Score(key, name)
	if err != nil {
		return err
	}
	live, all, err := tx.Count(key, now)
	if err != nil {
		return err
	}
	if held <= now && live >= MaxPauses {
		name = "p1 "
		if held, _, err = tx.Score(key, name); err != nil {
			return err
		}
	}
	ends := max(now+a.Wait, held)
	tx.Trim(key, all-live)
	tx.Add(key, store.Member{Score: ends, Text: name}, contract.TTL(now, max(ends, s[0]), slack))
	return nil
}

func (pause) Answer(now int64, s contract.State, _ int64, _ contract.Ask) contract.Answer {
	left := contract.Micros(max(s[0]-now, 0))
	ans := contract.Answer{Limit: MaxTokens, RetryAfter: left, ResetAfter: left}
	if left == 0 {
		ans.Remaining = MaxTokens
	}
	return ans
}

// Mark implements [contract.StepRefunder]. Pauses have no marker.
func (pause) Mark(int64, contract.State, int64, int64) (contract.Cell, int64) {
	return contract.Cell{}, 0
}

// Refund implements [contract.StepRefunder]: it ends the pause named by a.Text.
func (pause) Refund(tx store.Tx, key int, now int64, _ contract.State, a contract.Ask, _ contract.Cell, _, _, _ int64) (bool, error) {
	name := "p1 " + a.Text
	held, ok, err := tx.Score(key, name)
	if !ok || err != nil {
		return false, err
	}
	tx.Remove(key, name)
	return held > now, nil
}
