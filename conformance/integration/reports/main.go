// Command reports writes docs/conformance from the reports in a directory. make reports runs
// it in the directory conformance/integration:
//
//	WEIR_REPORTS=DIR go test -run 'TestMatrix|TestPostgres$' .
//	go run ./reports DIR
package main

import (
	"log"
	"os"

	"github.com/weir-go/weir/conformance/integration/internal/reports"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("reports: ")
	if len(os.Args) != 2 {
		log.Fatal("give one argument: the directory with the reports")
	}
	if err := reports.Write("../..", os.Args[1]); err != nil {
		log.Fatal(err)
	}
}
