// Package nats implements a store that keeps the state of limiters in a key-value bucket
// of NATS JetStream. It uses the client github.com/nats-io/nats.go:
//
//	nc, err := nats.Connect("nats://localhost:4222")
//	if err != nil {
//		return err
//	}
//	js, err := jetstream.New(nc)
//	if err != nil {
//		return err
//	}
//	if _, err := js.CreateOrUpdateStream(ctx, weirnats.StreamConfig("limits")); err != nil {
//		return err
//	}
//	lim, err := weir.New("api", weirnats.New(js, "limits"), algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}, nil)
//
// Use it if the application has NATS and no Redis. It supports nats-server from 2.15, and
// the client from v1.55.0.
//
// # The clock
//
// Decisions use the clock of the process, because NATS tells no time when it answers a
// read. So let all machines keep their time with NTP. If the clocks of two processes
// differ by d, a limit over a window w can allow as much as over w+d, and a wait can last
// longer by d. A difference of milliseconds does not matter to a limit per second. Values
// in the bucket do not expire early as long as clocks differ by less than an hour.
//
// # Costs
//
// A decision reads its keys in one round trip, and writes what has changed in a second
// one. A denied request over one key only reads. One over several keys reads twice, and
// writes nothing.
//
// The store takes no lock. It writes a key only if nobody else has written it since the
// read. Otherwise it decides again after a short, random wait, at most 64 times. The
// calls of a process that share a key wait for each other instead. So a key that is busy
// in many processes gets slow. [store.Coalesce] combines the calls of a process that wait
// for a key into one read and one write.
//
// A value is a message, which is at most as long as the server's max_payload, 1 MB by
// default. A sorted set is one value: each change of it writes all of it. So if a
// SlidingLog or a MetadataWindow has a limit of thousands of tokens, choose another
// algorithm.
//
// # The bucket
//
// The bucket is a stream with the settings of [StreamConfig]. The store checks them
// before its first call and once a minute, and returns [store.ErrMisconfigured] if they
// are wrong. A call over several keys, for example of a policy with two rules, is an
// atomic batch of JetStream, which needs AllowAtomicPublish. A server accepts 1,000 keys
// in a batch, unless its limits.batch.max_msgs is larger. Each value has a TTL, one hour
// longer than it is needed, which needs AllowMsgTTL. A TTL of the whole bucket would end
// limits early.
//
// With one replica and file storage, a server takes milliseconds for each atomic batch,
// because it writes it to a file of its own first. For several rules, use three replicas,
// or memory storage. A single server with file storage can lose the decisions of up to
// two minutes if the machine loses its power, unless its sync_interval is "always".
//
// To see the keys of a limiter: nats kv get limits weir/api/=7Bann=7D/rule.g2. A colon is
// written as a slash, and other characters that NATS does not allow as = and two
// hexadecimal digits. A key above 512 bytes is shortened by a hash.
//
// # Reads
//
// Reads ask the leader of the stream, because a replica can be behind, even if the stream
// has AllowDirect. If a partition separates a leader from the other servers, it can
// answer reads from old data for some seconds, until it notices. Only denials and Peeks
// can be wrong then, because every decision that consumes tokens is a write that a
// majority has confirmed.
//
// # Contexts and errors
//
// A deadline or a cancellation ends a call at once. A call without a deadline ends after
// the default timeout of the JetStream, 5 s. While the client has no connection, calls
// return [store.ErrUnavailable] at once. If a reply was lost, the decision may have been
// made, or can be made when the client is connected again. The store never repeats it.
package nats

import (
	"errors"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/kit"
)

// A Store keeps the state of limiters in a bucket. Make one with [New]. It is safe for
// concurrent use.
type Store struct {
	*kit.VersionedStore
}

var (
	_ store.Store           = (*Store)(nil)
	_ store.Batcher         = (*Store)(nil)
	_ store.Borrower        = (*Store)(nil)
	_ store.Checker         = (*Store)(nil)
	_ store.DeadlineChecker = (*Store)(nil)
)

// New returns a store that uses the key-value bucket with that name. It sends nothing to
// the server. The store never closes the connection of js.
func New(js jetstream.JetStream, bucket string) *Store {
	b := &bucketDB{js: js, bucket: bucket}
	if js != nil {
		o := js.Options()
		b.api, b.timeout = "$JS.API.", o.DefaultTimeout
		switch {
		case o.Domain != "":
			b.api = "$JS." + o.Domain + ".API."
		case o.APIPrefix != "":
			b.api = strings.TrimSuffix(o.APIPrefix, ".") + "."
		}
		if b.api != "$JS.API." {
			b.put = b.api
		}
	}
	return &Store{kit.NewVersioned("nats", b, &kit.VersionedOptions{MaxKey: 512})}
}

// Check implements [store.Checker]. It returns an error if the JetStream is nil, or if no
// bucket can have the name.
func (s *Store) Check() error {
	if s == nil || s.VersionedStore == nil {
		return errors.New("nats: the Store is nil or a zero value: call New")
	}
	return s.VersionedStore.Check()
}

// BorrowsStrings implements [store.Borrower]. It reports whether st is s. A Store copies
// the keys and texts that it sends.
func (s *Store) BorrowsStrings(st store.Store) bool { return st == store.Store(s) }

// CheckDeadline implements [store.DeadlineChecker]. A call always ends with its context.
func (s *Store) CheckDeadline() error { return s.Check() }

// StreamConfig returns the settings of the stream of a bucket. It has one replica and
// file storage: change Replicas, Storage, MaxBytes or Placement before you pass it to
// CreateOrUpdateStream.
func StreamConfig(bucket string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               streamName(bucket),
		Subjects:           []string{"$KV." + bucket + ".>"},
		Replicas:           1,
		MaxMsgsPerSubject:  1,
		Discard:            jetstream.DiscardNew,
		AllowRollup:        true,
		AllowDirect:        true,
		DenyDelete:         true,
		AllowMsgTTL:        true,
		AllowAtomicPublish: true,
	}
}

func streamName(bucket string) string { return "KV_" + bucket }
