package redigo

import (
	"errors"

	"github.com/gomodule/redigo/redis"
)

// replied returns the text of the error reply that err is or wraps. It returns false if
// err is not from a server.
func replied(err error) (text string, ok bool) {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return "", false
	}
	return string(reply), true
}
