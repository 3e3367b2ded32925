package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

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

// hints say what to do about errors that come again until somebody acts.
var hints = map[jetstream.ErrorCode]string{
	jetstream.JSErrCodeStreamNotFound:                "create the bucket with StreamConfig",
	jetstream.JSErrCodeJetStreamNotEnabled:           "enable JetStream on the server",
	jetstream.JSErrCodeJetStreamNotEnabledForAccount: "enable JetStream for the account",
	jetstream.JSErrCodeStreamMessageExceedsMaximum:   "raise MaxMsgSize of the stream, or choose an algorithm without a sorted set",
	10002: "raise the limits of JetStream for the account",
	10023: "raise the limits of JetStream on the server",
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
		return fmt.Errorf("%w: %w (%s)", store.ErrMisconfigured, err, hints[reply.ErrorCode])
	case errors.As(err, &reply) && strings.HasPrefix(reply.Description, "maximum "): // bytes or messages exceeded
		return fmt.Errorf("%w: %w (raise MaxBytes and MaxMsgs of the stream)", store.ErrMisconfigured, err)
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w (raise max_payload of the server, or choose an algorithm without a sorted set)", store.ErrMisconfigured, err)
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: no server has the bucket, or its leader is away", err)
	}
	return err
}

// unanswered returns the error of a request for err, if no reply came. If the user of the
// connection lacks a right, the server says so, but not in a reply.
func (b *bucketDB) unanswered(err error) error {
	last := b.js.Conn().LastError()
	if errors.Is(err, context.DeadlineExceeded) && errors.Is(last, nats.ErrPermissionViolation) &&
		(strings.Contains(last.Error(), b.bucket) || strings.Contains(last.Error(), `"_INBOX.`)) {
		return fmt.Errorf("%w: %v: %w (grant it to the user of the connection)", store.ErrMisconfigured, err, last)
	}
	return failed(err)
}

var unwelcome = regexp.MustCompile(`(?i)authorization violation|authentication (expired|revoked)|secure connection|tls: `)

// connected returns an error if the client has no connection. It would keep a message
// until it has one.
func (b *bucketDB) connected() error {
	status, last := b.js.Conn().Status(), b.js.Conn().LastError()
	if status == nats.CONNECTED {
		return nil
	}
	err := fmt.Errorf("the client is not connected: %v: %w", status, cmp.Or(last, nats.ErrNoServers))
	if unwelcome.MatchString(err.Error()) {
		return fmt.Errorf("%w: %w (correct the credentials or the TLS of the connection)", store.ErrMisconfigured, err)
	}
	return err
}

// lookAgain is the time after which a call looks at the settings of the stream again.
const lookAgain = time.Minute

// checkStream checks the settings of the stream: in the first call, in one call after each
// lookAgain, and in each call after an error.
func (b *bucketDB) checkStream(ctx context.Context) (err error) {
	last, now := b.looked.Load(), time.Now().UnixNano()
	if last != 0 && (now-last < int64(lookAgain) || !b.looked.CompareAndSwap(last, now)) {
		return nil
	}
	defer func() {
		if err != nil {
			now = 0
		}
		b.looked.Store(now)
	}()
	if err := b.connected(); err != nil {
		return err
	}
	s, err := b.js.Stream(ctx, streamName(b.bucket))
	if err != nil {
		return b.unanswered(err)
	}
	if wrong := wrongSetting(s.CachedInfo().Config); wrong != "" {
		return fmt.Errorf("%w: the stream %s has %s: pass StreamConfig to UpdateStream", store.ErrMisconfigured, streamName(b.bucket), wrong)
	}
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
