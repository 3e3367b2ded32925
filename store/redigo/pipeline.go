package redigo

import (
	"context"

	"github.com/gomodule/redigo/redis"

	"github.com/weir-go/weir/store/internal/adapter"
)

// window is the largest size of the commands that await replies on a connection, in
// bytes. A larger command is sent alone. This size fits into the buffers of two sockets.
// So there is no deadlock: the server does not wait until its replies are read, while the
// store waits until its commands are read.
const window = 32 << 10

// pipeline sends cmds, node by node, and sets their replies and errors.
func (s *Store) pipeline(ctx context.Context, cmds []command) {
	for at := range s.byNode(ctx, cmds) {
		s.flush(ctx, cmds, at)
		for _, i := range at {
			s.redirect(ctx, &cmds[i])
		}
	}
}

// flush sends cmds[i] for each i in at, on one connection. at is not empty.
func (s *Store) flush(ctx context.Context, cmds []command, at []int) {
	l := line{store: s, key: cmds[at[0]].key}
	err := ctx.Err() // it can have ended while other nodes were asked
	if err == nil {
		err = l.open(ctx)
	}
	defer l.close()
	for err == nil && len(at) > 0 {
		if err = ctx.Err(); err != nil {
			break
		}
		n, size := 1, cmds[at[0]].size()
		for ; n < len(at) && size+cmds[at[n]].size() <= window; n++ {
			size += cmds[at[n]].size()
		}
		next := func(*command) (any, error) { return receive(ctx, l.conn) }
		if n == 1 { // it can be so large that it is written for long, which ctx must end too
			next = func(cmd *command) (any, error) { return exchange(ctx, l.conn, cmd) }
		} else {
			err = l.send(cmds, at[:n])
		}
		for sent := at[:n]; err == nil && len(sent) > 0; sent, at = sent[1:], at[1:] {
			cmd := &cmds[sent[0]]
			cmd.reply, cmd.err = next(cmd)
			l.heard(cmd.err)
			if _, answered := adapter.Replied[redis.Error](cmd.err); cmd.err != nil && !answered {
				err = cmd.err
			}
		}
	}
	for _, i := range at {
		cmds[i].err = err
	}
}

// send sends cmds[i] for each i in at, which are at most window together.
func (l *line) send(cmds []command, at []int) error {
	for _, i := range at {
		if err := l.conn.Send(cmds[i].name, cmds[i].args...); err != nil {
			return err
		}
	}
	return l.conn.Flush()
}

// redirect sends cmd again, alone, if its reply was a redirection.
func (s *Store) redirect(ctx context.Context, cmd *command) {
	to := s.redirection(cmd.err)
	if to == nil {
		return
	}
	l := line{store: s, key: cmd.key}
	defer l.close()
	var ok bool
	if ok, cmd.err = l.follow(ctx, to); ok {
		cmd.reply, cmd.err = l.do(ctx, cmd)
	}
}
