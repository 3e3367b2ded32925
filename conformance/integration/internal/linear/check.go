package linear

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/anishathalye/porcupine"
)

// maxSteps bounds the check of a group of requests. A group has about 90 requests, and needs
// a few hundred steps. In a history with a fault, it has up to some thousand.
const maxSteps = 1 << 20

// ErrNotLinearizable is the error of a history that is not linearizable.
var ErrNotLinearizable = errors.New("the history is not linearizable")

// ErrUnchecked is the error of a history whose check needs too many steps, so nobody knows
// whether it is linearizable.
var ErrUnchecked = errors.New("the check of the history needs too many steps")

// Check returns nil if h is linearizable. Otherwise it draws the requests that share the
// failing keys in a file in dir. The error is [ErrNotLinearizable], or [ErrUnchecked], which
// leaves no file. Its text has the seed, and the path of the file.
func (h *History) Check(dir string) error { return h.check(dir, maxSteps) }

func (h *History) check(dir string, steps int) error {
	for _, ops := range groups(h.ops) {
		c := &checker{left: steps}
		result := porcupine.CheckOperationsTimeout(c.model(), ops, 0)
		in := ops[0].Input.(input)
		switch {
		case c.exhausted || result == porcupine.Unknown:
			return fmt.Errorf("seed %d, %d requests of group %q: %w: it gave up after %d", h.Seed, len(ops), in.group(), ErrUnchecked, steps)
		case result == porcupine.Illegal:
			path := filepath.Join(dir, fmt.Sprintf("history-%d.html", h.Seed))
			text := "it is drawn in " + path
			if err := draw(ops, path); err != nil {
				text = fmt.Sprintf("it could not be drawn: %v", err)
			}
			return fmt.Errorf("seed %d, %d requests of group %q: %w: %s", h.Seed, len(ops), in.group(), ErrNotLinearizable, text)
		}
	}
	return nil
}

// draw writes a picture of ops, which are not linearizable, to the file at path.
func draw(ops []porcupine.Operation, path string) error {
	model := (&checker{left: -1}).model()
	_, info := porcupine.CheckOperationsVerbose(model, ops, 0)
	return porcupine.VisualizePath(model, info, path)
}
