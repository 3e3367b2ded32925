package main

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/weir-go/weir/store"
)

// callTime bounds each call of the store, and each time that a client connects.
const callTime = 10 * time.Second

// A server is a store at a target, and what the suite needs to know of it.
type server struct {
	store store.Store

	// open returns another store with the same state.
	open func(ctx context.Context) (store.Store, func(), error)

	// product returns the name and the version of the server.
	product func(ctx context.Context) string

	// count returns the number of keys.
	count func(ctx context.Context) (int64, error)

	// keys returns the keys that contain part, with their TTLs, which are negative if
	// there is none.
	keys func(ctx context.Context, part string) (map[string]time.Duration, error)

	// plant makes raw the value of key. It is nil if the server runs Lua, which can do
	// so.
	plant func(ctx context.Context, key string, raw []byte) error

	// dropScripts makes the server lose its scripts. It is nil if the server has none.
	dropScripts func(ctx context.Context) error

	// migrate creates what the store needs. It is nil if the store needs nothing.
	migrate func(ctx context.Context) error

	close func()
}

// A client is one of the clients that stores use.
type client struct {
	name    string // of the module, for people
	module  string
	cluster string // the module that it needs for clusters besides, if any
	open    func(ctx context.Context, at *target) (store.Store, func(), error)
}

// clients are the clients by the name of their stores.
var clients = map[string]client{
	"goredis":  {"go-redis", "github.com/redis/go-redis/v9", "", openGoredis},
	"rueidis":  {"rueidis", "github.com/redis/rueidis", "", openRueidis},
	"redigo":   {"redigo", "github.com/gomodule/redigo", "github.com/mna/redisc", openRedigo},
	"valkey":   {"valkey-go", "github.com/valkey-io/valkey-go", "", openValkey},
	"postgres": {"pgx", "github.com/jackc/pgx/v5", "", openPostgres},
}

// describe returns the client of at with its version.
func (at *target) describe() string {
	c := clients[at.client]
	text := c.name + " " + version(c.module)
	if at.kind == cluster && c.cluster != "" {
		text += ", " + c.cluster[strings.LastIndex(c.cluster, "/")+1:] + " " + version(c.cluster)
	}
	return text
}

// version returns the version of a module of this program, or "?".
func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == module {
				return m.Version
			}
		}
	}
	return "?"
}

// versions returns the versions of this program and of Go.
func versions() string {
	return fmt.Sprintf("weir %s, built with %s\n", version("github.com/weir-go/weir/cmd/weir"), runtime.Version())
}

// dial connects to the store at a target.
func dial(ctx context.Context, at *target) (*server, error) {
	timeout, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	s := &server{}
	s.open = func(ctx context.Context) (store.Store, func(), error) { return clients[at.client].open(ctx, at) }
	var err error
	if s.store, s.close, err = s.open(timeout); err == nil {
		if at.kind == postgres {
			s.administerPostgres(at)
		} else {
			s.administerRedis(at)
		}
		if _, err = s.store.Time(timeout); err == nil {
			return s, nil
		}
		s.close()
	}
	if mistake := at.mistake(ctx, err); mistake != "" {
		return nil, usagef("the URL of the store does not suit the server at %s: %s (%w)", at.Addrs[0], mistake, err)
	}
	return nil, fmt.Errorf("the store at %s cannot be used: %w", at.where(), err)
}

// where returns the addresses of at.
func (at *target) where() string {
	if at.kind == postgres {
		return "the PostgreSQL server"
	}
	return strings.Join(at.Addrs, ", ")
}

var versionLine = regexp.MustCompile(`(?m)^(valkey|redis)_version:(\S+)`)

// productOf returns the name and the version in a reply to INFO. Valkey also gives a
// redis_version: the version of the Redis that it forked.
func productOf(info string) string {
	product := "a server of unknown version"
	for _, m := range versionLine.FindAllStringSubmatch(info, -1) {
		if m[1] == "valkey" {
			return "Valkey " + m[2]
		}
		product = "Redis " + m[2]
	}
	return product
}
