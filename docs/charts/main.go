// Command charts draws the pictures of docs/algorithms.md: what each algorithm
// admits of the same traffic, decided by the library itself in virtual time.
//
//	go run .    # in this directory, or make docs in the root
//
// It is a module of its own, so that the dependencies of a drawing library are not
// weir's.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
)

func main() {
	log.SetFlags(0)
	pictures, err := drawAll(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range pictures {
		if err := os.WriteFile(p.file, p.svg, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// A picture is a file beside this one.
type picture struct {
	file string
	alt  string // what it shows, for who does not see it
	svg  []byte
}

// link is what shows p in docs/algorithms.md.
func (p picture) link() string { return fmt.Sprintf("![%s](charts/%s)", p.alt, p.file) }

// drawAll draws one picture for each algorithm, and the one of them all.
func drawAll(ctx context.Context) ([]picture, error) {
	var pictures []picture
	var plays []play
	for _, s := range subjects {
		p, err := playTrace(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.title(), err)
		}
		plays = append(plays, p)
		drawn, err := drawTimeline(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.title(), err)
		}
		pictures = append(pictures, drawn)
	}
	edge, err := drawEdge(plays)
	return append(pictures, edge), err
}
