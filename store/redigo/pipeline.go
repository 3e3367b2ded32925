package redigo

import "context"

// window is the largest size of the commands that await replies on a connection, in bytes. A
// larger command is sent alone. This size fits into the buffers of two sockets. So there is
// no deadlock: the server does not wait until its replies are read, while the store waits
// until its commands are read.
const window = 32 << 10

// pipeline sends cmds, node by node, and sets their replies and errors.
func (s *Store) pipeline(ctx context.Context, cmds []command) {
	for _, at := range s.byNode(ctx, cmds) {
		s.flush(ctx, cmds, at)
		for _, i := range at {
			s.redirect(ctx, &cmds[i])
		}
	}
}

// flush sends cmds[i] for each i in at, on one connection. at is not empty.
func (s *Store) flush(ctx context.Context, cmds []command, at []int) {
	l := line{store: s, key: cmds[at[0]].key}
	err := l.open(ctx)
	defer l.close()
	for err == nil && len(at) > 0 {
		if err = ctx.Err(); err != nil {
			break
		}
		n := 0
		for size := 0; err == nil && n < len(at) && (n == 0 || size+cmds[at[n]].size() <= window); n++ {
			cmd := &cmds[at[n]]
			size += cmd.size()
			err = l.conn.Send(cmd.name, cmd.args...)
		}
		if err == nil {
			err = l.conn.Flush()
		}
		for sent := at[:n]; err == nil && len(sent) > 0; sent, at = sent[1:], at[1:] {
			cmd := &cmds[sent[0]]
			cmd.reply, cmd.err = receive(ctx, l.conn)
			l.heard(cmd.err)
			if _, answered := replied(cmd.err); cmd.err != nil && !answered {
				err = cmd.err
			}
		}
	}
	for _, i := range at {
		cmds[i].err = err
	}
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
