package rueidis

import (
	"errors"

	redis "github.com/redis/rueidis"
)

// replied returns the text of the error reply that err is, or wraps, and false
// when no server sent it. The client has cut ERR off its beginning.
func replied(err error) (text string, ok bool) {
	var reply *redis.RedisError
	if !errors.As(err, &reply) || reply.IsNil() {
		return "", false
	}
	return reply.Error(), true
}
