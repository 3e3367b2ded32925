-- A fake Redis server for the scripts, in Lua 5.1 and Lua 5.4. It keeps strings, lists and sorted
-- sets. Its clock stands still, so no key expires. A command that no script calls is an error, and
-- so are an argument that is not a string, and an integer that is not written as one.
--
-- This file returns a table:
--
-- at        the server's clock, in microseconds since the Unix epoch
-- data      what each key holds: text, list or set, and ttl in milliseconds
-- eval      runs a script: eval(text, keys, args) returns its reply, or nil and the error
-- show      show(reply) returns the text of a reply, in one line
-- contents  contents() returns a line of text for each key

local server = { at = 0, data = {} }

local wrongtype = 'WRONGTYPE Operation against a key holding the wrong kind of value'

-- fail ends a command with an error reply.
local function fail(text) error({ err = text }, 0) end

-- get returns what a key holds, or nil. field is text, list or set.
local function get(key, field)
  local value = server.data[key]
  if value and not value[field] then fail(wrongtype) end
  return value
end

local function integer(text)
  if not string.find(text, '^-?%d+$') then fail('ERR value is not an integer or out of range: ' .. text) end
  return tonumber(text)
end

-- slice returns the part of list from the rank first to the rank last. Negative ranks count from
-- the end.
local function slice(list, first, last)
  local from, to = integer(first), integer(last)
  if from < 0 then from = math.max(#list + from, 0) end
  if to < 0 then to = #list + to end
  local part = {}
  for i = from + 1, math.min(to + 1, #list) do part[#part + 1] = list[i] end
  return part
end

-- find returns the index of a member of a set, or nil.
local function find(set, text)
  for i = 1, #set do
    if set[i].text == text then return i end
  end
end

-- drop deletes a key whose list or set is empty.
local function drop(key, list)
  if #list == 0 then server.data[key] = nil end
end

local commands = {}

function commands.TIME()
  local usec = server.at % 1000000
  return { string.format('%d', (server.at - usec) / 1000000), string.format('%d', usec) }
end

function commands.GET(key)
  local value = get(key, 'text')
  return value and value.text or false
end

function commands.MGET(...)
  local texts = {}
  for i, key in ipairs({ ... }) do
    local value = server.data[key]
    texts[i] = value and value.text or false
  end
  return texts
end

function commands.SET(key, text, option, life)
  local value = { text = text }
  if option == 'KEEPTTL' then
    value.ttl = server.data[key] and server.data[key].ttl
  elseif option == 'PX' and integer(life) > 0 then
    value.ttl = life
  else
    fail('ERR syntax error')
  end
  server.data[key] = value
  return { ok = 'OK' }
end

function commands.EXISTS(...)
  local n = 0
  for _, key in ipairs({ ... }) do
    if server.data[key] then n = n + 1 end
  end
  return n
end

function commands.UNLINK(...)
  local n = commands.EXISTS(...)
  for _, key in ipairs({ ... }) do server.data[key] = nil end
  return n
end

function commands.PEXPIRE(key, life)
  if integer(life) <= 0 or not server.data[key] then fail('ERR invalid expire time') end
  server.data[key].ttl = life
  return 1
end

function commands.RPUSH(key, text)
  local value = get(key, 'list') or { list = {} }
  server.data[key] = value
  value.list[#value.list + 1] = text
  return #value.list
end

function commands.LINDEX(key, rank)
  local value = get(key, 'list')
  return value and slice(value.list, rank, rank)[1] or false
end

function commands.LRANGE(key, first, last)
  local value = get(key, 'list')
  return value and slice(value.list, first, last) or {}
end

local function earlier(a, b)
  if a.score ~= b.score then return a.score < b.score end
  return a.text < b.text
end

function commands.ZADD(key, ...)
  local value, words, added = get(key, 'set') or { set = {} }, { ... }, 0
  server.data[key] = value
  for i = 1, #words, 2 do
    local score, text = integer(words[i]), words[i + 1]
    local at = find(value.set, text)
    if not at then added, at = added + 1, #value.set + 1 end
    value.set[at] = { text = text, score = score }
  end
  table.sort(value.set, earlier)
  return added
end

function commands.ZCARD(key)
  local value = get(key, 'set')
  return value and #value.set or 0
end

function commands.ZCOUNT(key, after, last)
  local value, n = get(key, 'set') or { set = {} }, 0
  if string.sub(after, 1, 1) ~= '(' or last ~= '+inf' then fail('ERR the fake counts only from (N to +inf') end
  after = integer(string.sub(after, 2))
  for _, member in ipairs(value.set) do
    if member.score > after then n = n + 1 end
  end
  return n
end

-- number returns a score as a server writes it.
local function number(score)
  if score == math.huge then return 'inf' elseif score == -math.huge then return '-inf' end
  return string.format('%.17g', score)
end

function commands.ZRANGE(key, first, last, option)
  local value, texts = get(key, 'set') or { set = {} }, {}
  for _, member in ipairs(slice(value.set, first, last)) do
    texts[#texts + 1] = member.text
    if option == 'WITHSCORES' then texts[#texts + 1] = number(member.score) end
  end
  return texts
end

function commands.ZSCORE(key, text)
  local value = get(key, 'set')
  local at = value and find(value.set, text)
  return at and number(value.set[at].score) or false
end

function commands.ZREM(key, ...)
  local value, n = get(key, 'set'), 0
  if not value then return 0 end
  for _, text in ipairs({ ... }) do
    local at = find(value.set, text)
    if at then
      table.remove(value.set, at)
      n = n + 1
    end
  end
  drop(key, value.set)
  return n
end

function commands.ZREMRANGEBYRANK(key, first, last)
  local value = get(key, 'set') or { set = {} }
  local members = slice(value.set, first, last)
  for _, member in ipairs(members) do table.remove(value.set, find(value.set, member.text)) end
  drop(key, value.set)
  return #members
end

local redis = {}

function redis.call(name, ...)
  local words = { ... }
  for i = 1, select('#', ...) do
    if type(words[i]) ~= 'string' then fail(name .. ': argument ' .. i .. ' is a ' .. type(words[i])) end
  end
  return (commands[name] or fail('ERR the fake has no command ' .. name))(...)
end

function redis.pcall(...)
  local ok, reply = pcall(redis.call, ...)
  if not ok and type(reply) ~= 'table' then error(reply, 0) end -- a defect of the fake
  return reply
end

function redis.error_reply(text) return { err = text } end

-- As on a server, a script that reads an unknown global fails. Lua 5.4 has no unpack.
local globals = setmetatable({
  redis = redis, string = string, math = math, table = table, unpack = unpack,
  assert = assert, error = error, ipairs = ipairs, next = next, pairs = pairs, pcall = pcall, select = select,
  tonumber = tonumber, tostring = tostring, type = type,
}, { __index = function(_, name) error('unknown global ' .. name, 2) end })

local script = setmetatable({}, {
  __index = globals,
  __newindex = function(_, name) error('a script sets the global ' .. name, 2) end,
})

local chunks = {}

-- compile returns the function of a script.
local function compile(text)
  if not setfenv then return assert(load(text, 'script', 't', script)) end -- Lua 5.4
  return setfenv(assert(loadstring(text, 'script')), script)
end

function server.eval(text, keys, args)
  chunks[text] = chunks[text] or compile(text)
  rawset(script, 'KEYS', keys)
  rawset(script, 'ARGV', args)
  local ok, reply = pcall(chunks[text])
  if ok then return reply end
  return nil, tostring(type(reply) == 'table' and reply.err or reply)
end

-- quote returns text without spaces and control characters.
local function quote(text)
  return (string.gsub(text, '[^%w;:._{}-]', function(c) return string.format('\\%03d', string.byte(c)) end))
end

-- show returns the text of a reply. A reply is text, an error, or a list of texts and nil. A number
-- that Lua 5.4 keeps as a float is an error, because a server could send another text for it.
local function show(reply)
  if type(reply) == 'string' then return 's' .. quote(reply) end
  if reply == false then return 'n' end
  if type(reply) == 'number' then
    if math.type and math.type(reply) ~= 'integer' then error('the reply is the float ' .. reply, 0) end
    return string.format('i%d', reply)
  end
  if reply.err then return 'e' .. quote(reply.err) end
  local texts = {}
  for i = 1, #reply do texts[i] = show(reply[i]) end
  return table.concat(texts, ' ')
end
server.show = show

function server.contents()
  local lines = {}
  for key, value in pairs(server.data) do
    local words = { 'key', quote(key), value.ttl or 'none' }
    if value.text then words[4] = 's' .. quote(value.text) end
    for _, text in ipairs(value.list or {}) do words[#words + 1] = 'l' .. quote(text) end
    for _, member in ipairs(value.set or {}) do words[#words + 1] = 'z' .. quote(member.text) .. '=' .. number(member.score) end
    lines[#lines + 1] = table.concat(words, ' ')
  end
  table.sort(lines)
  return lines
end

return server
