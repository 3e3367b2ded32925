package conformance

import (
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// badPause changes a Pause.
func badPause(change func(b *badStep)) mutation {
	return bad[algorithm.Pause](flaw{step: func(b *badStep, _ []store.Arg) { change(b) }})
}

// badPauses changes the view of scripts that read pauses, or whose name ends in suffix.
func badPauses(suffix string, change func(tx store.Tx) store.Tx) mutation {
	return mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if !strings.Contains(s.Name(), "pause") || !strings.HasSuffix(s.Name(), suffix) {
			return tx
		}
		return change(tx)
	}}
}

// ofPauses is the group of the checks that a mutant of pauses can fail.
var ofPauses = []string{"Pause/"}

var pauseMutants = []mutant{
	{"a pause shortens itself", "Pause/Until", ofPauses, badPauses("pause.pause", func(tx store.Tx) store.Tx {
		return txFunc{Tx: tx, score: func(int, string) (int64, bool, error) { return 0, false, nil }}
	})},
	{"a pause shortens others", "Pause/Until", ofPauses, badPause(func(b *badStep) {
		b.write = func(tx store.Tx, key int, now int64, s contract.State, n int64, a contract.Ask, gen int64, slack time.Duration) error {
			tx.Del(key)
			return b.Step.Write(tx, key, now, s, n, a, gen, slack)
		}
	})},
	{"a sleeper ends the extension of another", "Pause/Resume", ofPauses, badPauses(".resume", func(tx store.Tx) store.Tx {
		last, _, _ := tx.At(0, 0)
		return txFunc{Tx: tx, remove: func(i int, _ string) { tx.Remove(i, last.Text) }}
	})},
	{"a Resume leaves an ended pause", "Pause/Resume", ofPauses, badPauses(".resume", func(tx store.Tx) store.Tx {
		return txFunc{Tx: tx, remove: func(i int, text string) {
			if ends, _, _ := tx.Score(i, text); ends > time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC).UnixMicro() {
				tx.Remove(i, text)
			}
		}}
	})},
	{"a pause too many is lost", "Pause/Full", ofPauses, badPause(func(b *badStep) {
		b.write = func(tx store.Tx, key int, now int64, s contract.State, n int64, a contract.Ask, gen int64, slack time.Duration) error {
			if live, _, _ := tx.Count(key, now); live >= algorithm.MaxPauses {
				return nil
			}
			return b.Step.Write(tx, key, now, s, n, a, gen, slack)
		}
	})},
	{"ended pauses stay", "Pause/Full", ofPauses, badPauses(".pause", func(tx store.Tx) store.Tx { return txFunc{Tx: tx, trim: func(int, int64) {}} })},
	{"a paused key is not settled", "Pause/Ignored", ofPauses, changed(func(s *store.Script, _ []string, reply []store.Value) {
		if strings.Contains(s.Name(), "pause") && strings.HasSuffix(s.Name(), ".settle") {
			reply[0], reply[2] = store.IntegerValue(0), store.IntegerValue(0)
		}
	})},
	{"a request reserves tokens for the time after the pause", "Pause/Wait", ofPauses, badPause(func(b *badStep) {
		b.room = func(now int64, s contract.State, a contract.Ask) int64 { return b.Step.Room(now+a.Wait, s, a) }
	})},
	{"the wait is rounded up", "Pause/Same", ofPauses, badPause(func(b *badStep) {
		b.answer = func(now int64, s contract.State, n int64, a contract.Ask) contract.Answer {
			ans := b.Step.Answer(now, s, n, a)
			ans.RetryAfter = (ans.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond)
			return ans
		}
	})},
	{"an open key has few tokens", "Pause/Open", ofPauses, badPause(func(b *badStep) {
		b.room = func(now int64, s contract.State, a contract.Ask) int64 { return min(b.Step.Room(now, s, a), 5) }
	})},
	{"a pause is ended twice", "Pause/Many", ofPauses, changed(func(s *store.Script, _ []string, reply []store.Value) {
		if strings.HasSuffix(s.Name(), ".resume") {
			reply[0] = store.IntegerValue(1)
		}
	})},
	{"the clock of pauses is ahead", "Pause/Clock", ofPauses, badPauses("pause.pause", func(tx store.Tx) store.Tx {
		return txFunc{Tx: tx, now: func() int64 { return tx.Now() + time.Minute.Microseconds() }}
	})},
	{"any member is a pause", "Pause/Foreign", ofPauses, badPauses("", func(tx store.Tx) store.Tx {
		return txFunc{Tx: tx, at: func(i int, fromEnd int64) (store.Member, bool, error) {
			m, ok, err := tx.At(i, fromEnd)
			if len(m.Text) < 4 || m.Text[0] != 'l' { // it is not of the log
				m.Text = "p1 a"
			}
			return m, ok, err
		}}
	})},
	{"the key expires before the pause ends", "Pause/TTL", ofPauses, badPauses("pause.pause", func(tx store.Tx) store.Tx {
		return txFunc{Tx: tx, add: func(i int, m store.Member, ttl time.Duration) { tx.Add(i, m, ttl/2) }}
	})},
}
