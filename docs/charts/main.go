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
	charts, err := all(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range charts {
		if err := os.WriteFile(c.file+".svg", c.draw(), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// link is the line of the page that shows c.
func (c chart) link() string {
	dir := "docs/charts"
	if c.page != "README.md" {
		dir = "../charts"
	}
	return fmt.Sprintf("![%s](%s/%s.svg)", c.alt, dir, c.file)
}

// all returns one chart for each setup, one of all setups, one of periods of the calendar, one of
// two rules, and one of an outage.
func all(ctx context.Context) ([]chart, error) {
	var charts []chart
	var simulations []simulation
	for _, s := range setups {
		p, err := simulateSetup(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.title(), err)
		}
		simulations, charts = append(simulations, p), append(charts, timeline(p))
	}
	periods, err := calendars(ctx)
	if err != nil {
		return nil, err
	}
	rules, err := twoRules(ctx)
	return append(charts, atEdge(simulations), periods, rules, duringOutage()), err
}
