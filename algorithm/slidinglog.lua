-- slidinglog: one entry for each decision, with its time, its cost and a running total.
--
-- $key1    a sorted set of "l3 TIME NUMBER BEFORE COST" or "l3 TIME NUMBER BEFORE COST GEN BACK AGE":
--          TIME is when the tokens were consumed, in 16 digits, in microseconds since the Unix epoch. It
--          is also the score.
--          NUMBER, in 7 digits, counts the entries of the key, from 1. After 2^23-1, it continues with 0. So
--          members are unique, and sorted by time.
--          BEFORE is the number of tokens of all earlier entries, modulo 2^52.
--          COST is the number of tokens of this entry.
--          GEN is the generation of the decision, 0 if the decision has no marker.
--          BACK is a sum of refunds, see below.
--          AGE counts only in the newest entry. It says which is the newest entry with a refund: 1 is the
--          newest entry itself, 2 is the entry before it, and so on. 0 means that there is none.
--          GEN, BACK and AGE are missing if all of them are 0.
-- $used    the number of tokens in the window
-- $newest  TIME of the newest entry, 0 if there is none
-- $last    TIME of the newest entry of which tokens are left, 0 if that is $newest
-- $back    when a denied request would be allowed, 0 if it is allowed or can never be
-- $entry   the newest entry, nil if there is none
-- $number  NUMBER of the newest entry, 0 if no entry is in the window
-- $total   BEFORE of the next entry, 0 if no entry is in the window
-- $age     AGE of the newest entry, 0 if the entry that it means was removed
-- $dead    the number of expired entries, -1 if all entries have expired
-- $mark    TIME and NUMBER of the decision's entry
--
-- The tokens in the window are $total minus BEFORE of the first entry in the window. So a decision reads the
-- newest entry and the oldest three, whatever the costs are.
--
-- A refund of the newest entry lowers its COST, or removes it. A refund of an earlier entry cannot do that,
-- because BEFORE of all later entries would be wrong. Its tokens are added to BACK of some entries, as in a
-- Fenwick tree: BACK is the sum of the refunds of the next bit entries, this entry included. bit is the
-- largest power of two that divides NUMBER. So of n entries, a refund changes about log2(n), and the sum of
-- all refunds in the window is in about log2(n) entries.
--
-- If the clock steps back, tokens are stored with the newest TIME, so entries stay sorted.
--
-- If $limit is at most 5, one command reads the newest eight entries, which are mostly all entries.
--
-- TIME is read from the member, because a server formats scores slowly. Leading zeros are cut off, because
-- the Lua of miniredis reads such a number as octal.

-- read
local limit, span, match = $limit, $window, string.match
local log = redis.pcall('ZRANGE', $key1, limit <= 5 and '-8' or '-1', '-1')
if log.err then
  if string.find(log.err, 'WRONGTYPE', 1, true) then return $foreign1 end
  return log
end
$entry, $number, $total, $age, $dead = log[#log], 0, 0, 0, 0
if $entry then
  local time, number, before, cost, rest = match($entry, '^l3 0*(%d+) 0*(%d+) (%d+) (%d+)(.*)$')
  if not time then return $foreign1 end
  time, $number, before = time + 0.0, number + 0.0, before + 0.0
  if rest ~= '' then
    $age = match(rest, '^ %d+ %d+ (%d+)$')
    if not $age then return $foreign1 end
    $age = $age + 0.0
  end
  if time >= 4503599627370496 or $number > 8388607 or before >= 4503599627370496 or $age > 8388607 then return $foreign1 end
  $newest = time
  local after = now - span
  if time >= now then
    -- The next NUMBER is 0, so this request is stored one microsecond later.
    if $number == 8388607 then $newest, $last = time + 1, time end
    after = $newest - span
  end
  if time <= after then
    $number, $age, $dead = 0, 0, -1
  else
    $total = (before + cost) % 4503599627370496
    if limit > 5 or #log == 8 then log = redis.call('ZRANGE', $key1, '0', '2') end
    local edge, first, oldest = string.format('l3 %016d', after + 1), nil, nil
    for i = 1, #log do
      if log[i] >= edge then
        first, $dead = log[i], i - 1
        break
      end
    end
    if not first then
      local live = '-' .. redis.call('ZCOUNT', $key1, string.format('(%d', after), '+inf')
      first, oldest = redis.call('ZRANGE', $key1, live, live)[1] or '', match(log[1], '^l3 %d+ 0*(%d+) ')
      if not oldest then return $foreign1 end
    end
    local upto, some = match(first, '^l3 %d+ %d+ (%d+) (%d+)')
    if not upto then return $foreign1 end
    $used = ($total - upto) % 4503599627370496
    local need, walk = $used + n - limit, nil
    if oldest or $age > 0 or $used >= 999999 or need > 0 and some - need < 0 then
      local begin, place, rest = match(first, '^l3 0*(%d+) 0*(%d+) %d+ %d+(.*)$')
      local back, later = 0, ($number - place) % 8388608
      if rest ~= '' then back = match(rest, '^ %d+ (%d+) %d+$') end
      if not back then return $foreign1 end
      -- walk returns TIME of an entry: the tokens up to that entry are at least need, and the tokens before
      -- it are fewer. If there is none, walk returns 0 and the number of all tokens. It returns nil if an
      -- entry is foreign. It reads at most 2 log2(n) of n entries. Entry 0 is the first in the window.
      walk = function(need)
        local function get(i)
          local index = string.format('%d', i - later - 1)
          local time, number, before, rest = match(redis.call('ZRANGE', $key1, index, index)[1] or '', '^l3 0*(%d+) 0*(%d+) (%d+) %d+(.*)$')
          if not time or number + 0 ~= (place + i) % 8388608 or time + 0 > $newest then return end
          local back = 0
          if rest ~= '' then back = match(rest, '^ %d+ (%d+) %d+$') end
          return before + 0.0, back, time + 0.0
        end
        local i, bit, sum, before, back, time = 0, 1, 0, upto, back, begin + 0.0
        while true do
          -- The bit entries from i on are a block, and BACK is the sum of its refunds.
          while bit < 8388608 and (place + i) % (2 * bit) == 0 do bit = 2 * bit end
          local upto, after, at = $total, 0, 0
          if i + bit <= later then
            upto, after, at = get(i + bit)
            if not after then return end
          end
          local block = (upto - before - back) % 4503599627370496
          if sum + block >= need then break end
          i, sum = i + bit, sum + block
          if i > later then return 0, sum end
          before, back, time = upto, after, at
        end
        while bit > 1 do
          bit = bit / 2
          if i + bit <= later then
            local upto, after, at = get(i + bit)
            if not after then return end
            local half = (upto - before - back + after) % 4503599627370496
            if sum + half >= need then
              back = back - after
            else
              i, sum, before, back, time = i + bit, sum + half, upto, after, at
            end
          end
        end
        return time, sum
      end
      if oldest then $dead = (place - oldest) % 8388608 end
      local refunds = $age > 0 and $age <= later + 1
      if $age > later + 1 + $dead then $age = 0 end
      if refunds then
        local time, sum = walk(9007199254740992)
        if not time then return $foreign1 end
        $used, need = sum, sum + n - limit
        if $age == 1 and sum > 0 then
          $last = walk(sum)
          if not $last then return $foreign1 end
        end
      elseif some - need >= 0 then
        walk = nil
      end
      if later >= 999999 then
        if $used < limit then $used = limit end
        if need < 1 then need, walk = 1, nil end
      end
    end
    if need > 0 and n <= limit then
      local time = walk and walk(need) or not walk and match(first, '^l3 0*(%d+)')
      if not time then return $foreign1 end
      $back = time + span
    end
  end
end
$room = limit - $used

-- write
local time = now
if $newest > now then time = $newest end
if $dead >= 2 then
  -- Expired entries are removed a few at a time, so that no single request removes many.
  redis.call('ZREMRANGEBYRANK', $key1, '0', string.format('%d', math.min($dead, 16) - 1))
elseif $dead < 0 then
  redis.call('UNLINK', $key1)
end
$number = ($number + 1) % 8388608
local text = string.format('l3 %016d %07d %d %d', time, $number, $total, n)
if $gen > 0 or $age > 0 then
  if $age > 0 then $age = $age + 1 end
  text = text .. string.format(' %d 0 %d', $gen, $age)
end
redis.call('ZADD', $key1, string.sub(text, 4, 19), text)
local life = (time + $window - now + 999) / 1000
redis.call('PEXPIRE', $key1, string.format('%d', life - life % 1 + slack))

-- mark
$mark, $ends = string.format('%d %d 0', time, $number), time + $window

-- refund
-- An entry in the window has fewer entries behind it than there are in the window. This names no
-- constant, because a refund is valid under every limit.
local place, size = ($number - $was2) % 8388608, redis.call('ZCARD', $key1)
if n > 0 and $dead >= 0 and place < size - $dead then
  local adds, removes, ok = {}, {}, true
  -- get returns the entry that is i places before the newest.
  local function get(i)
    local index = string.format('%d', -1 - i)
    return redis.call('ZRANGE', $key1, index, index)[1] or ''
  end
  -- change replaces an entry: its COST is less lower, and its BACK is more higher.
  local function change(old, less, more, new)
    local head, cost, rest = string.match(old, '^(l3 %d+ %d+ %d+) (%d+)(.*)$')
    local owner, back, age = 0, 0, 0
    if rest ~= '' then owner, back, age = string.match(rest or '', '^ (%d+) (%d+) (%d+)$') end
    local most = 9007199254740991
    if not owner or cost + 0.0 > most or owner + 0.0 > most or back + 0.0 > most or age + 0.0 > most then
      ok = false
      return
    end
    back, age = (back + more) % 4503599627370496, new or age + 0
    local text = string.format('%s %d', head, cost - less)
    if owner + back + age > 0 then text = text .. string.format(' %d %d %d', owner + 0, back, age) end
    if text ~= old then
      adds[#adds + 1], removes[#removes + 1] = string.sub(old, 4, 19), old
      adds[#adds + 1] = text
    end
  end
  local mine = place < size and get(place) or ''
  local cost, owner = string.match(mine, '^l3 %d+ %d+ %d+ (%d+) (%d+) %d+ %d+$')
  if owner ~= string.format('%d', $gen) or string.sub(mine, 1, 28) ~= string.format('l3 %016d %07d ', $was1, $was2) then
    ok = false
  elseif $used <= n and $dead == 0 then
    redis.call('UNLINK', $key1)
  elseif place > 0 then
    local i, bit = place, 1
    while i < size do
      change(get(i), 0, n)
      local number = ($number - i) % 8388608
      while bit < 8388608 and number % (2 * bit) == 0 do bit = 2 * bit end
      i = i + bit
    end
    if $age == 0 or $age > place + 1 then change($entry, 0, 0, place + 1) end
  elseif cost + 0 > n then
    change(mine, n, 0)
  else
    removes[1] = mine
    if $age > 0 then change(get(1), 0, 0, $age - 1) end
  end
  if ok then
    $gave = 1
    if #adds > 0 then redis.call('ZADD', $key1, (table.unpack or unpack)(adds)) end
    if #removes > 0 then redis.call('ZREM', $key1, (table.unpack or unpack)(removes)) end
  end
end
