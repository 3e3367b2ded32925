package lualocals

import "testing"

func TestCount(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		lua  string
		want int
	}{
		{"", 0},
		{"local a local b, c = 1, 2", 3},
		{"-- local a\nlocal b = 'local c' .. \"local d\"", 1},
		{"do local a, b end do local c end", 2},
		{"local a do local b do local c end end local d", 3},
		{"if a then local b elseif c then local d, e else local f end local g", 2},
		{"for i = 1, 2 do local a end local b", 5},
		{"for k, v in pairs(t) do local a end", 6},
		{"while x do local a break end repeat local b, c until x local d", 2},
		{"local function f(a, b) local c end local g", 3},
		{"local a, b, c, d local f = function() local e end", 5},
		{"x.local_ = 1 localize()", 0},
		{"local f = function(...) local a end", 1},
		{"local a = 'it\\'s local b' local c = \"\\\\\" local d -- \\\nlocal e", 4},
	} {
		if got := count(tt.lua); got != tt.want {
			t.Errorf("%q has %d locals at once, want %d", tt.lua, got, tt.want)
		}
	}
}
