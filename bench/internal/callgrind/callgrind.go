// Package callgrind counts the instructions of a process that runs under Valgrind's
// callgrind. Unlike time, they are the same on a busy machine.
package callgrind

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Command returns a command that runs path under callgrind, which writes its files to
// dir. Counting has not started yet.
func Command(dir, path string, args ...string) *exec.Cmd {
	own := []string{"--quiet", "--tool=callgrind", "--instr-atstart=no", "--vgdb-prefix=" + filepath.Join(dir, "vgdb"), "--callgrind-out-file=" + filepath.Join(dir, "out"), path}
	return exec.Command("valgrind", append(own, args...)...)
}

// A Counter counts the instructions of a process.
type Counter struct {
	pid   int
	dir   string // of the files that callgrind writes
	dumps int
}

// New returns a Counter for a started [Command] with this dir.
func New(cmd *exec.Cmd, dir string) *Counter { return &Counter{pid: cmd.Process.Pid, dir: dir} }

func (c *Counter) order(what ...string) error {
	out, err := exec.Command("vgdb", append([]string{"--pid=" + strconv.Itoa(c.pid), "--vgdb-prefix=" + filepath.Join(c.dir, "vgdb")}, what...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("vgdb %s: %w: %s", strings.Join(what, " "), err, out)
	}
	return nil
}

// Start starts counting.
func (c *Counter) Start() error { return c.order("instrumentation", "on") }

// Stop stops counting, and returns the instructions since it was started.
func (c *Counter) Stop() (int64, error) {
	if err := c.order("dump"); err != nil {
		return 0, err
	}
	if err := c.order("instrumentation", "off"); err != nil {
		return 0, err
	}
	c.dumps++
	name := filepath.Join(c.dir, fmt.Sprintf("out.%d", c.dumps))
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if total, ok := strings.CutPrefix(line, "totals:"); ok {
			return strconv.ParseInt(strings.TrimSpace(total), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no line of totals", name)
}
