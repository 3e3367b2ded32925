package integration

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// luaMutants returns the errors of testdata/luamutants.txt: in every script of one rule of the kind,
// or of every kind if it is *, wrong replaces old.
func luaMutants(t *testing.T) (all []struct{ kind, old, wrong string }) {
	t.Helper()
	text, err := os.ReadFile("testdata/luamutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.ReplaceAll(strings.TrimSuffix(line, "\n"), `\n`, "\n"), "\t")
		if len(cells) == 3 {
			all = append(all, struct{ kind, old, wrong string }{cells[0], cells[1], cells[2]})
		} else if !strings.HasPrefix(line, "#") {
			t.Fatalf("%q: it must have three cells", line)
		}
	}
	return all
}

// TestLuaMutants checks that the cases of TestForms find every mutant.
func TestLuaMutants(t *testing.T) {
	notLight(t)
	notShort(t)
	t.Parallel()
	server := newFormServer(t)
	cases := formCases
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 22))
		for _, k := range formKinds(r) {
			cases = append(cases, k.history(r))
		}
	}
	for _, m := range luaMutants(t) {
		t.Run(m.kind+" "+m.old+" → "+m.wrong, func(t *testing.T) {
			t.Parallel()
			mutated := map[string]bool{} // scripts that have the text, by SHA-1
			for _, c := range cases {
				uses := false
				for _, call := range c.calls {
					p := program(call.limit)
					s := p.Script(call.verb)
					has, ok := mutated[s.SHA()]
					if !ok {
						has = strings.Contains(s.Lua(), m.old) && (m.kind == "*" || m.kind == p.Name())
						mutated[s.SHA()] = has
					}
					uses = uses || has
				}
				if uses && server.run(c, m.old, m.wrong) != nil {
					return
				}
			}
			t.Errorf("not found, among %d scripts", len(mutated))
		})
	}
}
