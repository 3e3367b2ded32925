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
-- While refunds have moved what lay behind them, as if they had not: see the refund.
local late = at
if note and now < note[3] + 0 then
  late = math.min(at + note[1], 9007199254740991)
  kept = math.min(math.max(note[3] + 0, late + 1), 9007199254740991)
  keep, kept = string.format('%d %d %d 0', note[1] + 0, note[2] + 0, kept), kept - now
end
local charge, life = string.format('%d 0 %d 0', late, inc), at - now

-- refund
-- A note "MOVED FROM UNTIL 0" says that charges which end later than FROM end MOVED
-- microseconds sooner than their markers say, as refunds have moved them; it matters
-- until UNTIL. What is given back is what of the charge has not come back by itself,
-- without what was reserved behind it while somebody waits: a newcomer would go
-- beside that one.
local late, moved = was[1] + 0, 0
if note and now < note[3] + 0 then
  moved = note[1] + 0
  if late > note[2] + 0 then late = late - moved end
end
local back = math.min(late - now, was[3] + 0)
local waits = tat - ARGV[1] - ARGV[2] > now
if waits and tat > late then back = back - (tat - late) end
back = math.min(back, tat - now)
if back > 0 and moved + back <= 2251799813685248 then
  gave = 1
  local from, ends = late - back, tat + 1
  if moved > 0 then from, ends = math.min(from, note[2] + 0), math.max(ends, note[3] + 0) end
  keep, kept = string.format('%d %d %d 0', moved + back, math.max(from, 0), ends), ends - now
  redis.call('SET', KEYS[1], string.format('g1 %d', tat - back), 'KEEPTTL')
end
