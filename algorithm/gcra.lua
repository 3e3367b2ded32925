-- gcra: the generic cell rate algorithm, at an emission interval of whole microseconds.
-- The theoretical arrival time (TAT) is when the bucket is full again.
--
-- KEYS[1]  string "g1 TAT": microseconds since the epoch; or as in gcrafraction.lua
-- ARGV[1]  room: the TAT may be at most this many microseconds ahead; -1: never
-- ARGV[2]  increment of the TAT, in microseconds
-- state    tat: the TAT before the commit, 0 for none

-- check
local v = redis.pcall('GET', KEYS[1])
local tat = 0
if v then
  if v.err then
    if string.find(v.err, 'WRONGTYPE', 1, true) then return redis.error_reply('WEIRFOREIGN 1') end
    return v
  end
  local t, more = string.match(v, '^g1 (%d+)(.*)$')
  if not t then return redis.error_reply('WEIRFOREIGN 1') end
  tat = t + 0
  if more ~= '' then
    local r = string.match(more, '^ (%d+) %d+$')
    if not r then return redis.error_reply('WEIRFOREIGN 1') end
    if r ~= '0' then tat = tat + 1 end
  end
end
local at = tat
if at < now then at = now end
local ok = at - now <= ARGV[1] + 0

-- commit
at = at + ARGV[2]
redis.call('SET', KEYS[1], string.format('g1 %d', at),
  'PX', string.format('%d', (at - now + 1000) / 1000 + slack))
