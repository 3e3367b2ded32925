-- What a script may use: Lua 5.1 as every Redis and Valkey gives it to a script,
-- without what a script has no business with, such as print and loadstring.
stds.script = {
	read_globals = {
		"KEYS", "ARGV",
		"assert", "error", "ipairs", "next", "pairs", "pcall", "select", "tonumber", "tostring", "type", "unpack",
		redis = { fields = { "call", "pcall", "error_reply", "status_reply", "sha1hex" } },
		math = { fields = { "abs", "ceil", "floor", "fmod", "huge", "max", "min", "modf" } },
		string = {
			fields = {
				"byte", "char", "find", "format", "gmatch", "gsub", "len", "lower", "match", "rep", "reverse", "sub",
				"upper",
			},
		},
		table = { fields = { "concat", "insert", "remove", "sort", "unpack" } }, -- Lua 5.4 has table.unpack
	},
}
std = "script"

-- The lines that list every key or local of a decision grow with its rules.
max_line_length = false

-- Scripts are composed from parts: a verb may leave some of what a part sets unused, and
-- blocks of several parts declare the same names.
ignore = { "211", "221", "231", "241", "311", "411", "412", "421", "422", "431", "432", "542" }
