package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/kit"
)

// conflicts are errors of a server that has written nothing and would accept the call
// later.
var conflicts = map[jetstream.ErrorCode]bool{
	jetstream.JSErrCodeStreamWrongLastSequence:         true,
	jetstream.JSErrCodeStreamWrongLastSequenceConstant: true,
	10176: true, // the batch is incomplete: too many others are under way
	10210: true, // too many batches are under way
}

// hints say what to do about errors that come again until somebody corrects a setting.
var hints = map[jetstream.ErrorCode]string{
	jetstream.JSErrCodeStreamNotFound:                "create the bucket with StreamConfig",
	jetstream.JSErrCodeJetStreamNotEnabled:           "enable JetStream on the server",
	jetstream.JSErrCodeJetStreamNotEnabledForAccount: "enable JetStream for the account",
	jetstream.JSErrCodeStreamMessageExceedsMaximum:   "raise MaxMsgSize of the stream, or choose an algorithm without a sorted set",
	10109: "the stream is sealed: create another bucket",
	10166: "set AllowMsgTTL, as StreamConfig does",
	10174: "set AllowAtomicPublish, as StreamConfig does",
	10199: "raise max_msgs in limits.batch of JetStream, 1,000 by default, or choose fewer rules or buckets",
}

// failed returns the error of a request for err, which comes from the client or the
// server.
func failed(err error) error {
	var reply *jetstream.APIError
	switch {
	case errors.As(err, &reply) && conflicts[reply.ErrorCode]:
		return fmt.Errorf("%w: %w", kit.ErrConflict, err)
	case errors.As(err, &reply) && hints[reply.ErrorCode] != "":
		return misconfigured(fmt.Errorf("%w (%s)", err, hints[reply.ErrorCode]))
	case errors.Is(err, nats.ErrMaxPayload):
		return misconfigured(fmt.Errorf("%w (raise max_payload of the server, or choose an algorithm without a sorted set)", err))
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: no server has the bucket, or its leader is away", err)
	}
	return err
}

func misconfigured(err error) error {
	return fmt.Errorf("%w: %w: %w", store.ErrUnavailable, store.ErrMisconfigured, err)
}

// checkStream checks the settings of the stream, once, and again after it was missing.
func (b *bucketDB) checkStream(ctx context.Context) error {
	if b.checked.Load() {
		return nil
	}
	if err := b.connected(); err != nil {
		return err
	}
	s, err := b.js.Stream(ctx, streamName(b.bucket))
	if err != nil {
		return failed(err)
	}
	if wrong := wrongSetting(s.CachedInfo().Config); wrong != "" {
		return misconfigured(fmt.Errorf("the stream %s has %s: pass StreamConfig to UpdateStream", streamName(b.bucket), wrong))
	}
	b.checked.Store(true)
	return nil
}

// wrongSetting returns a setting with which decisions would fail or be wrong, or "".
func wrongSetting(c jetstream.StreamConfig) string {
	switch {
	case c.Mirror != nil:
		return "a Mirror, which accepts no writes"
	case c.MaxAge != 0:
		return fmt.Sprintf("the MaxAge %v, so limits would end early: it must be 0", c.MaxAge)
	case c.MaxMsgsPerSubject != 1:
		return fmt.Sprintf("the MaxMsgsPerSubject %d, so old values could come back: it must be 1", c.MaxMsgsPerSubject)
	case c.Discard != jetstream.DiscardNew && (c.MaxBytes > 0 || c.MaxMsgs > 0):
		return "Discard old, so limits would vanish when the bucket is full: it must be new"
	case c.NoAck:
		return "NoAck, so no write is confirmed"
	case !c.AllowMsgTTL:
		return "no AllowMsgTTL, so values would never end"
	case !c.AllowAtomicPublish:
		return "no AllowAtomicPublish, so a decision could not change several keys"
	}
	return ""
}
