-- slidingcounter: two counts, of this window and of the one before, which weighs
-- as much as of it lies within one window's length of now.
--
-- The window before weighs by steps: whole microseconds if a window has at most
-- 2^20, longer ones else. What it weighs is rounded up.
--
-- KEYS[1]  string "s1 START COUNT BEFORE": when this window began, in microseconds
--          since the epoch, its count, and that of the window before
-- ARGV[1]  room: so much may be used before; -1: never
-- ARGV[2]  length of a window, in microseconds
-- ARGV[3]  length of a step, in microseconds
-- ARGV[4]  steps in a window
-- ARGV[5]  cost, which the count grows by
-- state    start, count, before: of the current window

-- check
local v = redis.pcall('GET', KEYS[1])
local start, count, before = 0, 0, 0
if v then
  if v.err then
    if string.find(v.err, 'WRONGTYPE', 1, true) then return redis.error_reply('WEIRFOREIGN 1') end
    return v
  end
  local s, c, b = string.match(v, '^s1 (%d+) (%d+) (%d+)$')
  if not s then return redis.error_reply('WEIRFOREIGN 1') end
  start, count, before = s + 0, c + 0, b + 0
  if count > 4294967296 or before > 4294967296 then return redis.error_reply('WEIRFOREIGN 1') end
end
local past = now - start
if past >= 2 * ARGV[2] then
  start, count, before = now - now % ARGV[2], 0, 0
  past = now - start
elseif past >= ARGV[2] + 0 then
  before = count
  start, count, past = start + ARGV[2], 0, past - ARGV[2]
end
local weight = 0
if before > 0 then
  local left = ARGV[4] + 0
  if past > 0 then left = left - (past - past % ARGV[3]) / ARGV[3] end
  weight = before * left
  local rest = weight % ARGV[4]
  weight = (weight - rest) / ARGV[4]
  if rest > 0 then weight = weight + 1 end
end
local ok, cost = count + weight <= ARGV[1] + 0, ARGV[5] + 0

-- commit
redis.call('SET', KEYS[1], string.format('s1 %d %d %d', start, count + cost, before),
  'PX', string.format('%d', (start + 2 * ARGV[2] - now + 999) / 1000 + slack))

-- upto
local fit = ARGV[1] + 1 - count - weight

-- take
cost = take

-- charge
local charge, life = string.format('%d %d 0 0', start, cost), start + 2 * ARGV[2] - now

-- refund
-- What the key holds is left in its place: another limit may read it otherwise.
local begun, used, old = string.match(v or '', '^s1 (%d+) (%d+) (%d+)$')
local this = begun == was[1] and used ~= '0' and (start == was[1] + 0 or start - ARGV[2] == was[1] + 0)
if this then used = math.max(used - was[2], 0) end
if begun and not this and begun - ARGV[2] == was[1] + 0 and start == begun + 0 and old ~= '0' then
  this = true
  old = math.max(old - was[2], 0)
end
if this then
  gave = 1
  redis.call('SET', KEYS[1], string.format('s1 %d %d %d', begun + 0, used + 0, old + 0), 'KEEPTTL')
end
