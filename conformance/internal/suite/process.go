package suite

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/store"
)

// A Process is another process, which runs the same test. In it, conformance.Run runs no
// checks, but calls Serve on a store with the same state. It obeys one order at a time: each
// is a line of its input, and each answer is a line of its output that begins with mark.
type Process struct {
	t       *T
	cmd     *exec.Cmd
	orders  io.WriteCloser
	answers chan Answer // is closed when the process ends
	mu      sync.Mutex
	output  []string // the last other lines of its output
}

const (
	whereVariable = "WEIR_CONFORMANCE_WHERE"
	mark          = "weir conformance: "
)

// An order makes a process count with the two keys, in one call after the other, or in one
// call that holds the keys until the next order. That order is empty.
type order struct {
	Keys  []string
	Calls int // 0: hold the keys
}

// An Answer says what a process has done.
type Answer struct {
	Ops  []Op
	Held bool   // the form of a call runs
	Err  string // of a call that failed
}

// An Op is a call that counted: the number before it, and its time in microseconds.
type Op struct{ N, Now int64 }

// OpOf returns the Op of a reply of scripts.Counter.
func OpOf(reply []store.Value) Op { return Op{reply[0].Int(), reply[2].Int()} }

// Where returns where the state of the store is that this process is to serve, if a Process
// has started it.
func Where() (string, bool) { return os.LookupEnv(whereVariable) }

// Process starts a process. The check must call End.
func (t *T) Process() *Process {
	if t.host.Where == nil {
		t.Skipf("backend gives no Where and Open")
	}
	p := &Process{t: t, answers: make(chan Answer)}
	binary := Must[string](t, "the path of the test binary")(os.Executable())
	// The directory of the check is removed even if the process is killed.
	p.cmd = exec.Command(binary, testFlags(t.test.Name())...)
	p.cmd.Env = append(os.Environ(), whereVariable+"="+t.host.Where(t.test, t.hooked), "TMPDIR="+t.test.TempDir())
	p.orders = Must[io.WriteCloser](t, "a pipe")(p.cmd.StdinPipe())
	out, in := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.WaitDelay = in, in, served
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("another process cannot start: %v", err)
	}
	go p.listen(out)
	go func() { _ = in.CloseWithError(errors.Join(p.cmd.Wait(), io.EOF)) }()
	p.Answer() // it is ready
	return p
}

// testFlags returns the flags for a process of this test binary that runs only the test
// called name, and therefore the tests around it, one of which calls conformance.Run. The
// flags that are not of package testing stay.
func testFlags(name string) []string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	args := []string{"-test.run=" + strings.Join(parts, "/")}
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	return append(args, flag.Args()...)
}

// listen reads the output of p until it ends.
func (p *Process) listen(out io.Reader) {
	defer close(p.answers)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), mark)
		var a Answer
		if ok && json.Unmarshal([]byte(text), &a) == nil {
			p.answers <- a
			continue
		}
		p.mu.Lock()
		p.output = append(p.output[max(len(p.output)-20, 0):], lines.Text())
		p.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, out)
}

// Answer returns the next answer. If there is none, or a call failed, it ends the check.
func (p *Process) Answer() Answer {
	select {
	case a, ok := <-p.answers:
		switch {
		case !ok:
			p.mu.Lock()
			defer p.mu.Unlock()
			p.t.Fatalf("another process ended, and it should call conformance.Run with Backend.Open:\n%s", strings.Join(p.output, "\n"))
		case a.Err != "":
			p.t.Fatalf("a call of another process failed: %s", a.Err)
		}
		return a
	case <-p.t.Ctx.Done():
		p.t.Fatalf("another process did not answer: %v", p.t.Ctx.Err())
		return Answer{}
	}
}

// Count lets p make calls that count with the two keys, while the check does f again and again.
func (p *Process) Count(keys []string, calls int, f func()) []Op {
	p.order(order{keys, calls})
	for {
		select {
		case a, ok := <-p.answers:
			if ok && a.Err == "" {
				return a.Ops
			}
			p.t.Fatalf("a call of another process failed: %s", a.Err)
		default:
			f()
		}
	}
}

// Hold lets p make a call that counts with the two keys, and holds them until Release. Hold
// reports false if the store runs the Lua, which holds nothing.
func (p *Process) Hold(keys []string) bool {
	p.order(order{Keys: keys})
	return p.Answer().Held
}

// Release ends the call of Hold. It reports whether the call succeeded.
func (p *Process) Release() bool {
	p.order(order{})
	select {
	case a := <-p.answers:
		return len(a.Ops) > 0
	case <-p.t.Ctx.Done():
		p.t.Fatalf("another process did not answer: %v", p.t.Ctx.Err())
		return false
	}
}

func (p *Process) order(o order) {
	line, _ := json.Marshal(o) // never fails
	_, _ = p.orders.Write(append(line, '\n'))
}

// Kill kills the process at once, whatever it does.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	for range p.answers { // until the process has ended
	}
}

// End lets the process end, so that it can close its store, and waits until it has ended.
func (p *Process) End() {
	_ = p.orders.Close()
	defer time.AfterFunc(served, func() { _ = p.cmd.Process.Kill() }).Stop()
	for range p.answers { // until the process has ended
	}
}

// Serve obeys the orders of the process that started this one, with st.
func Serve(ctx context.Context, st store.Store) {
	orders := bufio.NewScanner(os.Stdin)
	orders.Buffer(nil, 1<<20)
	answer := func(a Answer) {
		line, _ := json.Marshal(a)         // never fails
		fmt.Printf("\n%s%s\n", mark, line) // another line can be unfinished
	}
	for answer(Answer{}); orders.Scan(); {
		var o order
		_ = json.Unmarshal(orders.Bytes(), &o) // is what the other process wrote
		script, a := scripts.Counter, Answer{}
		if o.Calls == 0 {
			hold := sync.OnceFunc(func() {
				answer(Answer{Held: true})
				orders.Scan()
			})
			script = script.WithForm(func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
				hold()
				return scripts.Counter.GoForm()(tx, args, reply)
			})
		}
		for range max(o.Calls, 1) {
			reply, err := st.Eval(ctx, script, o.Keys, nil, nil)
			if err != nil {
				a.Err = err.Error()
				break
			}
			a.Ops = append(a.Ops, OpOf(reply))
		}
		answer(a)
	}
}
