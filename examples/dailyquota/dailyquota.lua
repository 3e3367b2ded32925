-- dailyquota: a count that starts again at midnight, where the caller lives.
--
-- What day it is, now says, the time of the step. The zone's clocks show now + OFFSET, and
-- OFFSET is another after each CHANGE. One day is added to all offsets: none is negative.
--
-- KEYS[1]  string "d1 EDGE COUNT": when the day ends, in microseconds since the epoch
-- ARGV[1]  room: the count may be at most this before; -1: never
-- ARGV[2]  cost, which the count grows by
-- ARGV[3]  "OFFSET CHANGE OFFSET CHANGE OFFSET …", in microseconds, at least three days apart
-- state    edge, count: of the day under way; count is 0 in one that nobody used

-- check
local v = redis.pcall('GET', KEYS[1])
local edge, count = 0, 0
if v then
  if v.err then
    if string.find(v.err, 'WRONGTYPE', 1, true) then return redis.error_reply('WEIRFOREIGN 1') end
    return v
  end
  local e, c = string.match(v, '^d1 (%d+) (%d+)$')
  if not e then return redis.error_reply('WEIRFOREIGN 1') end
  edge, count = e + 0, c + 0
end
if now >= edge then
  local offset, change, after = string.match(ARGV[3], '^%d+') + 0, 0, 0
  for at, to in string.gmatch(ARGV[3], ' (%d+) (%d+)') do
    if now < at + 0 then
      change, after = at + 0, to + 0
      break
    end
    offset = to + 0
  end
  local clock = now + offset
  clock = clock - clock % 86400000000 + 86400000000
  edge, count = clock - offset, 0
  if change > 0 and edge >= change then
    -- Clocks change first, or skip midnight.
    edge = math.max(change, clock - after)
  end
end
local ok, cost = count <= ARGV[1] + 0, ARGV[2] + 0

-- commit
redis.call('SET', KEYS[1], string.format('d1 %d %d', edge, count + cost),
  'PX', string.format('%d', (edge - now + 999) / 1000 + slack))

-- upto
local fit = ARGV[1] + 1 - count

-- take
cost = take

-- charge
local charge, life = string.format('%d %d 0 0', edge, cost), edge - now

-- refund
if edge == was[1] + 0 and count > 0 then
  gave = 1
  redis.call('SET', KEYS[1], string.format('d1 %d %d', edge, math.max(count - was[2], 0)), 'KEEPTTL')
end
