-- slidinglog: one entry for each token, with the time of the decision that consumed it.
--
-- $key1    a sorted set of "l2 TIME NUMBER" or "l2 TIME NUMBER GEN":
--          TIME is when the token was consumed, in 16 digits, in microseconds since the Unix epoch. It
--          is also the score.
--          NUMBER, in 8 digits, counts the tokens with the same TIME, from 1. So members are unique,
--          and sorted by time.
--          GEN is the generation of the decision. It is missing if the decision has no marker.
-- $live    the number of entries in the window
-- $newest  TIME of the newest entry, 0 if there is none
-- $back    when a denied request would be allowed, 0 if it is allowed or can never be
-- $number  NUMBER of the newest entry, as text, if its TIME is now or later; otherwise 0
-- $log     the entries that were read
-- $short   true if $limit is at most 5
-- $mark    TIME and NUMBER of the decision's first entry
--
-- If the clock steps back, tokens are stored with the newest TIME, so entries stay sorted.
--
-- If $limit is at most 5, one command reads the newest 8 entries. Another counts the entries in the window
-- if all 8 are in it: the limit is then in debt. If $limit is above 5, one command reads the newest entry,
-- and another counts the entries in the window.
--
-- TIME is read from the member, because a server formats scores slowly. $limit is text, so that the
-- script does not need to format it.

-- read
local limit, match = $limit + 0, string.match
$number, $span, $short = 0, $window, limit <= 5
$log = redis.pcall('ZRANGE', $key1, $short and '-8' or '-1', '-1')
if $log.err then
  if string.find($log.err, 'WRONGTYPE', 1, true) then return $foreign1 end
  return $log
end
local size = #$log
if size > 0 then
  local time, number = match($log[size], '^l2 0*(%d+) 0*(%d+) ?%d*$')
  if not time then return $foreign1 end
  local last = time + 0
  $newest = last
  if last >= 4503599627370496 or #number > 8 then return $foreign1 end
  local after = now - $span
  if $newest >= now then
    $number = number
    -- NUMBER cannot count another request, so this request is stored one microsecond later.
    if #number == 8 and number + 0 > 99997999 then $newest, $number = $newest + 1, 0 end
    after = $newest - $span
  end
  local rank = limit - n
  time = last
  if not $short then
    $live = redis.call('ZCOUNT', $key1, string.format('(%d', after), '+inf')
    if $live > rank and rank >= 0 then
      local index = n == 1 and '-' .. $limit or string.format('%d', -1 - rank)
      time = match(redis.call('ZRANGE', $key1, index, index)[1], '^l2 0*(%d+) ')
    end
  elseif $newest > after then
    $live = size
    while $live > 1 do
      time = match($log[size + 1 - $live], '^l2 0*(%d+) ')
      if not time then return $foreign1 end
      time = time + 0
      if time > $newest then return $foreign1 end
      if time > after then break end
      $live, time = $live - 1, last
    end
    if $live > rank + 1 and rank >= 0 then time = match($log[size - rank], '^l2 0*(%d+) ') end
    if $live == 8 then $live = redis.call('ZCOUNT', $key1, string.format('(%d', after), '+inf') end
  end
  if $live > rank and rank >= 0 then
    if not time then return $foreign1 end
    time = time + 0
    if time > $newest then return $foreign1 end
    $back = time + $span
  end
end
$room = limit - $live
if $room > 1000 then $room = 1000 end

-- write
local time, suffix = now, ''
if $newest > now then time = $newest end
if $gen > 0 then suffix = string.format(' %d', $gen) end
if $live > 0 then
  -- Expired entries are removed a few at a time, so that no single request removes many.
  local dead, few = #$log - $live, 4
  if not $short or $live > 4 then dead, few = redis.call('ZCARD', $key1) - $live, 16 end
  if dead >= few then redis.call('ZREMRANGEBYRANK', $key1, '0', string.format('%d', math.min(dead, n + few) - 1)) end
elseif #$log > 0 then
  redis.call('UNLINK', $key1)
end
local score = string.format('%016d', time)
if n == 1 and $number == 0 then
  redis.call('ZADD', $key1, score, 'l2 ' .. score .. ' 00000001' .. suffix)
else
  local entries = {}
  for i = 1, n do
    entries[2 * i - 1], entries[2 * i] = score, string.format('l2 %s %08d%s', score, $number + i, suffix)
  end
  redis.call('ZADD', $key1, (table.unpack or unpack)(entries))
end
local life = (time + $span - now + 999) / 1000
redis.call('PEXPIRE', $key1, string.format('%d', life - life % 1 + slack))

-- mark
$mark, $ends = string.format('%d %d 0', time, $number + 1), time + $span

-- refund
if n > 0 and $was1 > math.max($newest, now) - $span then
  local texts = {}
  for i = 1, math.min(n, 2000) do texts[i] = string.format('l2 %016d %08d %d', $was1, $was2 + $keep + i - 1, $gen) end
  if redis.call('ZREM', $key1, (table.unpack or unpack)(texts)) > 0 then $gave = 1 end
end
