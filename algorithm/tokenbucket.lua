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
-- While refunds have moved what lay behind them, as if they had not: see the refund.
local marked = owed
if note and now < note[4] + 0 then
  marked = math.min(owed + note[1], 9007199254740991)
  local some = marked % ARGV[4]
  kept = anchor + (marked - some) / ARGV[4] * ARGV[3] + 1
  if some > 0 then kept = kept + (ARGV[5] == '0' and ARGV[3] or math.ceil(some * ARGV[3] / ARGV[4])) end
  kept = math.min(math.max(note[4] + 0, kept), 9007199254740991)
  keep, kept = string.format('%d %d %d %d', note[1] + 0, note[2] + 0, note[3] + 0, kept), kept - now
end
local charge, life = string.format('%d %d %d 0', anchor, marked, cost), full + 1

-- refund
-- A note "MOVED FROM ANCHOR UNTIL" says that charges behind which more is missing than
-- FROM, since ANCHOR, lack MOVED tokens less than their markers say, as refunds have
-- moved them; it matters until UNTIL. What is given back is what would be missing of
-- the charge still if nobody had taken more; less, while somebody waits, what was taken
-- behind it: a newcomer would go beside that one.
local function returned(since)
  local past = math.max(now - since, 0)
  local part = past % ARGV[3]
  local some = part * ARGV[5]
  return (past - part) / ARGV[3] * ARGV[4] + (some - some % ARGV[3]) / ARGV[3]
end
local lack, owed, moved, from = missing - back, was[2] + 0, 0, 0
local left = owed - returned(was[1])
if note and now < note[4] + 0 then
  moved, from = note[1] + 0, note[2] - returned(note[3])
  if left > from then owed, left = owed - moved, left - moved end
end
local give = math.min(left, was[3] + 0)
if lack > ARGV[1] + 1 then give = give - math.max(lack - left, 0) end
give = math.min(give, lack)
if give > 0 and moved + give <= 2251799813685248 then
  gave = 1
  local rest = missing % ARGV[4]
  local full = anchor + (missing - rest) / ARGV[4] * ARGV[3] + 1
  if rest > 0 then full = full + (ARGV[5] == '0' and ARGV[3] or math.ceil(rest * ARGV[3] / ARGV[4])) end
  local first, since, ends = math.max(owed - give, 0), was[1] + 0, math.min(full, 9007199254740991)
  if moved > 0 then
    ends = math.max(ends, note[4] + 0)
    if from < left - give then first, since = note[2] + 0, note[3] + 0 end
  end
  keep, kept = string.format('%d %d %d %d', moved + give, first, since, ends), ends - now
  if give == lack then
    redis.call('UNLINK', KEYS[1])
  else
    redis.call('SET', KEYS[1], string.format('t1 %d %d', anchor, missing - give), 'KEEPTTL')
  end
end
