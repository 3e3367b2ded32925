package servers

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go/log"
)

// A second process of the test binary waits for the first to end, and then removes the
// containers. So they are removed even after a panic in a test, a timeout or a kill,
// which skip deferred calls. Testcontainers has the same in a container, whose image must
// be pulled.

const (
	// The labels are on every container, with the IDs of the run and of the
	// server as their values.
	runLabel    = "weir.run"
	serverLabel = "weir.server"

	// reaperOf, in the environment, makes a process the reaper of that run.
	reaperOf = "WEIR_REAPER_OF"

	reapTimeout = time.Minute
)

var (
	runID = rand.Text()

	mainCalled bool
	reaper     struct {
		sync.Mutex
		cmd    *exec.Cmd
		stdin  io.WriteCloser
		stderr bytes.Buffer
	}
)

func init() {
	// Testcontainers reads the variable at its first call.
	os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
	log.SetDefault(log.NewNoopLogger())
}

// Main runs the tests and exits. Call it from TestMain.
func Main(m *testing.M) {
	if run := os.Getenv(reaperOf); run != "" {
		if err := reap(run); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	mainCalled = true
	code := m.Run()
	if err := stopReaper(); err != nil {
		fmt.Fprintln(os.Stderr, "servers: remove the containers:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// startReaper starts the second process, unless it runs.
func startReaper() error {
	if !mainCalled {
		return errors.New("TestMain does not call servers.Main")
	}
	reaper.Lock()
	defer reaper.Unlock()
	if reaper.cmd != nil {
		return nil
	}
	path, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), reaperOf+"="+runID)
	cmd.Stderr = &reaper.stderr
	// A session of its own keeps it from the terminal's interrupt.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if reaper.stdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	reaper.cmd = cmd
	return nil
}

// stopReaper returns when the containers are gone.
func stopReaper() error {
	reaper.Lock()
	defer reaper.Unlock()
	if reaper.cmd == nil {
		return nil
	}
	_, err := reaper.stdin.Write([]byte{1})
	err = errors.Join(err, reaper.stdin.Close(), reaper.cmd.Wait())
	if err != nil {
		return fmt.Errorf("%w: %s", err, reaper.stderr.Bytes())
	}
	return nil
}

// reap waits for the test process to end and removes the containers of its run.
func reap(run string) error {
	farewell, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	ctx, label := context.Background(), runLabel+"="+run
	if err := remove(ctx, label); err != nil {
		return err
	}
	if len(farewell) == 0 {
		// The process died, perhaps while the engine was making a container.
		time.Sleep(2 * time.Second)
		return remove(ctx, label)
	}
	return nil
}

// remove removes the containers with the label.
func remove(ctx context.Context, label string) error {
	ctx, cancel := context.WithTimeout(ctx, reapTimeout)
	defer cancel()
	return withDocker(ctx, func(docker *client.Client) error {
		list, err := docker.ContainerList(ctx, client.ContainerListOptions{
			All:     true,
			Filters: make(client.Filters).Add("label", label),
		})
		if err != nil {
			return err
		}
		errs := make([]error, len(list.Items))
		var wg sync.WaitGroup
		for i, item := range list.Items {
			wg.Go(func() {
				// Force kills it, even if it is paused. A server has nothing to save, and
				// sleep, as the first process of its container, ignores the polite
				// signal.
				_, errs[i] = docker.ContainerRemove(ctx, item.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	})
}
