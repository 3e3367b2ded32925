//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-go/weir/conformance/internal/stores"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

// A files store keeps each key in a file of a directory, which processes can share. A call
// waits for the other calls of its process, and then for other processes. It is correct if
// lock is flock.
type files struct {
	dir  string
	lock func(ctx context.Context, dir string) (unlock func(), err error)
}

var turns sync.Map // chan struct{} by directory

// A file is what a file holds.
type file struct {
	Key     string
	Content store.Content
	Expires int64
}

func (s files) path(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(s.dir, "key-"+hex.EncodeToString(sum[:]))
}

// read returns the file at path. It is the zero file if it expired or is missing.
func (s files) read(path string, now int64) (f file) {
	text, err := os.ReadFile(path)
	switch {
	case err != nil:
	case gob.NewDecoder(bytes.NewReader(text)).Decode(&f) != nil:
		return file{Content: store.Content{Kind: store.Other}}
	case f.Expires <= now:
		return file{}
	}
	return f
}

func (s files) write(key string, c store.Change, now int64) error {
	if c.Deleted {
		return os.RemoveAll(s.path(key))
	}
	f := file{key, c.Content, now + c.TTL.Microseconds()}
	if c.TTL == 0 {
		f.Expires = s.read(s.path(key), now).Expires
	}
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(f); err != nil {
		return err
	}
	return os.WriteFile(s.path(key), text.Bytes(), 0o600)
}

// transact runs f while it holds the lock.
func (s files) transact(ctx context.Context, f func(now int64) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, _ := turns.LoadOrStore(s.dir, make(chan struct{}, 1))
	turn := c.(chan struct{})
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	unlock, err := s.lock(ctx, s.dir)
	switch {
	case err != nil && ctx.Err() == nil:
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	case err != nil:
		return err
	}
	defer unlock()
	return f(time.Now().UnixMicro())
}

func (s files) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	out, err := reply, store.CheckKeys(keys)
	if err == nil {
		err = s.transact(ctx, func(now int64) error {
			held := make([]store.Content, len(keys))
			for i, key := range keys {
				held[i] = s.read(s.path(key), now).Content
			}
			tx := store.NewLoaded(now, held)
			if out, err = script.Run(tx, keys, args, reply); err != nil {
				return err
			}
			for _, c := range tx.Changes() {
				if err := s.write(keys[c.Key], c, now); err != nil {
					return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
				}
			}
			return nil
		})
	}
	if err != nil {
		return reply, fmt.Errorf("files: eval %s: %w", script.Name(), err)
	}
	return out, nil
}

func (s files) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	return values, s.transact(ctx, func(now int64) error {
		for _, key := range keys {
			var v store.Value
			if c := s.read(s.path(key), now).Content; c.Kind == store.Numbers {
				v = store.BulkValue(c.Nums.String())
			}
			values = append(values, v)
		}
		return nil
	})
}

func (s files) Time(ctx context.Context) (time.Time, error) { return time.Now(), ctx.Err() }

// flock waits for the lock of a file, which ends with the process.
func flock(ctx context.Context, dir string) (func(), error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	for err == nil {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return func() { _ = f.Close() }, nil
		}
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = pause(ctx)
		}
	}
	_ = f.Close()
	return nil, err
}

// pause waits a little, or returns the error of ctx.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-time.After(200 * time.Microsecond):
	}
	return ctx.Err()
}

// noLock does not wait for other processes.
func noLock(context.Context, string) (func(), error) { return func() {}, nil }

// busyTimeout waits for the lock of another process for five seconds, as the driver of a
// database does, and looks at the context before and after.
func busyTimeout(ctx context.Context, dir string) (func(), error) {
	busy, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	unlock, err := flock(busy, dir)
	switch {
	case err == nil && ctx.Err() != nil:
		unlock()
		return nil, ctx.Err()
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return unlock, err
}

// lockFile creates a file, which stays if the process is killed.
func lockFile(ctx context.Context, dir string) (func(), error) {
	name := filepath.Join(dir, "created")
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			return func() { _, _ = f.Close(), os.Remove(name) }, nil
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// backend returns a backend over stores with the lock of s.
func (s files) backend() Backend {
	open := func(dir string) store.Store { return files{dir, s.lock} }
	return Backend{
		New:    func(t *testing.T) store.Store { return open(t.TempDir()) },
		Where:  func(_ *testing.T, st store.Store) string { return st.(files).dir },
		Open:   func(_ *testing.T, where string) store.Store { return open(where) },
		Reopen: func(_ *testing.T, st store.Store) store.Store { return open(st.(files).dir) },
		Plant: func(t *testing.T, st store.Store, key string, raw []byte) {
			if err := os.WriteFile(st.(files).path(key), raw, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		Keys: func(t *testing.T, st store.Store, part string) map[string]time.Duration {
			s, keys, now := st.(files), map[string]time.Duration{}, time.Now().UnixMicro()
			names, err := filepath.Glob(filepath.Join(s.dir, "key-*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if f := s.read(name, now); f.Expires > 0 && strings.Contains(f.Key, part) {
					keys[f.Key] = time.Duration(f.Expires-now) * time.Microsecond
				}
			}
			return keys
		},
		Parallel: 8, Brief: true,
	}
}

// TestFiles shows that a correct store whose state processes share passes the checks of stores,
// and those of one algorithm.
func TestFiles(t *testing.T) {
	t.Parallel()
	b := files{lock: flock}.backend()
	b.Record = func(o Outcome) {
		if !o.Passed && !strings.HasPrefix(o.Skipped, "backend gives no DropScripts") && !strings.HasPrefix(o.Skipped, "store ") && !strings.HasPrefix(o.Skipped, "algorithm ") {
			t.Errorf("%s: not passed: %s", o.Check, o.Skipped)
		}
	}
	run(t, b, slices.DeleteFunc(groups(), func(g suite.Group) bool { return g.Name != "Store" && g.Name != "SlidingLog" }), declared{})
}

// TestProcessMutants shows that the checks with processes can fail, and that no other check
// of stores notices it.
func TestProcessMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	t.Parallel()
	for _, m := range []struct {
		name, check string
		wrong       files
	}{
		{"a lock of the process", "Store/Processes", files{lock: noLock}},
		{"a lock that a killed process leaves", "Store/Processes", files{lock: lockFile}},
		{"a wait of five seconds for another process", "Store/ProcessWait", files{lock: busyTimeout}},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			b := m.wrong.backend()
			if serves(t, b) {
				return
			}
			var wg sync.WaitGroup
			for _, c := range stores.Checks {
				// Expiry writes very many keys, and a closed store has lost its lock file.
				if name := "Store/" + c.Name; name == m.check || !ofProcesses[name] && c.Name != "Expiry" && c.Name != "Closed" {
					wg.Go(func() { breaks(t, b.host(nil), c, name, name == m.check) })
				}
			}
			wg.Wait()
		})
	}
}
