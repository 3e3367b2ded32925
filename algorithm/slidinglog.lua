-- slidinglog: one entry for each token, with the time at which it was taken.
--
-- An entry's text has its time, so that no read needs scores, which a server
-- formats in 17 digits, slowly, as it does numbers in arguments. NUMBER, in 8
-- digits, counts the tokens of one microsecond from 1, and keeps them apart and in
-- order. All of them are live when the last comes: they are at most as many as the
-- limit, and never more than 8 digits can count. No entry is older than the one
-- before it, whatever the clock does.
--
-- A short log, of a limit up to 5, is read as a whole. Of a longer one the newest
-- entry is read, and the others are counted, which costs as much as five reads.
--
-- KEYS[1]  sorted set: "l1 TIME NUMBER" by TIME, microseconds since the epoch
-- ARGV[1]  limit: so many entries may be live
-- ARGV[2]  cost: entries to add; limit + 1 for any that never fits
-- ARGV[3]  window, in microseconds
-- state    live, newest, back: entries that count (in a short log, at most 8), the time of the newest of all
--          or 0, when the request would pass or 0

-- check
local cost, window, short = ARGV[2] + 0, ARGV[3] + 0, ARGV[1] + 0 <= 5
local room = ARGV[1] - cost
local newest, at, live, back = 0, now, 0, 0
local log = redis.pcall('ZRANGE', KEYS[1], short and '-8' or '-1', '-1')
if log.err then
  if string.find(log.err, 'WRONGTYPE', 1, true) then return redis.error_reply('WEIRFOREIGN 1') end
  return log
end
if log[1] then
  local sub, n = string.sub, #log
  newest = string.match(log[n], '^l1 (%d+) ')
  if not newest then return redis.error_reply('WEIRFOREIGN 1') end
  newest = newest + 0
  if newest > now then at = newest end
  local after, oldest = at - window, newest
  if not short then
    live = redis.call('ZCOUNT', KEYS[1], string.format('(%d', after), '+inf')
  elseif newest > after then
    live = n
    while live > 1 do
      oldest = sub(log[n + 1 - live], 4, -10) + 0
      if oldest > after then break end
      live, oldest = live - 1, newest
    end
  end
  if live > room and room >= 0 then
    if not short then
      local rank = string.format('%d', -1 - room)
      oldest = sub(redis.call('ZRANGE', KEYS[1], rank, rank)[1], 4, -10)
    elseif live > room + 1 then
      oldest = sub(log[n - room], 4, -10)
    end
    back = oldest + window
  end
end
local ok = live <= room

-- commit
do
  if live > 0 then
    -- What has left is removed a few at a time.
    local dead, few = #log - live, 4
    if not short then dead, few = redis.call('ZCARD', KEYS[1]) - live, 16 end
    if dead >= few then
      redis.call('ZREMRANGEBYRANK', KEYS[1], '0', string.format('%d', math.min(dead, cost + few) - 1))
    end
  elseif newest > 0 then
    redis.call('UNLINK', KEYS[1])
  end
  local score = string.format('%d', at)
  if cost == 1 and at > newest then
    redis.call('ZADD', KEYS[1], score, 'l1 ' .. score .. ' 00000001')
  else
    local entries, number = {}, 0
    if at == newest then number = tonumber(string.sub(log[#log], -8), 10) or 0 end
    for i = 1, cost do
      entries[2 * i - 1], entries[2 * i] = score, string.format('l1 %s %08d', score, number + i)
    end
    redis.call('ZADD', KEYS[1], unpack(entries))
  end
  redis.call('PEXPIRE', KEYS[1], string.format('%d', (at + window - now + 999) / 1000 + slack))
end

-- upto
local fit = math.min(ARGV[1] - live, 1000)

-- take
cost = take

-- charge
local charge, life = string.format('%d %d 0 0', at, cost), at + window - now

-- refund
-- Entries of one microsecond are alike: the last of them go.
if was[1] + 0 > at - window then
  local score = string.format('%d', was[1])
  local these = math.min(redis.call('ZCOUNT', KEYS[1], score, score), was[2] + 0)
  if these > 0 then
    gave = 1
    local later = redis.call('ZCOUNT', KEYS[1], '(' .. score, '+inf')
    redis.call('ZREMRANGEBYRANK', KEYS[1], string.format('%d', -later - these), string.format('%d', -later - 1))
  end
end
