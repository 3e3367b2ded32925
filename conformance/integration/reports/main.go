// Command reports writes docs/conformance, and a part of README.md, from the reports in a
// directory. make reports runs it in the directory conformance/integration:
//
//	WEIR_REPORTS=DIR go test -run 'TestMatrix|TestPostgres$' .
//	go run ./reports DIR
package main

import (
	"errors"
	"log"
	"os"
	"path/filepath"

	"github.com/weir-go/weir/conformance/integration/internal/reports"
)

// root is the root of the repository.
const root = "../.."

func main() {
	log.SetFlags(0)
	log.SetPrefix("reports: ")
	if len(os.Args) != 2 {
		log.Fatal("give one argument: the directory with the reports")
	}
	if err := write(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

// write replaces all files, or none if the reports in from are not complete.
func write(from string) error {
	all, err := reports.Read(from)
	if err != nil {
		return err
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		return err
	}
	text, err := reports.Insert(string(readme), all)
	if err != nil {
		return err
	}
	dir := filepath.Join(root, reports.Dir)
	old, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	for _, path := range old { // a store or a server may be gone
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	files := map[string]string{filepath.Join(root, "README.md"): text}
	for name, text := range reports.Files(all) {
		files[filepath.Join(dir, name)] = text
	}
	errs := []error{os.MkdirAll(dir, 0o755)}
	for path, text := range files {
		errs = append(errs, os.WriteFile(path, []byte(text), 0o644))
	}
	log.Printf("wrote %d reports to %s, and a part of README.md", len(all), reports.Dir)
	return errors.Join(errs...)
}
