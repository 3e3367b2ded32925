package main

import (
	"cmp"
	"crypto/tls"
	"flag"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// urls is the part about URLs of weir -h.
const urls = `The URL of the store, in WEIR_STORE or -store (other users of the machine can see arguments):
  redis://USER:PASSWORD@HOST:6379/DB                         Redis; rediss:// uses TLS
  valkey://HOST:6379                                         Valkey; valkeys:// uses TLS
  redis+cluster://HOST:7000?addr=HOST2:7001                  nodes of a cluster
  redis+sentinel://HOST:26379?addr=HOST2:26379&master_name=NAME
  postgres://USER:PASSWORD@HOST:5432/DATABASE                PostgreSQL, with the parameters of pgx
Percent-encode the characters / ? # @ : % in a password. For a private certificate authority, set
SSL_CERT_FILE.
`

// A kind is the way in which a client finds who serves a key.
type kind string

const (
	single   kind = "single"
	cluster  kind = "cluster"
	sentinel kind = "sentinel"
	postgres kind = "postgres"
)

// A target is a store, as a URL names it.
type target struct {
	url    string
	kind   kind
	client string // a name in clients

	redis.UniversalOptions // of a server of Redis or Valkey
}

// storeFlag adds the flag -store.
func storeFlag(set *flag.FlagSet) *string {
	return set.String("store", "", "the `URL` of the store; the default is the variable WEIR_STORE")
}

// target returns the store at the URL, or the one that the environment names.
func (t *tool) target(url, client string) (*target, error) {
	raw := cmp.Or(url, t.getenv("WEIR_STORE"))
	if raw == "" {
		return nil, usagef("no store is given: set WEIR_STORE to its URL, for example redis://localhost:6379")
	}
	return t.parseURL(raw, client)
}

// parseURL returns the store at a URL. No error says what the URL is: it can have a
// password, even where none is expected.
func (t *tool) parseURL(raw, client string) (*target, error) {
	u, err := url.Parse(raw)
	if err == nil && slices.Contains([]string{"memory", "sqlite", "file", "nats"}, u.Scheme) {
		return nil, usagef("the command does not reach a store with the scheme %s: it must be redis, valkey or postgres, and for others, the program can serve the page for operators (weirhttp/admin)", u.Scheme)
	}
	if err != nil || u.Host == "" {
		return nil, usagef("the URL of the store is not a URL: it must be like redis://localhost:6379, and in a password, the characters / ? # @ : %% must be percent-encoded")
	}
	query := u.Query()
	at := &target{url: raw, kind: single}
	at.Username, at.SentinelUsername, at.SentinelPassword = u.User.Username(), query.Get("sentinel_username"), query.Get("sentinel_password")
	at.Password, _ = u.User.Password()
	for _, password := range []string{at.Password, at.SentinelPassword, query.Get("password"), query.Get("sslpassword")} {
		if password != "" {
			t.secrets = append(t.secrets, password, url.QueryEscape(password), url.PathEscape(password))
		}
	}
	slices.SortFunc(t.secrets, func(a, b string) int { return len(b) - len(a) }) // one can contain another
	scheme, how, _ := strings.Cut(u.Scheme, "+")
	byScheme := map[string]string{"redis": "goredis", "rediss": "goredis", "valkey": "valkey", "valkeys": "valkey", "postgres": "postgres", "postgresql": "postgres"}
	at.client = cmp.Or(client, byScheme[scheme])
	switch {
	case byScheme[scheme] == "":
		return nil, usagef("the URL of the store has an unknown scheme: it must be redis, rediss, valkey, valkeys or postgres")
	case clients[at.client].open == nil:
		return nil, usagef("-client is %q: it must be one of %s", client, strings.Join(slices.Sorted(maps.Keys(clients)), ", "))
	case (at.client == "postgres") != (byScheme[scheme] == "postgres"):
		return nil, usagef("-client is %q: it cannot use a %s server", client, scheme)
	case byScheme[scheme] == "postgres" && how == "":
		at.kind = postgres
		return at, nil
	}
	switch how {
	case "":
	case "cluster", "sentinel":
		at.kind, at.IsClusterMode = kind(how), how == "cluster" // it can have one address
	default:
		return nil, usagef("the URL of the store has an unknown scheme: after %s+, it must have cluster or sentinel", scheme)
	}
	if strings.HasSuffix(scheme, "s") && scheme != "redis" {
		at.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	port := "6379"
	if at.kind == sentinel {
		port = "26379"
	}
	for _, addr := range append([]string{u.Host}, query["addr"]...) {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			addr = net.JoinHostPort(strings.Trim(addr, "[]"), port)
		}
		at.Addrs = append(at.Addrs, addr)
	}
	return at, at.check(u, query)
}

// check checks the rest of the URL of a server of Redis or Valkey.
func (at *target) check(u *url.URL, query url.Values) error {
	at.MasterName = query.Get("master_name")
	known := map[kind][]string{cluster: {"addr"}, sentinel: {"addr", "master_name", "sentinel_username", "sentinel_password"}}[at.kind]
	for name := range query {
		if !slices.Contains(known, name) {
			return usagef("the URL of the store has an unknown parameter: a %s server has %s", at.kind, cmp.Or(strings.Join(known, ", "), "none"))
		}
	}
	if path := strings.Trim(u.Path, "/"); path != "" {
		db, err := strconv.ParseUint(path, 10, 16)
		if err != nil || at.kind == cluster {
			return usagef("the URL of the store has a path that is not the number of a database, or a cluster, which has only one")
		}
		at.DB = int(db)
	}
	if at.kind == sentinel {
		switch {
		case at.MasterName == "":
			return usagef("the URL of the store names no master: it must end in ?master_name=NAME, with the name that the sentinels know")
		case at.client == "redigo":
			return usagef("-client is redigo, which does not know Sentinel: it must be goredis, rueidis or valkey")
		}
	}
	return nil
}
