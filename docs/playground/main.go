// Command playground serves the page of docs/playground/README.md, or writes it to a
// directory.
//
//	go run .           # or make playground in the root
//	go run . -out DIR  # for any server of static files
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing/fstest"
	"time"
)

//go:embed page
var page embed.FS

func main() {
	log.SetFlags(0)
	addr := flag.String("addr", "127.0.0.1:8000", "address to serve the page on; port 0 chooses a free one")
	out := flag.String("out", "", "directory to write the page to; the page is then not served")
	flag.Parse()
	if err := run(context.Background(), *addr, *out); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr, out string) error {
	files, err := build(ctx)
	if err != nil {
		return err
	}
	if out != "" {
		return write(out, files)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/\n", l.Addr())
	srv := &http.Server{Handler: http.FileServerFS(files), ReadHeaderTimeout: time.Minute}
	return srv.Serve(l)
}

// build returns the files of the page. It compiles package simulate.
func build(ctx context.Context) (fstest.MapFS, error) {
	dir, err := os.MkdirTemp("", "playground")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	module := filepath.Join(dir, "playground.wasm")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", module, "github.com/weir-go/weir/docs/playground/wasm")
	cmd.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, text)
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	files := fstest.MapFS{}
	add := func(from fs.FS, name string) {
		text, readErr := fs.ReadFile(from, name)
		files[path.Base(name)], err = &fstest.MapFile{Data: text, Mode: 0o644}, errors.Join(err, readErr)
	}
	add(os.DirFS(dir), "playground.wasm")
	add(os.DirFS(strings.TrimSpace(string(root))), "lib/wasm/wasm_exec.js")
	for _, name := range []string{"index.html", "style.css", "app.js"} {
		add(page, "page/"+name)
	}
	return files, err
}

// write writes the files to the directory.
func write(dir string, files fstest.MapFS) error {
	err := os.MkdirAll(dir, 0o755)
	for name, file := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), file.Data, 0o644))
	}
	return err
}
