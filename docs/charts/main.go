// Command charts draws the pictures of the documentation: what each algorithm allows of the
// same traffic and what two rules decide together, which the library itself decides in virtual
// time, and an outage.
//
//	go run .    # in this directory, or make docs in the root
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

// A picture is a file in this directory.
type picture struct {
	file string
	alt  string // what it shows, for readers who do not see it
	svg  []byte
	page string // that shows it, from the root of the repository
}

// link is the line of the page that shows p.
func (p picture) link() string {
	dir := "docs/charts"
	if p.page != "README.md" {
		dir = "../charts"
	}
	return fmt.Sprintf("![%s](%s/%s)", p.alt, dir, p.file)
}

// drawAll draws one picture for each setup, one of all setups, one of periods of the calendar,
// one of two rules, and one of an outage.
func drawAll(ctx context.Context) ([]picture, error) {
	var pictures []picture
	var simulations []simulation
	for _, s := range setups {
		p, err := simulate(ctx, s)
		var drawn picture
		if err == nil {
			drawn, err = drawTimeline(p)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.title(), err)
		}
		simulations, pictures = append(simulations, p), append(pictures, drawn)
	}
	edge, err := drawEdge(simulations)
	if err != nil {
		return nil, err
	}
	pictures = append(pictures, edge)
	for _, draw := range []func(context.Context) (picture, error){drawCalendar, drawRules, drawOutage} {
		p, err := draw(ctx)
		if err != nil {
			return nil, err
		}
		pictures = append(pictures, p)
	}
	return pictures, nil
}
