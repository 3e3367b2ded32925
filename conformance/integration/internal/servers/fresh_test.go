package servers

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const version = "redis-8.0"

// TestFresh checks that a server of a test is removed after it, even if a node is paused.
func TestFresh(t *testing.T) {
	t.Parallel()
	var server *Server
	t.Run("fresh", func(t *testing.T) {
		server = NewReplicated(t, version)
		server.Nodes[0].Pause(t)
	})
	if server == nil {
		return // skipped
	}
	if err := noContainers(t.Context(), serverLabel+"="+server.id); err != nil {
		t.Error(err)
	}
	for _, node := range server.Nodes {
		if conn, err := net.Dial("tcp", node.Addr); err == nil {
			_ = conn.Close()
			t.Errorf("%s is still there", node.Addr)
		}
	}
}

// TestReaper lets a process that has servers die, with one of them paused.
func TestReaper(t *testing.T) {
	const variable = "WEIR_TEST_DIE"
	if os.Getenv(variable) != "" {
		server := NewReplicated(t, version)
		server.Nodes[0].Pause(t)
		fmt.Println("run", runID, "begun")
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		time.Sleep(time.Minute)
	}
	t.Parallel()
	if err := engine(); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestReaper$")
	cmd.Env = append(os.Environ(), variable+"=1")
	out, err := cmd.Output()
	if err == nil || !bytes.HasPrefix(out, []byte("run ")) {
		t.Fatalf("got %q, %v, want to hear of a run that was killed", out, err)
	}
	run := strings.Fields(string(out))[1]
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := poll(ctx, func() error { return noContainers(ctx, runLabel+"="+run) }); err != nil {
		t.Error(err)
	}
}

func noContainers(ctx context.Context, label string) error {
	ids, err := docker(ctx, "ps", "--all", "--quiet", "--filter", "label="+label)
	if err == nil && ids != "" {
		err = fmt.Errorf("containers were left: %s", ids)
	}
	return err
}
