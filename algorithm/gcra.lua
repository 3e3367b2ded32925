-- gcra: the generic cell rate algorithm, for an interval of whole microseconds.
--
-- tat, the theoretical arrival time, is when the bucket is full again. rem and den are
-- those of gcrafraction.lua, whose value may stand in the key: den parts make a
-- microsecond.

-- settle
if $rem > 0 then $tat = $tat + 1 end
$rem, $den = 0, 0
if $tat < now then $tat = now end

-- room
local left = $span
if $tat > at then left = left - ($tat - at) end
$room = (left - left % $interval) / $interval

-- take
$tat = $tat + n * $interval

-- ends
$ends = $tat
if $rem > 0 then $ends = $tat + 1 end

-- refund
-- moved and from: the charges that end later than from end moved microseconds sooner
-- than they did, because of refunds. A charge is refunded as far as it has not come
-- back by itself; less, while somebody waits, what was reserved behind it.
if $rem > 0 then $tat = $tat + 1 end
local shift = $was_moved
if $moved > 0 and $was_tat > $from - shift then shift = shift - $moved end
local late = $was_tat + shift
local back = math.min(late - now, n * $interval)
local behind = $tat - late
if behind > 0 and $tat - now > $span then back = back - behind end
back = math.min(back, $tat - now)
if back > 0 and $moved + back <= 2251799813685248 then
  local first = math.max(late - back, 0)
  if $moved > 0 then first = math.min(first, $from) end
  $moved, $from = $moved + back, first
  $tat, $rem, $den = $tat - back, 0, 0
elseif $rem > 0 then
  $tat = $tat - 1
end
