-- gcra, at an emission interval of whole microseconds and parts of one; gcra.lua is for
-- whole ones. The theoretical arrival time (TAT), when the bucket is full again, is kept as
-- microseconds and a remainder in parts of a denominator.
--
-- KEYS[1]  string "g1 TAT REM DEN", microseconds since the epoch, 0 <= REM < DEN; or as in gcra.lua
-- ARGV[1]  room: the TAT may be at most this many microseconds ahead; -1: never
-- ARGV[2]  and this many parts
-- ARGV[3]  increment of the TAT, in microseconds
-- ARGV[4]  and this many parts
-- ARGV[5]  DEN, the parts in a microsecond
-- state    tat, rem: the TAT before the commit, 0 0 for none

-- check
local v = redis.pcall('GET', KEYS[1])
local tat, rem = 0, 0
if v then
  if v.err then
    if string.find(v.err, 'WRONGTYPE', 1, true) then return redis.error_reply('WEIRFOREIGN 1') end
    return v
  end
  local t, more = string.match(v, '^g1 (%d+)(.*)$')
  if not t then return redis.error_reply('WEIRFOREIGN 1') end
  tat = t + 0
  if more ~= '' then
    local r, d = string.match(more, '^ (%d+) (%d+)$')
    if not r then return redis.error_reply('WEIRFOREIGN 1') end
    rem = r + 0
    if d ~= ARGV[5] and rem > 0 then tat, rem = tat + 1, 0 end
  end
end
local at, part = tat, rem
if at < now then at, part = now, 0 end
local over = at - now - ARGV[1]
local ok = over < 0 or over == 0 and part <= ARGV[2] + 0

-- commit
at, part = at + ARGV[3], part + ARGV[4]
if part >= ARGV[5] + 0 then at, part = at + 1, part - ARGV[5] end
redis.call('SET', KEYS[1], string.format('g1 %d %d %s', at, part, ARGV[5]),
  'PX', string.format('%d', (at - now + 1000) / 1000 + slack))
