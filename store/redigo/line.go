package redigo

import (
	"context"
	"errors"

	"github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"
)

// maxRedirects is the number of redirections that a call follows.
const maxRedirects = 3

var errNoConn = errors.New("the pool gave neither a connection nor an error")

// A line is the connection of one call. It connects to the node of key, or to any node if
// key is empty, and then to the nodes of redirections.
type line struct {
	store *Store
	key   string

	conn      redis.Conn
	lent      *redis.Pool // the pool of conn, if only this line uses the pool
	asking    bool        // the node serves the key's slot only after an ASKING
	demoted   bool        // the node is not a master
	redirects int
	movedTo   string
}

// open connects the line.
func (l *line) open(ctx context.Context) error {
	if l.store.cluster == nil {
		conn, err := l.store.pool.GetContext(ctx)
		if err == nil && conn == nil {
			err = errNoConn
		}
		if err == nil {
			l.conn = conn
		}
		return err
	}
	conn := l.store.cluster.Get()
	var keys []string
	if l.key != "" {
		keys = []string{l.key}
	}
	if err := redisc.BindConn(conn, keys...); err != nil {
		_ = conn.Close()
		return err
	}
	l.conn = conn
	return nil
}

// close returns the connection to its pool.
func (l *line) close() {
	if l.conn == nil {
		return
	}
	if l.demoted {
		drop(l.conn)
	}
	_ = l.conn.Close()
	if l.lent != nil {
		_ = l.lent.Close()
	}
	l.conn, l.lent, l.asking, l.demoted = nil, nil, false, false
}

// do sends cmd alone, and returns the reply.
func (s *Store) do(ctx context.Context, cmd *command) (any, error) {
	l := line{store: s, key: cmd.key}
	if err := l.open(ctx); err != nil {
		return nil, err
	}
	defer l.close()
	return l.do(ctx, cmd)
}

// do sends cmd, follows redirections, and returns the reply.
func (l *line) do(ctx context.Context, cmd *command) (any, error) {
	for {
		if l.asking {
			if err := l.conn.Send("ASKING"); err != nil {
				return nil, err
			}
		}
		val, err := exchange(ctx, l.conn, cmd)
		l.heard(err)
		to := l.store.redirection(err)
		if to == nil {
			return val, err
		}
		if ok, err := l.follow(ctx, to); !ok {
			return nil, err
		}
	}
}

// heard sets demoted if the error reply err says that the node is not a master.
func (l *line) heard(err error) {
	l.demoted = l.demoted || l.store.base.ReadOnly(err)
}

// follow connects the line to the node of a redirection. It returns false and the reason
// if the call ends here.
func (l *line) follow(ctx context.Context, to *redisc.RedirError) (bool, error) {
	reason := error(redis.Error(to.Error()))
	if l.redirects == maxRedirects || to.Type == "MOVED" && to.Addr == l.movedTo {
		return false, reason // too many redirections, or redisc could not reach the node of a MOVED
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	l.close()
	l.redirects++
	var err error
	if to.Type == "MOVED" {
		l.movedTo = to.Addr
		l.store.layout.Store(nil)
		err = l.open(ctx) // redisc already knows the new node
	} else {
		err = l.ask(ctx, to.Addr)
	}
	return err == nil, err
}

// ask connects the line to the node at addr, to which the slot moves. It does not use
// redisc, which can only connect to the current owner of the slot.
func (l *line) ask(ctx context.Context, addr string) error {
	cluster := l.store.cluster
	if cluster.CreatePool == nil {
		conn, err := redis.DialContext(ctx, "tcp", addr, cluster.DialOptions...)
		if err != nil {
			return err
		}
		l.conn, l.asking = conn, true
		return nil
	}
	pool, err := cluster.CreatePool(addr, cluster.DialOptions...)
	if err != nil {
		return err
	}
	conn, err := pool.GetContext(ctx)
	if err != nil {
		_ = pool.Close()
		return err
	}
	l.conn, l.lent, l.asking = conn, pool, true
	return nil
}

// redirection returns err as a redirection, or nil if err is not a redirection.
func (s *Store) redirection(err error) *redisc.RedirError {
	if s.cluster == nil || err == nil {
		return nil
	}
	return redisc.ParseRedir(err)
}

// refresh makes redisc read the topology again, in the background. It does so at most
// four times per second, and not while an earlier refresh runs.
func (s *Store) refresh() {
	if !s.reload.Open() || !s.refreshing.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.refreshing.Store(false)
		_ = s.cluster.Refresh() // the next failed call tries again
		s.layout.Store(nil)
	}()
}
