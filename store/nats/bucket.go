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

	"github.com/weir-go/weir/store/kit"
)

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
