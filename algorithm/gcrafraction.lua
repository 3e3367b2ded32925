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
local inc, increm = ARGV[3], ARGV[4]

-- commit
at, part = at + inc, part + increm
if part >= ARGV[5] + 0 then at, part = at + 1, part - ARGV[5] end
redis.call('SET', KEYS[1], string.format('g1 %d %d %s', at, part, ARGV[5]),
  'PX', string.format('%d', (at - now + 1000) / 1000 + slack))

-- upto
-- At most 2^53 / NUM tokens, NUM / DEN being the interval, so that no product is
-- beyond what is exact.
local num = ARGV[3] * ARGV[5] + ARGV[4]
local most = (9007199254740991 - 9007199254740991 % num) / num
local whole, rest, fit = ARGV[1] + ARGV[3] - (at - now), ARGV[2] + ARGV[4] - part, most
if rest >= ARGV[5] + 0 then whole, rest = whole + 1, rest - ARGV[5] end
if rest < 0 then whole, rest = whole - 1, rest + ARGV[5] end
if whole < 0 then
  fit = 0
elseif most == 0 then
  fit = ok and 1 or 0
elseif whole < (9007199254740991 - ARGV[5]) / ARGV[5] then
  fit = whole * ARGV[5] + rest
  fit = math.min((fit - fit % num) / num, most)
end

-- take
if take > 1 then
  local all = (ARGV[3] * ARGV[5] + ARGV[4]) * take
  increm = all % ARGV[5]
  inc = (all - increm) / ARGV[5]
end

-- charge
-- As in gcra.lua.
local late = at
if note and now < note[3] + 0 then
  late = math.min(at + note[1], 9007199254740991)
  kept = math.min(math.max(note[3] + 0, late + 1), 9007199254740991)
  keep, kept = string.format('%d %d %d 0', note[1] + 0, note[2] + 0, kept), kept - now
end
local charge, life = string.format('%d %d %d %d', late, part, inc + 0, increm + 0), at - now + 1

-- refund
-- As in gcra.lua, in microseconds and parts: the smaller of what is still ahead of
-- now and what was taken, less what was reserved behind it while somebody waits.
local den, span, spanrem = ARGV[5] + 0, ARGV[1] + ARGV[3], ARGV[2] + ARGV[4]
if spanrem >= den then span, spanrem = span + 1, spanrem - den end
local late, laterem, moved = was[1] + 0, was[2] + 0, 0
local back, backrem = was[3] + 0, was[4] + 0
if laterem >= den then laterem = 0 end
if backrem >= den then backrem = 0 end
if note and now < note[3] + 0 then
  moved = note[1] + 0
  if late > note[2] + 0 then late = late - moved end
end
if late - now < back or late - now == back and laterem < backrem then back, backrem = late - now, laterem end
local waits = tat - span > now or tat - span == now and rem > spanrem
local behind = tat > late or tat == late and rem > laterem
if waits and behind then back, backrem = back - (tat - late), backrem - (rem - laterem) end
if backrem < 0 then back, backrem = back - 1, backrem + den end
if backrem >= den then back, backrem = back + 1, backrem - den end
if tat - now < back or tat - now == back and rem < backrem then back, backrem = tat - now, rem end
local up = back
if backrem > 0 then up = back + 1 end
if up > 0 and moved + up <= 2251799813685248 then
  gave = 1
  local from, ends = late - up, tat + 1
  if moved > 0 then from, ends = math.min(from, note[2] + 0), math.max(ends, note[3] + 0) end
  keep, kept = string.format('%d %d %d 0', moved + up, math.max(from, 0), ends), ends - now
  back, backrem = tat - back, rem - backrem
  if backrem < 0 then back, backrem = back - 1, backrem + den end
  redis.call('SET', KEYS[1], string.format('g1 %d %d %s', back, backrem, ARGV[5]), 'KEEPTTL')
end
