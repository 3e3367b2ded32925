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
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
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

// A bucketDB is a bucket, for the kit.
type bucketDB struct {
	js      jetstream.JetStream
	bucket  string
	api     string // the prefix of requests
	put     string // the prefix of subjects to which values are published
	timeout time.Duration
	looked  atomic.Int64 // when the settings of the stream were right; 0 if a call must look
}

var validBucket = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

func (b *bucketDB) Check() error {
	switch {
	case b.js == nil || b.js.Conn() == nil:
		return errors.New("the JetStream is nil: it must be one of jetstream.New")
	case !validBucket.MatchString(b.bucket):
		return fmt.Errorf("the bucket is %.80q: its name must consist of letters, digits, _ and -", b.bucket)
	}
	return nil
}

// subject returns the subject of key.
func (b *bucketDB) subject(key string) string { return "$KV." + b.bucket + "." + escape(key) }

// escape returns key in characters that the keys of a bucket can have. No two keys become
// the same.
func escape(key string) string {
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(key)+16)
	for i := range len(key) {
		switch c := key[i]; {
		case c == ':':
			out = append(out, '/')
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_':
			out = append(out, c)
		case c == '.' && i > 0 && i < len(key)-1 && key[i-1] != '.':
			out = append(out, c)
		default:
			out = append(out, '=', hex[c>>4], hex[c&15])
		}
	}
	return string(out)
}

// limit returns a context that ends after the timeout of the JetStream, if ctx has no
// deadline.
func (b *bucketDB) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok || b.timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, b.timeout)
}

// reads is the number of reads of a call that are under way at once.
const reads = 64

// Get implements [kit.Versioned].
func (b *bucketDB) Get(ctx context.Context, keys []string) ([]kit.Entry, error) {
	ctx, cancel := b.limit(ctx)
	defer cancel()
	if err := b.checkStream(ctx); err != nil {
		return nil, err
	}
	entries, errs := make([]kit.Entry, len(keys)), make([]error, len(keys))
	if len(keys) == 1 {
		entries[0], errs[0] = b.get(ctx, keys[0])
		return entries, errs[0]
	}
	var wg sync.WaitGroup
	free := make(chan struct{}, reads)
	for i, key := range keys {
		free <- struct{}{}
		wg.Go(func() {
			entries[i], errs[i] = b.get(ctx, key)
			<-free
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// A reply is the reply to a read or to a write.
type reply struct {
	Error   *jetstream.APIError `json:"error"`
	Stream  string              `json:"stream"`
	Message struct {
		Seq  uint64 `json:"seq"`
		Hdrs []byte `json:"hdrs"`
		Data []byte `json:"data"`
	} `json:"message"`
}

// get reads the latest message of key from the leader of the stream.
func (b *bucketDB) get(ctx context.Context, key string) (kit.Entry, error) {
	body := `{"last_by_subj":"` + b.subject(key) + `"}` // escape leaves nothing to quote
	r, err := b.request(ctx, &nats.Msg{Subject: b.api + "STREAM.MSG.GET." + streamName(b.bucket), Data: []byte(body)})
	var failed *jetstream.APIError
	switch {
	case errors.As(err, &failed) && failed.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return kit.Entry{}, nil
	case err != nil:
		return kit.Entry{}, err
	case r.Message.Seq == 0:
		return kit.Entry{}, errors.New("the server replied to a read without a message")
	}
	e := kit.Entry{Value: r.Message.Data, Version: r.Message.Seq}
	if h := string(r.Message.Hdrs); len(e.Value) == 0 && (strings.Contains(h, opHeader) || strings.Contains(h, jetstream.MarkerReasonHeader)) {
		e.Value = nil // the key was deleted
	} else if e.Value == nil {
		e.Value = []byte{} // it holds an empty text, which is foreign
	}
	return e, nil
}

const (
	opHeader  = "KV-Operation" // of a bucket: its value DEL marks a deleted key
	ofSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
)

// Put implements [kit.Versioned]. One write is a message that the server accepts only if
// the last message of the key has the sequence number that was read. Several are an
// atomic batch.
func (b *bucketDB) Put(ctx context.Context, writes []kit.Write) error {
	ctx, cancel := b.limit(ctx)
	defer cancel()
	var batch []*nats.Msg
	for _, w := range writes {
		if !w.Same {
			m := b.message(w)
			m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(w.Version, 10)}
			batch = append(batch, m)
		}
	}
	if len(batch) == 0 {
		return b.compare(ctx, writes)
	}
	// A message checks one key. So for each key that was only read, the last message
	// comes again, which changes nothing but checks that key.
	last := writes[0]
	for _, w := range writes {
		if !w.Same {
			last = w
		}
	}
	for _, w := range writes {
		if w.Same {
			m := b.message(last)
			m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(w.Version, 10)}
			m.Header[ofSubject] = []string{b.subject(w.Key)}
			batch = append(batch, m)
		}
	}
	return b.publish(ctx, batch)
}

// compare compares the versions of keys that are not written.
func (b *bucketDB) compare(ctx context.Context, writes []kit.Write) error {
	keys := make([]string, len(writes))
	for i, w := range writes {
		keys[i] = w.Key
	}
	entries, err := b.Get(ctx, keys)
	if err != nil {
		return err
	}
	for i, e := range entries {
		if e.Version != writes[i].Version {
			return kit.ErrConflict
		}
	}
	return nil
}

// A deleted key leaves a message that calls which have read the key conflict with. It
// ends after a minute, when all of these calls have ended.
const tombstone = time.Minute

// forever is more than servers can add to the time.
const forever = 100 * 365 * 24 * time.Hour

// message returns the message that makes w.
func (b *bucketDB) message(w kit.Write) *nats.Msg {
	m := &nats.Msg{Subject: b.put + b.subject(w.Key), Data: w.Value, Header: nats.Header{}}
	ttl := w.TTL
	if w.Value == nil {
		ttl, m.Header[opHeader] = tombstone, []string{"DEL"}
	}
	m.Header[jetstream.MsgTTLHeader] = []string{"never"}
	if ttl < forever {
		m.Header[jetstream.MsgTTLHeader] = []string{strconv.FormatInt(int64(math.Ceil(ttl.Seconds())), 10)}
	}
	return m
}

// publish sends batch, and waits until the server has stored it, or nothing of it.
func (b *bucketDB) publish(ctx context.Context, batch []*nats.Msg) error {
	last := batch[len(batch)-1]
	if len(batch) > 1 {
		id := rand.Text()
		for i, m := range batch {
			m.Header["Nats-Batch-Id"] = []string{id}
			m.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
		}
		last.Header["Nats-Batch-Commit"] = []string{"1"}
		if err := b.connected(); err != nil {
			return err
		}
		for _, m := range batch[:len(batch)-1] {
			if err := b.js.Conn().PublishMsg(m); err != nil {
				return failed(err)
			}
		}
	}
	r, err := b.request(ctx, last)
	if err == nil && r.Stream == "" {
		err = errors.New("the server replied to a write without the name of the stream")
	}
	return err
}

// request sends m, and returns the reply.
func (b *bucketDB) request(ctx context.Context, m *nats.Msg) (r reply, err error) {
	if err := b.connected(); err != nil {
		return r, err
	}
	got, err := b.js.Conn().RequestMsgWithContext(ctx, m)
	if errors.Is(err, nats.ErrNoResponders) {
		b.looked.Store(0) // somebody may have deleted the bucket, and make another
	}
	if err != nil {
		return r, b.unanswered(err)
	}
	if err := json.Unmarshal(got.Data, &r); err != nil {
		return r, fmt.Errorf("the reply is not that of JetStream: %w", err)
	}
	if r.Error != nil {
		if hints[r.Error.ErrorCode] != "" {
			b.looked.Store(0)
		}
		return r, failed(r.Error)
	}
	return r, nil
}
