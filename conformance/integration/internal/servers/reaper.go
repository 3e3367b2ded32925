package servers

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
)

const (
	// The labels are on every container, with the IDs of the run and of the
	// server as their values.
	runLabel    = "weir.run"
	serverLabel = "weir.server"

	// reaper is a shell script that waits for a line, or for the end of the process that would
	// write it, and then removes the containers with the label $1. A process that died may have
	// let the engine make another one meanwhile. Force kills a container even if it is paused:
	// a server has nothing to save.
	reaper = `remove() {
	ids=$(docker ps --all --quiet --filter "label=$1") && { [ -z "$ids" ] || docker rm --force --volumes $ids; } >/dev/null
}
read -r _ && alive=1
remove "$1" && { [ -n "$alive" ] || { sleep 2 && remove "$1"; }; }`
)

var (
	runID = rand.Text()

	mainCalled bool
	stopReaper = func() error { return nil }
)

// Main runs the tests and exits. Call it from TestMain.
func Main(m *testing.M) {
	mainCalled = true
	code := m.Run()
	if err := stopReaper(); err != nil {
		fmt.Fprintln(os.Stderr, "servers: remove the containers:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// startReaper starts the process that removes the containers of this run. So they are removed
// even after a panic in a test, a timeout or a kill, which skip deferred calls.
var startReaper = sync.OnceValue(func() error {
	if !mainCalled {
		return errors.New("TestMain does not call servers.Main")
	}
	cmd := exec.Command("sh", "-c", reaper, "sh", runLabel+"="+runID)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	// A session of its own keeps it from the terminal's interrupt.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stopReaper = func() error {
		_, err := stdin.Write([]byte("\n"))
		if err = errors.Join(err, cmd.Wait()); err != nil {
			return fmt.Errorf("%w: %s", err, stderr.Bytes())
		}
		return nil
	}
	return cmd.Start()
})

// remove removes the containers of the server.
func (s *Server) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", reaper, "sh", serverLabel+"="+s.id)
	cmd.Stdin = strings.NewReader("\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
