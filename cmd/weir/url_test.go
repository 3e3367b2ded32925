package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]target{
		"redis://h":                     {kind: single, client: "goredis", UniversalOptions: redis.UniversalOptions{Addrs: []string{"h:6379"}}},
		"redis://[::1]:7/3":             {kind: single, client: "goredis", UniversalOptions: redis.UniversalOptions{Addrs: []string{"[::1]:7"}, DB: 3}},
		"redis://[::1]":                 {kind: single, client: "goredis", UniversalOptions: redis.UniversalOptions{Addrs: []string{"[::1]:6379"}}},
		"redis://ann:p%40ss@h:1":        {kind: single, client: "goredis", UniversalOptions: redis.UniversalOptions{Addrs: []string{"h:1"}, Username: "ann", Password: "p@ss"}},
		"redis://:pass@h:1":             {kind: single, client: "goredis", UniversalOptions: redis.UniversalOptions{Addrs: []string{"h:1"}, Password: "pass"}},
		"valkey://h":                    {kind: single, client: "valkey", UniversalOptions: redis.UniversalOptions{Addrs: []string{"h:6379"}}},
		"redis+cluster://h:1?addr=i:2":  {kind: cluster, client: "goredis", UniversalOptions: redis.UniversalOptions{Addrs: []string{"h:1", "i:2"}, IsClusterMode: true}},
		"valkey+cluster://h?addr=i":     {kind: cluster, client: "valkey", UniversalOptions: redis.UniversalOptions{Addrs: []string{"h:6379", "i:6379"}, IsClusterMode: true}},
		"postgres://u:p@h/db?sslmode=x": {kind: postgres, client: "postgres", UniversalOptions: redis.UniversalOptions{Username: "u", Password: "p"}},
		"postgresql://h/db":             {kind: postgres, client: "postgres"},
		"redis+sentinel://u:p@h/2?addr=i&master_name=m&sentinel_username=su&sentinel_password=sp": {
			kind: sentinel, client: "goredis", UniversalOptions: redis.UniversalOptions{
				Addrs: []string{"h:26379", "i:26379"}, DB: 2,
				Username: "u", Password: "p", MasterName: "m", SentinelUsername: "su", SentinelPassword: "sp",
			},
		},
	} {
		got, err := new(tool).parseURL(raw, "")
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if want.url = raw; !reflect.DeepEqual(*got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", raw, *got, want)
		}
	}
	for _, raw := range []string{"rediss://h", "valkeys://h", "rediss+cluster://h", "rediss+sentinel://h?master_name=m"} {
		if got, err := new(tool).parseURL(raw, ""); err != nil || got.TLSConfig == nil {
			t.Errorf("%s: got %+v, %v, want TLS", raw, got, err)
		}
	}
	if got, err := new(tool).parseURL("valkey://h", "redigo"); err != nil || got.client != "redigo" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestParseURLErrors shows that errors say what is right, and never repeat the URL.
func TestParseURLErrors(t *testing.T) {
	for _, test := range []struct{ raw, client, want string }{
		{"s3cret", "", "it must be like redis://localhost:6379"},
		{"redis:s3cret", "", "it must be like"},
		{"memory:", "", "the scheme memory: it must be redis, valkey or postgres"},
		{"sqlite:///s3cret.db", "", "the scheme sqlite: it must be"},
		{"redis://:s3cret/x@h:1", "", "percent-encoded"},
		{"redis://:12/s3cret@h", "", "not the number of a database"},
		{"redis://:12?s3cret@h", "", "unknown parameter"},
		{"redis://h?s3cret=1", "", "a single server has none"},
		{"redis+cluster://h?s3cret=1", "", "a cluster server has addr"},
		{"s3cret://h", "", "it must be redis, rediss,"},
		{"redis+s3cret://h", "", "cluster or sentinel"},
		{"redis+cluster://h/s3cret", "", "a cluster, which has only one"},
		{"redis+cluster://h/1", "", "a cluster, which has only one"},
		{"redis+sentinel://:s3cret@h", "", "?master_name=NAME"},
		{"redis+sentinel://:s3cret@h?master_name=m", "redigo", "goredis, rueidis or valkey"},
		{"redis://:s3cret@h", "postgres", "it cannot use a redis server"},
		{"postgres://:s3cret@h", "goredis", "it cannot use a postgres server"},
		{"redis://:s3cret@h", "jedis", "goredis, postgres, redigo, rueidis, valkey"},
	} {
		_, err := new(tool).parseURL(test.raw, test.client)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v, want %q", test.raw, err, test.want)
		}
	}
}

// TestSecrets shows that an error of a client that repeats the password is printed
// without it, and that other words stay as they are.
func TestSecrets(t *testing.T) {
	for _, test := range []struct{ password, text, want string }{
		{"e", "unknown command `HELLO`, with: 'AUTH' 'me' 'e'", "unknown command `HELLO`, with: 'AUTH' 'me' 'xxxxx'"},
		{"e", "dial redis://me:e@here: refused", "dial redis://xxxxx@here: refused"},
		{"e", "postgres://h/d?sslpassword=e&user=me", "postgres://h/d?sslpassword=xxxxx&user=me"},
		{"password", "invalid username-password pair", "invalid username-password pair"},
		{"redis", `redis://h:6379: "redis" is wrong`, `redis://h:6379: "xxxxx" is wrong`},
		{"s3cretive", "as s3cretive, on h", "as xxxxx, on h"},
	} {
		var tool tool
		if _, err := tool.parseURL("redis://me:"+test.password+"@h", ""); err != nil {
			t.Fatal(err)
		}
		if got := tool.secrets.remove(test.text); got != test.want {
			t.Errorf("%q: got %q, want %q", test.password, got, test.want)
		}
	}
	for _, raw := range []string{
		"redis://ann:p%40s3cret@h", "redis+sentinel://h?master_name=m&sentinel_password=p%40s3cret",
		"postgres://h/db?password=p%40s3cret", "postgres://h/db?sslpassword=p%40s3cret",
	} {
		var tool tool
		if _, err := tool.parseURL(raw, ""); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{raw, "ERR invalid password p@s3cret", "p%40s3cret", "redis://h:p@s3cret@i"} {
			if got := tool.secrets.remove(text); strings.Contains(got, "s3cret") {
				t.Errorf("%s: %q is %q", raw, text, got)
			}
		}
	}
	// A mistyped flag can hold a URL that was never parsed.
	if got := secrets(nil).remove("not defined: -storeredis://ann:p@ss/s3cret@h"); strings.Contains(got, "s3cret") || strings.Contains(got, "ann") {
		t.Errorf("got %q", got)
	}
}
