-- tokenbucket: tokens come back from a time on at which the bucket was full, DEN of them
-- in each period of NUM microseconds: one by one, or all at its end.
--
-- KEYS[1]  string "t1 ANCHOR MISSING": when a period began, in microseconds since the
--          epoch, and the tokens missing then with those taken since
-- ARGV[1]  room: so many tokens may be missing before; -1: never
-- ARGV[2]  cost, which is missing after
-- ARGV[3]  NUM: length of a period, in microseconds
-- ARGV[4]  DEN: tokens that come back in a period
-- ARGV[5]  DEN if they come back one by one, 0 if all at once
-- ARGV[6]  wait: tokens that come back within so many microseconds count as if back
-- state    anchor, missing: of the period under way, now and 0 of a full bucket

-- check
local v = redis.pcall('GET', KEYS[1])
local anchor, missing, cost, back = 0, 0, ARGV[2] + 0
if v then
  if v.err then
    if string.find(v.err, 'WRONGTYPE', 1, true) then return redis.error_reply('WEIRFOREIGN 1') end
    return v
  end
  local a, m = string.match(v, '^t1 (%d+) (%d+)$')
  if not a then return redis.error_reply('WEIRFOREIGN 1') end
  anchor, missing = a + 0, m + 0
end
do
  local num, past = ARGV[3] + 0, now - anchor
  if past < 0 then past = 0 end
  local part = past % num
  local whole = (past - part) / num * ARGV[4] -- above 2^53 not exact, nor so many missing
  back = part * ARGV[5]
  back = (back - back % num) / num
  if whole + back >= missing then
    anchor, missing, back = now, 0, 0
  elseif past >= num then
    anchor, missing = anchor + past - part, missing - whole
  end
  if ARGV[6] ~= '0' then
    past = now + ARGV[6] - anchor
    if past < 0 then past = 0 end
    part = past % num
    back = part * ARGV[5]
    back = (back - back % num) / num + (past - part) / num * ARGV[4]
  end
end
local ok = missing - back <= ARGV[1] + 0

-- commit
local owed = missing + cost
local rest = owed % ARGV[4]
local full = anchor - now + (owed - rest) / ARGV[4] * ARGV[3]
if rest > 0 then full = full + (ARGV[5] == '0' and ARGV[3] or rest * ARGV[3] / ARGV[4]) end
redis.call('SET', KEYS[1], string.format('t1 %d %d', anchor, owed),
  'PX', string.format('%d', (full + 1000) / 1000 + slack))

-- upto
local fit = ARGV[1] + 1
if back < missing then fit = fit - (missing - back) end

-- take
cost = take

-- charge
local charge, life = string.format('%d %d %d 0', anchor, owed, cost), full + 1

-- refund
-- What would be missing of it still if nobody had taken more; less, while somebody
-- waits, what was taken behind it: a newcomer would go beside that one.
local lack, past = missing - back, math.max(now - was[1], 0)
local part = past % ARGV[3]
local left = part * ARGV[5]
left = was[2] - (past - part) / ARGV[3] * ARGV[4] - (left - left % ARGV[3]) / ARGV[3]
local give = math.min(left, was[3] + 0)
if lack > ARGV[1] + 1 then give = give - math.max(lack - left, 0) end
if give > 0 and give < lack then
  gave = 1
  local owed = missing - give
  local rest = owed % ARGV[4]
  local full = anchor - now + (owed - rest) / ARGV[4] * ARGV[3]
  if rest > 0 then full = full + (ARGV[5] == '0' and ARGV[3] or rest * ARGV[3] / ARGV[4]) end
  redis.call('SET', KEYS[1], string.format('t1 %d %d', anchor, owed),
    'PX', string.format('%d', (full + 1000) / 1000 + slack))
elseif give > 0 and lack > 0 then
  gave = 1
  redis.call('UNLINK', KEYS[1])
end
