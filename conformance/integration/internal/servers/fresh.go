package servers

import (
	"context"
	"slices"
	"testing"
)

// NewSingle returns a server of the version, as in "redis-8.0", that belongs to
// t and is removed with it. The arguments are of the server's command line, as in
// "--maxmemory", "1mb"; a --requirepass among them sets the endpoint's password.
func NewSingle(t testing.TB, version string, args ...string) *Server {
	t.Helper()
	return fresh(t, version, single, args)
}

// NewReplicated is NewSingle with a replica, which is in step: Nodes[1]. Both get
// the arguments: with a --requirepass, they need a --masterauth.
func NewReplicated(t testing.TB, version string, args ...string) *Server {
	t.Helper()
	return fresh(t, version, replicated, args)
}

// NewCluster is NewSingle of a cluster of three masters and three replicas, of a
// version from redis-7.0. Each gets the arguments. They take a master for dead
// after 1.5 s.
func NewCluster(t testing.TB, version string, args ...string) *Server {
	t.Helper()
	return fresh(t, version, cluster, args)
}

// NewSentinel is NewReplicated with three sentinels, two of which elect. They
// take the master for dead after 1.5 s.
func NewSentinel(t testing.TB, version string, args ...string) *Server {
	t.Helper()
	return fresh(t, version, watched, args)
}

// NewTLS is NewSingle that speaks TLS alone, and whose user may do what [ACL]
// says.
func NewTLS(t testing.TB, version string, args ...string) *Server {
	t.Helper()
	return fresh(t, version, encrypted, args)
}

func fresh(t testing.TB, version string, top *topology, args []string) *Server {
	t.Helper()
	s := newServer(version+" of "+t.Name(), version, top)
	s.args, s.mortal = args, true
	if i := slices.Index(args, "--requirepass"); i >= 0 && i+1 < len(args) {
		s.Password = args[i+1]
	}
	t.Cleanup(func() {
		if t.Failed() {
			if err := s.postMortem(); err != nil { // a node can have crashed
				t.Logf("%s: %v", s.Name, err)
			}
		}
		if s.network == "" {
			return // nothing was started
		}
		if err := s.remove(context.Background()); err != nil {
			t.Errorf("%s: remove the containers: %v", s.Name, err)
		}
	})
	s.Start(t)
	return s
}
