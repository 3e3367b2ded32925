-- concurrency: leases, each with a name and the time at which it expires.
--
-- $key1  a sorted set of "c2 NAME", whose score is when the lease expires, in microseconds since the
--        Unix epoch
-- $live  leases that have not expired
-- $last  when the last of all expires, 0 if there is none
-- $back  when a denied request passes, 0 if it is allowed or never passes
-- $held  when the lease named $text expires, 0 if it is not held
--
-- A lease that expires now has expired, whether or not it is still in the set. Each new lease removes
-- some expired ones, so the set never has more members than the limit, or than it had when the limit
-- was lowered. So a clock that steps back revives no more leases than the limit.

-- read
local limit = $limit
$name = 'c2 ' .. $text
local newest = redis.pcall('ZRANGE', $key1, '-1', '-1', 'WITHSCORES')
if newest.err then
  if string.find(newest.err, 'WRONGTYPE', 1, true) then return $foreign1 end
  return newest
end
if newest[1] then
  $last = newest[2] + 0
  if string.sub(newest[1], 1, 3) ~= 'c2 ' or $last < 0 or $last > 9007199254740991 or $last % 1 ~= 0 then
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
redis.call('PEXPIRE', $key1, string.format('%d', (expires - now + 999) / 1000 + slack))

-- refund
if redis.call('ZREM', $key1, $name) == 1 and $held > 0 then $gave = 1 end
