// Command playground serves the page of docs/playground/README.md, or writes it to a
// directory.
//
//	go run .           # or make playground in the root
//	go run . -out DIR  # for any server of static files
//
// It is a separate module, because package weirfile is one.
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
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
	"path/filepath"
	"strings"
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
	srv := &http.Server{Handler: handler(files), ReadHeaderTimeout: time.Minute}
	return srv.Serve(l)
}

// build returns the files of the page by name. It compiles package simulate.
func build(ctx context.Context) (map[string][]byte, error) {
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
	files := map[string][]byte{}
	for name, path := range map[string]string{
		"playground.wasm": module,
		"wasm_exec.js":    filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec.js"),
	} {
		if files[name], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	entries, err := fs.ReadDir(page, "page")
	for _, e := range entries {
		text, readErr := page.ReadFile("page/" + e.Name())
		files[e.Name()], err = text, errors.Join(err, readErr)
	}
	return files, err
}

// write writes the files to the directory.
func write(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

var types = map[string]string{
	".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".wasm": "application/wasm",
}

// handler serves the files, compressed.
func handler(files map[string][]byte) http.Handler {
	small := map[string][]byte{}
	for name, text := range files {
		small[name] = compress(text)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := cmp.Or(strings.TrimPrefix(r.URL.Path, "/"), "index.html")
		text, ok := files[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", types[filepath.Ext(name)])
		w.Header().Set("Vary", "Accept-Encoding")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			text = small[name]
		}
		_, _ = w.Write(text) // the client can be gone
	})
}

func compress(text []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(text)
	if err = errors.Join(err, w.Close()); err != nil {
		panic(err) // a Buffer accepts everything
	}
	return b.Bytes()
}
