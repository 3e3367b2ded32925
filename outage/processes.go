package outage

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/prose"
)

// shares is what the shares of a Breaker's limiters have in common.
type shares struct {
	n atomic.Int64 // the number of processes; 0 unless the Fallback is Local

	mu   sync.Mutex
	most int64  // the largest number of processes that can share all limits; 0 means any
	rule string // the name of the rule that has that limit
}

// A share is a limiter with the shares of n processes.
type share struct {
	n   int64
	lim *weir.Limiter
}

// SetProcesses changes Options.Processes to n, for all limiters of b, for example because
// a deployment was scaled. It can be called at any time, even during an outage.
//
// The new shares apply from the next request on. What a process has consumed of its share
// stays consumed, as the same fraction of the share. So in any window, a process allows
// at most the limit divided by the smallest number in that window. If the number changes
// once, all processes together allow less than twice the limit. A decision with an ID
// that was made under another number may keep its tokens when it is refunded or settled
// to a lower cost: see [weir.Settlement].
//
// SetProcesses returns an error, and changes nothing, if Options.Fallback is not Local,
// if n is below 1, or if a limit is too small to have n shares and Options.Floor is
// false.
func (b *Breaker) SetProcesses(n int) error {
	switch {
	case b == nil, b.local == nil:
		return errors.New("outage: SetProcesses: the Breaker divides no limits: make one with New, and with the Fallback Local")
	case n < 1:
		return fmt.Errorf("outage: SetProcesses: the number of processes is %d: it must be at least 1", n)
	}
	b.shares.mu.Lock()
	defer b.shares.mu.Unlock()
	if most := b.shares.most; most > 0 && int64(n) > most {
		return prose.Errorf(weir.ErrInvalidRule, "outage: SetProcesses: the number of processes is %d: rule %q has a limit of which at most %d processes have a share: raise the limit, lower the number, or set Floor", n, b.shares.rule, most)
	}
	b.shares.n.Store(int64(n))
	return nil
}

// makeShare gives d its share, if the Fallback is Local.
func (d *decider) makeShare() error {
	if d.local == nil {
		return nil
	}
	if err := d.divide(d.shares.n.Load()); err != nil {
		advice := "set Fallback to Closed or Open"
		if errors.Is(err, weir.ErrInvalidRule) && !d.opts.Floor {
			advice = "set Floor, or " + advice
		}
		return prose.Errorf(err, "outage: %s; or %s", plain(err), advice)
	}
	return nil
}

// boundShares notes which numbers of processes the limits of d allow. The lock of the
// shares is held.
func (d *decider) boundShares() {
	if d.local == nil || d.opts.Floor {
		return
	}
	for _, r := range d.rules {
		if most := r.Limit / max(r.Cost, 1); d.shares.most == 0 || most < d.shares.most {
			d.shares.most, d.shares.rule = most, r.Name
		}
	}
}

// divide gives d a share for n processes.
func (d *decider) divide(n int64) error {
	divide := d.lim.Share
	if d.opts.Floor {
		divide = d.lim.ShareFloor
	}
	lim, err := divide(int(n), d.local)
	if err == nil {
		d.share.Store(&share{n, lim})
	}
	return err
}

// ownShare returns the share of the process for the current number of processes. It is
// nil unless the Fallback is Local.
func (d *decider) ownShare() *weir.Limiter {
	own := d.share.Load()
	if own == nil {
		return nil
	}
	if n := d.shares.n.Load(); n != own.n {
		if err := d.divide(n); err != nil { // not for a number that SetProcesses accepts
			return nil
		}
		own = d.share.Load()
	}
	return own.lim
}
