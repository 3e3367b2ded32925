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
local ok, inc = at - now <= ARGV[1] + 0, ARGV[2] + 0

-- commit
at = at + inc
redis.call('SET', KEYS[1], string.format('g1 %d', at),
  'PX', string.format('%d', (at - now + 1000) / 1000 + slack))

-- upto
local fit = ARGV[1] + inc - (at - now)
fit = (fit - fit % inc) / inc

-- take
inc = inc * take

-- charge
local charge, life = string.format('%d 0 %d 0', at, inc), at - now

-- refund
-- What has not come back by itself, without what was reserved behind it while
-- somebody waits: a newcomer would go beside that one.
local back = math.min(was[1] - now, was[3] + 0)
if tat - ARGV[1] - ARGV[2] > now then back = back - math.max(tat - was[1], 0) end
back = math.min(back, tat - now)
if back > 0 then
  gave = 1
  redis.call('SET', KEYS[1], string.format('g1 %d', tat - back),
    'PX', string.format('%d', (tat - back - now + 1000) / 1000 + slack))
end
