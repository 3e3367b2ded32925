-- concurrency: leases, each with a name and the time at which it expires.
--
-- All times are in microseconds since the Unix epoch.
--
-- $key1  a sorted set of "c2 NAME". The score is the time at which the lease expires.
-- $live  the number of leases that have not expired
-- $last  the latest time at which a lease in the set expires, 0 if the set is empty
-- $back  when a denied request would be allowed, 0 if it is allowed or can never be
-- $held  when the lease named $text expires, 0 if it is not held
-- $name  the member of the lease named $text
--
-- A lease that expires at now has expired, even if it is still in the set. Before a lease is added, up to
-- 16 expired leases are removed, or all of them if no lease is live. So the set has at most $limit members,
-- or as many as it had when $limit was lowered. If the clock steps back, expired leases in the set are held
-- again, but no others.

-- read
local limit = $limit
$name = 'c2 ' .. $text
local newest = redis.pcall('ZRANGE', $key1, '-1', '-1', 'WITHSCORES')
if newest.err then
  if string.find(newest.err, 'WRONGTYPE', 1, true) then return $foreign1 end
  return newest
end
if newest[1] then
  -- Lua 5.4 does not parse an infinite score.
  local score = newest[2]
  if string.sub(newest[1], 1, 3) ~= 'c2 ' or score == 'inf' or score == '-inf' then return $foreign1 end
  $last = score + 0
  if $last < 0 or $last > 9007199254740991 or $last % 1 ~= 0 then
    return $foreign1
  end
  if $last > now then
    $live = redis.call('ZCOUNT', $key1, string.format('(%d', now), '+inf')
    if n == 1 and $text ~= '' then
      $held = (redis.call('ZSCORE', $key1, $name) or 0) + 0
      if $held <= now then $held = 0 end
    end
    local rank = limit - n
    if $held == 0 and $live > rank and rank >= 0 and not $renew then
      rank = string.format('%d', -1 - rank)
      $back = redis.call('ZRANGE', $key1, rank, rank, 'WITHSCORES')[2] + 0
    end
  end
end
if $held > 0 then $room = n elseif not $renew then $room = limit - $live end

-- write
-- Renewing never shortens a lease.
local expires = now + $lease
if expires < $held then expires = $held end
if $live == 0 then
  if $last > 0 then redis.call('UNLINK', $key1) end
elseif $held == 0 then
  local dead = redis.call('ZCARD', $key1) - $live
  if dead > 0 then redis.call('ZREMRANGEBYRANK', $key1, '0', string.format('%d', math.min(dead, 16) - 1)) end
end
redis.call('ZADD', $key1, string.format('%d', expires), $name)
if expires < $last then expires = $last end
local life = (expires - now + 999) / 1000
redis.call('PEXPIRE', $key1, string.format('%d', life - life % 1 + slack))

-- refund
if redis.call('ZREM', $key1, $name) == 1 and $held > 0 then $gave = 1 end
