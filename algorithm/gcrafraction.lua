-- gcra: the generic cell rate algorithm, for an emission interval of $num/$parts microseconds.
--
-- $tat       the theoretical arrival time (TAT), rounded down to a microsecond: see gcra.lua
-- $rem $den  the rest of TAT: $rem/$den microseconds
-- $total     the time in which an empty bucket is filled, in parts. A part is 1/$parts microseconds.

-- advance
-- If another rate wrote the value, TAT is rounded up to a whole microsecond.
if $den ~= $parts then
  if $rem > 0 then $tat = $tat + 1 end
  $rem, $den = 0, $parts
end
if $tat < now then $tat, $rem = now, 0 end

-- room
local ahead = 0
if $tat >= at then ahead = ($tat - at) * $parts + $rem end
local left = $total - ahead
$room = (left - left % $num) / $num
if ahead >= 9007199254740992 then
  local lack = -left / $num
  $room = lack % 1 - lack - 1
end

-- take
local sum = $rem + n * $num
if sum >= 9007199254740992 then
  -- The time of this many tokens is not exact. In $num microseconds, $parts tokens are refilled. The time of the
  -- other tokens is off by up to a microsecond, and two fractions are cut off. So 3 are added.
  local some = n % $parts
  local time = some * $num / $parts
  $tat, $rem = $tat + (n - some) / $parts * $num + (time - time % 1) + 3, 0
else
  $rem = sum % $parts
  $tat = $tat + (sum - $rem) / $parts
end

-- ends
$ends = $tat
if $rem > 0 then $ends = $tat + 1 end

-- refund
-- The names and the steps are those of gcra.lua. The times are in parts, except `late` and `up`, which
-- are in microseconds. Products are cut, so that they stay below 2^53. If the refund itself is larger, a
-- part is one microsecond, and all times are rounded so that less is refunded.
-- `up` is the refund, rounded up to a microsecond. So after earlier refunds of `earlier` parts, `late`
-- is too early by less than a microsecond for each token. Later decisions reserved whole tokens, so the
-- rest of `behind`, `over`, is that difference.
local parts, num, total, tat, rem, kept = $parts, $num, $total, $tat, $rem, 0
if $den ~= parts then
  if rem > 0 then tat = tat + 1 end
  rem = 0
end
local most = (9007199254740991 - 9007199254740991 % parts) / parts - 1
local shift = $was_moved - $moved
local late, rest, cost, size = $was_tat + shift, $was_rem, n * num, $was_held * num
local exact = size <= most * parts
if exact then
  local least = $from + (size - size % parts) / parts
  if least > late then late, rest = least, 0 end
end
if late > $was_tat then late, rest, shift = $was_tat, $was_rem, 0 end
if cost > most * parts then
  if rem > rest then late = late - 1 end
  kept = rem
  rem, rest, most = 0, 0, 9007199254740991
  local some = n % parts
  cost = math.min((n - some) / parts * num + math.floor(some * num / parts), most) - 2
  total = (total - total % parts) / parts - 1
  parts, num = 1, 1
end
local behind = math.min(tat - late, most) * parts + rem - rest
local over, earlier = behind % num, math.min(-shift, most) * parts
if over > 0 and behind > 0 and (over - over % parts) / parts < (earlier - earlier % num) / num then
  behind, rest = behind - over, rest + over
  late, rest = late + (rest - rest % parts) / parts, rest % parts
end
local back = math.min(math.min(late - now, most) * parts + rest, cost)
local ahead = math.min(tat - now, most) * parts + rem
if behind > 0 and ahead > total then back = back - behind end
back = math.min(back, ahead)
local up = (back + parts - 1 - (back + parts - 1) % parts) / parts
if back > 0 and up <= tat and $moved + up <= 2251799813685248 then
  local first, part = 0, back % parts
  if exact then
    local whole = size - rest + parts - 1
    first = math.max(late - math.max(up, (whole - whole % parts) / parts), 0)
  end
  if $moved > 0 then first = math.min(first, $from) end
  $moved, $from = $moved + up, first
  rem = rem - part
  tat = tat - (back - part) / parts
  if rem < 0 then tat, rem = tat - 1, rem + parts end
  $tat, $rem, $den = tat, rem + kept, $parts
end
