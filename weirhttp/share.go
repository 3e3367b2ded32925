package weirhttp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/internal/guard"
	"github.com/weir-go/weir/store"
)

// This file has what a Transport does to share its pauses with other processes.

// PauseID is the ID of the pauses that a [Transport] makes in Transport.Pauses. Pass it
// to [weir.Limiter.Resume] to end such a pause early. The Transport that met the pause
// itself still keeps to it.
const PauseID = "weirhttp"

// checkPauses returns an error if Pauses cannot pause key.
func (t *Transport) checkPauses(key weir.Key) error {
	if t.Pauses == nil {
		return nil
	}
	if err := t.Pauses.Check(pauseFor(key, time.Second), nil); err != nil {
		return fmt.Errorf("weirhttp: Transport.Pauses: %w", err)
	}
	return nil
}

// pauseFor returns the request that pauses key for d.
func pauseFor(key weir.Key, d time.Duration) weir.Request {
	return weir.Request{Key: key, Op: weir.Pause, ID: PauseID, For: min(d, algorithm.MaxSpan)}
}

// share pauses key in Pauses, if it can. If it cannot, the pause of t remains.
func (t *Transport) share(ctx context.Context, key weir.Key, d time.Duration) {
	if t.Pauses != nil {
		_ = guard.Undo(ctx, func(ctx context.Context) (weir.Result, error) { return t.Pauses.Decide(ctx, pauseFor(key, d), nil) })
	}
}

// shared returns the rest of the pause of key in Pauses, or 0 if the store cannot say.
func (t *Transport) shared(ctx context.Context, key weir.Key) (time.Duration, error) {
	if t.Pauses == nil {
		return 0, nil
	}
	s := gate.NewScratch()
	defer s.Free()
	none := gate.Each(t.Pauses, 0) // only the pause counts
	res, err := t.Pauses.Decide(ctx, weir.Request{Key: key, Op: weir.Peek, Costs: none}, s.Each[:])
	switch {
	case err == nil && res.Degraded == nil:
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case err == nil, errors.Is(err, store.ErrUnavailable):
		return 0, nil
	default:
		return 0, err
	}
	left := time.Duration(0)
	for _, one := range s.Rules(&res) {
		if one.Type == weir.PauseRule {
			left = max(left, one.RetryAfter)
		}
	}
	return left, nil
}

// pausedFor returns the rest of the pause that denied a turn, whose error is err, or 0.
func pausedFor(err error) time.Duration {
	var denied *weir.DeniedError
	if !errors.As(err, &denied) || denied.Result.Type != weir.PauseRule || denied.Result.Degraded != nil {
		return 0
	}
	return denied.Result.RetryAfter
}
