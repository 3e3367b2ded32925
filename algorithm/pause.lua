-- pause: the pauses of a key, each with a name and the time at which it ends.
--
-- All times are in microseconds since the Unix epoch.
--
-- $key1   a sorted set of "p1 NAME". The score is the time at which the pause ends. The member with
--         an empty name stands for all pauses that had no place of their own.
-- $until  the latest time at which a pause in the set ends, 0 if the set is empty
-- $text   the name of the pause that is added or ended
-- at      for write, the time at which the added pause ends
--
-- A pause that ends at now has ended, even if it is still in the set. A decision only reads. Without a
-- pause, that is one command, and its reply is a number, which costs a server less than an empty list.
-- Before a pause is added, all ended ones are removed. So the set has at most 64 members and the one
-- with an empty name. If the clock steps back, pauses that had ended and are in the set hold again.

-- read
$room = 9007199254740992
if redis.call('EXISTS', $key1) == 1 then
  local newest = redis.pcall('ZRANGE', $key1, '-1', '-1', 'WITHSCORES')
  if newest.err then
    if string.find(newest.err, 'WRONGTYPE', 1, true) then return $foreign1 end
    return newest
  end
  -- Lua 5.4 does not parse an infinite score.
  local score = newest[2]
  if string.sub(newest[1], 1, 3) ~= 'p1 ' or score == 'inf' or score == '-inf' then return $foreign1 end
  $until = score + 0
  if $until < 0 or $until > 9007199254740991 or $until % 1 ~= 0 then
    return $foreign1
  end
  if $until > now then $room = 0 end
end

-- write
local name, ends = 'p1 ' .. $text, at
local live = redis.call('ZCOUNT', $key1, string.format('(%d', now), '+inf')
local ended = redis.call('ZCARD', $key1) - live
local held = (redis.call('ZSCORE', $key1, name) or 0) + 0
if held <= now and live >= 64 then
  name = 'p1 '
  held = (redis.call('ZSCORE', $key1, name) or 0) + 0
end
if ends < held then ends = held end
if ended > 0 then redis.call('ZREMRANGEBYRANK', $key1, '0', string.format('%d', ended - 1)) end
redis.call('ZADD', $key1, string.format('%d', ends), name)
if ends < $until then ends = $until end
local life = (ends - now + 999) / 1000
redis.call('PEXPIRE', $key1, string.format('%d', life - life % 1 + slack))

-- refund
local name = 'p1 ' .. $text
local held = (redis.call('ZSCORE', $key1, name) or 0) + 0
if redis.call('ZREM', $key1, name) == 1 and held > now then $gave = 1 end
