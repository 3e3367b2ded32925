-- replay.lua FILE MODE: replays the calls of a history on the fake server of redis.lua. FILE
-- returns a table with the scripts and the calls: see run in lua_test.go.
--
-- Mode exact writes the reply and the contents after each call. Mode edges writes what each call
-- does if the keys hold other values than in the history, and if the clock is the server's.

local server = dofile('redis.lua')
local history = dofile(arg[1])

local function write(...) io.write(table.concat({ ... }, ' '), '\n') end

local function eval(call, args)
  local reply, err = server.eval(history.scripts[call.sha], call.keys, args or call.args)
  if err then return nil, err end
  return server.show(reply)
end

local function exact()
  for i, call in ipairs(history.steps) do
    server.at = call.at
    local reply, err = eval(call)
    write('step', string.format('%d', i - 1), reply or 'failed: ' .. err)
    for _, line in ipairs(server.contents()) do write(line) end
  end
end

local function copy(value)
  if type(value) ~= 'table' then return value end
  local new = {}
  for k, v in pairs(value) do new[k] = copy(v) end
  return new
end

-- Without 2^53-2: a rest of TAT that is larger than its parts, which no script writes, comes to more
-- than 2^53, and % is then not exact in Lua 5.1.
local numbers = {
  '0', '1', '999999999999999', '4503599627370495', '9007199254740991', '9007199254740992',
  '9223372036854775807', '9223372036854775808', '99999999999999999999',
}
local scores = { 0, 1, -1, 1.5, 9007199254740991, 9007199254740992, 1e300, 1 / 0, -1 / 0 }

-- variants calls try with each other value that a key could hold in place of value.
local function variants(value, try)
  local function texts(text, set)
    local from = 1
    while true do
      local first, last = string.find(text, '%d+', from)
      if not first then return end
      for _, n in ipairs(numbers) do set(string.sub(text, 1, first - 1) .. n .. string.sub(text, last + 1)) end
      from = last + 1
    end
  end
  try(nil)
  try({ text = 'x', ttl = '1000' })
  try({ text = '', ttl = '1000' })
  try({ list = { 'x' }, ttl = '1000' })
  try({ set = { { text = 'x', score = 1 } }, ttl = '1000' })
  if value.text then
    texts(value.text, function(text) try({ text = text, ttl = value.ttl }) end)
  elseif value.list then
    texts(value.list[#value.list], function(text)
      local new = copy(value)
      new.list[#new.list] = text
      try(new)
    end)
  else
    local last = #value.set
    texts(value.set[last].text, function(text)
      local new = copy(value)
      new.set[last].text = text
      try(new)
    end)
    for _, score in ipairs(scores) do
      local new = copy(value)
      for _, member in ipairs(new.set) do member.score = math.min(member.score, score) end
      new.set[last].score = score
      try(new)
    end
  end
end

-- onServerClock returns the arguments of a call without the caller's time.
local function onServerClock(call)
  local args, time = copy(call.args), string.format('%d', call.at)
  for i = 1, #args do
    if args[i] == time then
      args[i] = '0'
      if i == #args and not string.find(history.scripts[call.sha], "if usec ~= '0' then", 1, true) then args[i] = nil end
    end
  end
  return args
end

local function edges()
  for i, call in ipairs(history.steps) do
    server.at = call.at
    local before = server.data
    local function try(name, data, args)
      server.data = data
      local reply = eval(call, args)
      write('step', string.format('%d', i - 1), name, reply or 'failed')
      for _, line in ipairs(server.contents()) do write(line) end
    end
    try('on the clock of the server', copy(before), onServerClock(call))
    for _, key in ipairs(call.keys) do
      if before[key] then
        variants(before[key], function(value)
          local data = copy(before)
          data[key] = value
          try('with another value', data)
        end)
      end
    end
    server.data = before
    eval(call)
  end
end

if arg[2] == 'exact' then exact() else edges() end
