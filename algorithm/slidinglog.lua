-- slidinglog: one entry for each token, with the time at which it was taken.
--
-- An entry's text is a running number, so that tokens taken in one microsecond
-- stay apart. No entry is older than the one before it, whatever the clock does.
-- Arguments of calls are text: a server formats numbers in 17 digits, slowly.
--
-- KEYS[1]  sorted set: "l1 NUMBER" by microseconds since the epoch
-- ARGV[1]  room: so many entries may be live before; -1: never
-- ARGV[2]  the rank, from the newest, of the entry that must have left if there is no room
-- ARGV[3]  window, in microseconds
-- ARGV[4]  cost: entries to add
-- ARGV[5]  the TTL is renewed once in this many microseconds, and longer by as many
-- ARGV[6]  what has left is removed once in so many entries, at most so many and the cost
-- state    live, newest, back: entries that count, the newest of all or 0, when the request would pass or 0

-- check
local last = redis.pcall('ZRANGE', KEYS[1], '-1', '-1', 'WITHSCORES')
if last.err then
  if string.find(last.err, 'WRONGTYPE', 1, true) then return redis.error_reply('WEIRFOREIGN 1') end
  return last
end
local newest, at, live, back = 0, now, 0, 0
if last[1] then
  if not string.find(last[1], '^l1 %d+$') then return redis.error_reply('WEIRFOREIGN 1') end
  newest = last[2] + 0
  if newest > now then at = newest end
  live = redis.call('ZCOUNT', KEYS[1], string.format('(%d', at - ARGV[3]), '+inf')
end
local ok = live <= ARGV[1] + 0
if not ok and ARGV[1] ~= '-1' then
  back = redis.call('ZRANGE', KEYS[1], ARGV[2], ARGV[2], 'WITHSCORES')[2] + ARGV[3]
end

-- commit
local number = last[1] and tonumber(string.sub(last[1], 4), 10) or 0
if live == 0 and newest > 0 then
  redis.call('UNLINK', KEYS[1])
  number, newest = 0, 0
elseif number % ARGV[6] + ARGV[4] >= ARGV[6] + 0 then
  local dead = redis.call('ZCARD', KEYS[1]) - live
  if dead > 0 then
    redis.call('ZREMRANGEBYRANK', KEYS[1], '0', string.format('%d', math.min(dead, ARGV[4] + ARGV[6]) - 1))
  end
end
local score = string.format('%d', at)
if ARGV[4] == '1' then
  redis.call('ZADD', KEYS[1], score, string.format('l1 %016d', number + 1))
else
  local entries = {}
  for i = 1, ARGV[4] + 0 do
    entries[2 * i - 1], entries[2 * i] = score, string.format('l1 %016d', number + i)
  end
  redis.call('ZADD', KEYS[1], unpack(entries))
end
if newest < at - at % ARGV[5] then
  redis.call('PEXPIRE', KEYS[1], string.format('%d', (at + ARGV[3] + ARGV[5] - now + 999) / 1000 + slack))
end
