-- concurrency: leases, each under a name and held until it expires, at most so many
-- at once.
--
-- A lease whose expiry is now or earlier is dead, whether or not it is still there.
-- A new one takes some dead ones with it, so that there are never more members than
-- the limit, or than there were when that was lowered: a clock that steps back
-- revives no more than fit.
--
-- KEYS[1]  sorted set: "c1 NAME" by the time at which the lease of that name expires,
--          in microseconds since the epoch
-- ARGV[1]  room: so many may be alive for the request to pass without being one of them;
--          -1: none
-- ARGV[2]  lease: how long one is held, in microseconds
-- ARGV[3]  "c1 NAME"; empty: of nobody
-- state    live, last, back, held: leases that are alive, when the last of all expires or 0, when
--          the request would pass or 0, when the lease of that name expires, 0 if it is not alive

-- check
local live, last, back, held = 0, 0, 0, 0
local newest = redis.pcall('ZRANGE', KEYS[1], '-1', '-1', 'WITHSCORES')
if newest.err then
  if string.find(newest.err, 'WRONGTYPE', 1, true) then return redis.error_reply('WEIRFOREIGN 1') end
  return newest
end
if newest[1] then
  last = tonumber(newest[2]) or -1
  if string.sub(newest[1], 1, 3) ~= 'c1 ' or last < 0 or last >= 9007199254740992 or last % 1 ~= 0 then
    return redis.error_reply('WEIRFOREIGN 1')
  end
  if last > now then
    live = redis.call('ZCOUNT', KEYS[1], string.format('(%d', now), '+inf')
    if ARGV[3] ~= '' then
      held = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[3]) or 0)
      if held <= now then held = 0 end
    end
    if held == 0 and ARGV[1] + 0 >= 0 and live > ARGV[1] + 0 then
      local rank = string.format('%d', -1 - ARGV[1])
      back = tonumber(redis.call('ZRANGE', KEYS[1], rank, rank, 'WITHSCORES')[2])
    end
  end
end
local ok = held > 0 or live <= ARGV[1] + 0

-- commit
do
  local expires = now + ARGV[2]
  if expires < held then expires = held end
  if newest[1] and live == 0 then redis.call('UNLINK', KEYS[1]) end
  redis.call('ZADD', KEYS[1], string.format('%d', expires), ARGV[3])
  if live > 0 and held == 0 then
    local dead = redis.call('ZCARD', KEYS[1]) - live - 1
    if dead > 0 then
      redis.call('ZREMRANGEBYRANK', KEYS[1], '0', string.format('%d', math.min(dead, 16) - 1))
    end
  end
  if expires < last then expires = last end
  redis.call('PEXPIRE', KEYS[1], string.format('%d', (expires - now + 999) / 1000 + slack))
end

-- refund
if redis.call('ZREM', KEYS[1], ARGV[3]) == 1 and held > 0 then gave = 1 end
