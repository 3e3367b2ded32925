// Command reports writes docs/conformance from the reports in a directory. make reports runs
// it in the directory conformance/integration:
//
//	WEIR_REPORTS=DIR go test -run 'TestMatrix|TestPostgres$' .
//	go run ./reports DIR
package main

import (
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

// write replaces all files, or none if the reports in dir are not complete.
func write(dir string) error {
	all, err := reports.Collect(dir)
	if err != nil {
		return err
	}
	for name, text := range all.Files() {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	log.Printf("wrote %d reports to %s", len(all.Runs), reports.Data)
	return nil
}
