-- fixedwindow: a count that starts again with each window.
--
-- KEYS[1]  string "f1 EDGE COUNT": when the window ends, in microseconds since the epoch
-- ARGV[1]  room: the count may be at most this before; -1: never
-- ARGV[2]  length of a window, in microseconds
-- ARGV[3]  cost, which the count grows by
-- ARGV[4]  a window starts at a multiple of this many microseconds: 1, or its length
-- state    edge, count: of the current window; count is 0 in one that nobody used

-- check
local v = redis.pcall('GET', KEYS[1])
local edge, count = 0, 0
if v then
  if v.err then
    if string.find(v.err, 'WRONGTYPE', 1, true) then return redis.error_reply('WEIRFOREIGN 1') end
    return v
  end
  local e, c = string.match(v, '^f1 (%d+) (%d+)$')
  if not e then return redis.error_reply('WEIRFOREIGN 1') end
  edge, count = e + 0, c + 0
end
if now >= edge then edge, count = now - now % ARGV[4] + ARGV[2], 0 end
local ok, cost = count <= ARGV[1] + 0, ARGV[3] + 0

-- commit
redis.call('SET', KEYS[1], string.format('f1 %d %d', edge, count + cost),
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
  redis.call('SET', KEYS[1], string.format('f1 %d %d', edge, math.max(count - was[2], 0)), 'KEEPTTL')
end
