-- slidingbuckets: buckets that count tokens, for limits over several spans of time.
--
-- This file is a template. slidingbuckets.go replaces the placeholders, which begin with @:
--
-- @SIZE        the number of buckets in the longest span
-- @ZEROS       a table of @SIZE zeros
-- @(@KEYS@)    a call with all keys
-- @N           a line with @N is repeated for each bucket. @N is the bucket's number, from 1.
-- @B, @I, @L   a line with @B is repeated for each span. @B is the length of the span in buckets, @I is
--              its index, from 0, and $@L is its limit: $a for the first span, then $b, and so on.
--
-- Time is divided into buckets of $width microseconds. @SIZE buckets in a row are a turn. Turns begin at
-- multiples of the length of the longest span. The bucket with number N of every turn uses key N, so the
-- keys form a ring. The longest span covers only the latest bucket with number N, so an earlier value in
-- key N has expired.
--
-- $key1…   strings "b2 TURN COUNT" or "b2 TURN COUNT GEN":
--          TURN is when the turn began, in microseconds since the Unix epoch.
--          COUNT is the number of tokens consumed in the bucket.
--          GEN is the generation of the first decision with a marker that consumed from the bucket.
-- $span    the index of the span that the result describes: if denied, the span with the longest wait;
--          otherwise the span with the fewest tokens left
-- $used    the number of tokens in that span, at most 2^53-1
-- $pass    if denied, when the request would be allowed, or 2^53-1 if it can never be; otherwise 0
-- $reset   when the limit is fully reset: when the newest bucket that has tokens, or that is ahead of the
--          clock, leaves the longest span. 0 if no bucket has tokens.
-- $ring    the values of all keys
-- $turn    the length of a turn, in microseconds
-- $top     when the current bucket began
-- $count   COUNT of the current bucket, or 0
-- $owner   GEN of the current bucket, or 0
-- $mark    when the bucket of the decision began, and its GEN after the decision

-- read
$ring = @(redis.pcall('MGET', @KEYS)@)
if $ring.err then return $ring end
local find, match, width = string.find, string.match, $width
local turn, sum = @SIZE * width, @ZEROS
$turn = turn
local ahead, bad, missing = now - now % width, 0
repeat
  -- This reads the buckets from the newest to the oldest. sum[i] is the number of tokens in the i newest
  -- buckets. If the clock stepped back, a bucket can be ahead of the clock. It is then the newest bucket,
  -- and the buckets are read again from there.
  $top, $owner, missing = ahead, 0, 0
  local slot, total, start = $top % turn / width + 1, 0, $top - $top % turn
  local head = string.format('b2 %d ', start)
  local first = #head + 1
  for i = 1, @SIZE do
    local value = $ring[slot]
    if value then
      local count = find(value, head, 1, true) == 1 and match(value, '^[1-9]%d*$', first)
      if not count then
        local began, c, rest = match(value, '^b2 (%d+) (%d+)(.*)$')
        local id = rest == '' and 0 or rest and match(rest, '^ (%d+)$')
        if not id or began < '1' and began ~= '0' or c < '1' and c ~= '0' or rest ~= '' and id < '1' and id ~= '0' then bad = slot break end
        began, c, id = began + 0, c + 0, id + 0
        if began >= 4503599627370496 or c > 9007199254740991 or id > 9007199254740991 then bad = slot break end
        if began == start then
          count = c
          if i == 1 then $owner = id end
        elseif began % turn == 0 and began + (slot - 1) * width > ahead then
          ahead = began + (slot - 1) * width
          if ahead >= 4503599627370496 then bad = slot break end
        end
      end
      if count then
        count = count + 0
        if count > 9007199254740991 then bad = slot break end
        total = total + count
      end
    else
      missing = missing + 1
    end
    sum[i] = total
    slot = slot - 1
    if slot == 0 then
      slot, start = @SIZE, start - turn
      head = string.format('b2 %d ', start)
      first = #head + 1
    end
  end
until ahead == $top or bad > 0
if bad > 0 or missing > 0 and @(redis.call('EXISTS', @KEYS)@) > @SIZE - missing then
  if bad == @N or not $ring[@N] and redis.call('EXISTS', $key@N) == 1 then return $foreign@N end
end
$count = sum[1]
local least, left = 9007199254740992
left = $@L - sum[@B] if left < least then $span, $used, least = @I, sum[@B], left end
if least < n then
  local limits, lengths = {}, {}
  limits[@I + 1], lengths[@I + 1] = $@L, @B
  for a = 1, #limits do
    local limit, length, pass = limits[a], lengths[a], 0
    if n > limit then
      pass = 9007199254740991
    elseif sum[length] > limit - n then
      local i = 1
      while sum[i] <= limit - n do i = i + 1 end
      pass = $top + (length + 1 - i) * width
    end
    if pass > $pass then $span, $used, $pass = a - 1, sum[length], pass end
  end
end
if $used > 9007199254740991 then $used = 9007199254740991 end
local newest = 1
while newest < @SIZE and sum[newest] == 0 and $top <= now do newest = newest + 1 end
if sum[newest] > 0 or $top > now then $reset = $top + (@SIZE + 1 - newest) * width end
$room = least

-- write
local slot, owner = $top % $turn / ($turn / @SIZE) + 1, $owner
local value = string.format('b2 %d %d', $top - $top % $turn, $count + n)
if owner == 0 then owner = $gen end
if owner > 0 then value = value .. string.format(' %d', owner) end
local life = ($top + $turn - now + 999) / 1000
life = string.format('%d', life - life % 1 + slack)
if slot == @N then redis.call('SET', $key@N, value, 'PX', life) end

-- mark
$mark, $ends = string.format('%d %d 0', $top, owner), $top + $turn

-- refund
local width = $width -- a refund needs the width and the number of buckets of the decision
local start = $was1 - $was1 % (@SIZE * width)
local slot = ($was1 - start) / width + 1
local count, owner = string.match($ring[slot] or '', string.format('^b2 %d (%%d+) (%%d+)$', start))
if count and owner + 0 == $was2 and count + 0 > 0 and $was1 + $turn > $top then
  $gave = 1
  local value = string.format('b2 %d %d %d', start, math.max(count - n, 0), owner)
  if slot == @N then redis.call('SET', $key@N, value, 'KEEPTTL') end
end
