package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/weir-go/weir/store"
)

// fakes are the servers of the tests by the host of their URLs.
var fakes = map[string]func() (*server, error){
	"sound":   (&fake{}).dial,
	"twice":   (&fake{twice: true}).dial,
	"ttls":    (&fake{keepsAll: true}).dial,
	"acl":     (&fake{hides: true}).dial,
	"full":    (&fake{fails: store.ErrUnavailable}).dial,
	"large":   (&fake{many: mostKeys + 1}).dial,
	"replica": (&fake{fails: fmt.Errorf("%w: the server is a replica", store.ErrMisconfigured)}).dial,
	"down": func() (*server, error) {
		return nil, fmt.Errorf("dial redis://ann:s3cret@down: \x1b[2J %w", store.ErrUnavailable)
	},
}

// asTool makes this test binary the tool, in a process of its own: the suite cannot run
// in a process of go test.
const asTool = "WEIR_TEST_TOOL"

func TestMain(m *testing.M) {
	if os.Getenv(asTool) == "" {
		os.Exit(m.Run())
	}
	t := newTool(os.Stdout, os.Stderr, os.Getenv)
	os.Exit(t.run(context.Background(), os.Args[1:]))
}

// newTool returns a tool without a terminal, whose servers are fakes.
func newTool(out, err io.Writer, getenv func(string) string) *tool {
	return &tool{
		in: bufio.NewReader(strings.NewReader("")), out: out, err: err, getenv: getenv,
		dial: func(_ context.Context, at *target) (*server, error) {
			host, _, _ := strings.Cut(at.Addrs[0], ":")
			if dial, ok := fakes[host]; ok {
				return dial()
			}
			return nil, errors.New("no such fake")
		},
	}
}

// An outcome is what a command did.
type outcome struct {
	code     int
	out, err string
}

// tell runs the tool in this process.
func tell(t *testing.T, env map[string]string, args ...string) outcome {
	t.Helper()
	var out, err bytes.Buffer
	code := newTool(&out, &err, func(name string) string { return env[name] }).run(t.Context(), args)
	return outcome{code, out.String(), err.String()}
}

// tellProcess runs the tool in another process.
func tellProcess(t *testing.T, args ...string) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	c := exec.CommandContext(t.Context(), os.Args[0], args...)
	c.Env = append(os.Environ(), asTool+"=1")
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return outcome{c.ProcessState.ExitCode(), out.String(), errs.String()}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"help"}, {"--help"}} {
		o := tell(t, nil, args...)
		if o.code != exitOK || o.err != "" || !strings.Contains(o.out, "Exit codes:") {
			t.Errorf("%q: got %+v", args, o)
		}
		for _, c := range commands() {
			if !strings.Contains(o.out, "\n  weir "+c.name+" ") || !strings.Contains(o.out, c.summary) {
				t.Errorf("%q: no example or summary of %s in\n%s", args, c.name, o.out)
			}
		}
	}
	for _, c := range commands() {
		o := tell(t, nil, c.name, "-h")
		if o.code != exitOK || o.err != "" || !strings.HasPrefix(o.out, c.summary+"\n\nExample:\n  weir "+c.name+" ") {
			t.Errorf("%s: want the summary, and then an example; got %+v", c.name, o)
		}
		for _, want := range []string{"-o format", "Exit codes:", "weir " + c.name + " [flags]"} {
			if !strings.Contains(o.out, want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, o.out)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	o, help := tell(t, nil, "version"), tell(t, nil, "-h")
	if o.code != exitOK || !strings.HasPrefix(o.out, "weir ") || !strings.HasSuffix(o.out, ", built with "+runtime.Version()+"\n") || !strings.Contains(help.out, "  version  Print the version: "+o.out) {
		t.Errorf("got %+v, and the help is\n%s", o, help.out)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, ""},
		{[]string{"explode"}, `there is no command "explode": weir -h lists`},
		{[]string{"conform", "-no-such"}, "flag provided but not defined: -no-such: weir conform -h lists the flags"},
		{[]string{"conform", "-o", "xml"}, "it must be text or json"},
		{[]string{"conform"}, "no store is given: set WEIR_STORE"},
		{[]string{"conform", "redis://sound", "redis://twice"}, "there are 2 arguments: give one URL at most"},
		{[]string{"conform", "redis://sound", "-run", "NoSuchCheck"}, "NoSuchCheck"},  // flags can stand between arguments
		{[]string{"conform", "redis://sound", "--", "-run"}, "there are 2 arguments"}, // but not after --
		{[]string{"conform", "-run", "(", "redis://sound"}, `-run is "(": it must be a regular expression`},
		{[]string{"conform", "-run", "NoSuchCheck", "redis://sound"}, `-run is "NoSuchCheck": it must match the name of a check`},
		{[]string{"conform", "-report", "r.txt", "redis://sound"}, `-report is "r.txt": it must end in .json`},
		{[]string{"conform", "-report", "/no/such/r.json", "redis://sound"}, `-report is "/no/such/r.json": its directory cannot be written`},
	} {
		o := tell(t, nil, test.args...)
		if o.code != exitUsage || !strings.Contains(o.err, test.want) {
			t.Errorf("%q: got %+v, want code %d and %q", test.args, o, exitUsage, test.want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		err  error
		code int
	}{
		{nil, exitOK},
		{errNo, exitNo},
		{usagef("wrong"), exitUsage},
		{fmt.Errorf("peek: %w", store.ErrUnavailable), exitUnavailable},
		{store.Foreign("weir:api:{acme}:user.f2:ann"), exitUnavailable}, // not a denial
		{context.DeadlineExceeded, exitUnavailable},
		{fmt.Errorf("peek: %w", context.Canceled), exitInterrupted},
	} {
		if got := newTool(io.Discard, io.Discard, nil).finish("peek", test.err); got != test.code {
			t.Errorf("%v: got %d, want %d", test.err, got, test.code)
		}
	}
}
