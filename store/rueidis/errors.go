package rueidis

import (
	"errors"

	redis "github.com/redis/rueidis"
)

// replied returns the text of the error reply that err is or wraps. It returns false if
// err is not from a server. The client removes a leading ERR.
func replied(err error) (text string, ok bool) {
	var reply *redis.RedisError
	if !errors.As(err, &reply) || reply.IsNil() {
		return "", false
	}
	return reply.Error(), true
}
