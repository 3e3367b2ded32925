package weirfile

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/weir-go/weir/algorithm"
)

var update = flag.Bool("update", false, "write schema.json")

// schema.json is what Schema returns. To write it: go test -run TestSchema -update
func TestSchema(t *testing.T) {
	t.Parallel()
	want, err := Schema(nil)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("schema.json", want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("schema.json"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("schema.json is old (%v): write it with go test -run TestSchema -update", err)
	}
	own, err := Schema(&Options{Algorithms: map[string]algorithm.Algorithm{"users": mine{}}})
	if err != nil || !bytes.Contains(own, []byte(`"max users"`)) {
		t.Errorf("the schema lacks the fields of Options.Algorithms: %v", err)
	}
}
