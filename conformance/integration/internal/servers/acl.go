package servers

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
)

// ACL is what a user needs, beside a pattern of keys, for all that limiters
// send, by the rules of ACL SETUSER. What a client sends of its own accord comes
// on top. docs/reference/stores.md has the same line.
const ACL = "+eval +evalsha +mget +time " +
	"+get +set +exists +unlink +pexpire " +
	"+zadd +zcard +zcount +zrange +zrem +zremrangebyrank +zscore " +
	"+rpush +lindex +lrange"

// Grant makes a user by the rules, as ACL SETUSER takes them, on each of Nodes,
// and returns the server as that user sees it. The user is gone when t ends.
func (s *Server) Grant(t testing.TB, rules string) Endpoint {
	t.Helper()
	e := s.Endpoint
	e.User, e.Password = "user-"+rand.Text(), rand.Text()
	command := []any{"ACL", "SETUSER", e.User, "on", ">" + e.Password}
	for _, rule := range strings.Fields(rules) {
		command = append(command, rule)
	}
	all := func(ctx context.Context, command ...any) {
		t.Helper()
		for _, node := range s.Nodes {
			rdb := node.dial()
			defer rdb.Close()
			if err := rdb.Do(ctx, command...).Err(); err != nil {
				t.Errorf("%s: %v %v on %s: %v", s.Name, command[0], command[1], node.Addr, err)
			}
		}
	}
	all(t.Context(), command...)
	t.Cleanup(func() { all(context.Background(), "ACL", "DELUSER", e.User) })
	return e
}
