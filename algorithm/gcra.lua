-- gcra: the generic cell rate algorithm, for an emission interval of whole microseconds.
--
-- $tat       the theoretical arrival time (TAT): when the bucket is full, in microseconds since the
--            Unix epoch
-- $rem $den  a fraction of a microsecond, $rem/$den, to add to $tat. Only gcrafraction.lua writes it.
-- $interval  the emission interval, in microseconds
-- $span      the time in which an empty bucket is filled, in microseconds

-- advance
-- If gcrafraction.lua wrote the value, TAT is rounded up to a whole microsecond.
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
-- A decision ends at the TAT that it sets: its tokens have been refilled by then. A refund lowers
-- TAT, so later decisions end earlier. The note keeps what that changes:
--
-- $moved  the sum of all refunds, in microseconds
-- $from   when the first token of any refunded decision began to be refilled
--
-- `late` is the end of the refunded decision, after earlier refunds. It is at most $moved earlier than
-- before them. If they moved the decision at all, its tokens begin at $from or later, so it ends at $from
-- plus the time of the tokens that it holds, or later. Only the time from now to `late`
-- can be refunded, because the tokens before now have been refilled. `behind` is the time that later
-- decisions reserved after `late`. If a caller still waits, $tat is more than $span ahead. Then the
-- refund is lower by `behind`, so that later reservations keep their time.
if $rem > 0 then $tat = $tat + 1 end
local size = $was_held * $interval
local late = math.min(math.max($was_tat + $was_moved - $moved, $from + size), $was_tat)
local back = math.min(late - now, n * $interval)
local behind = $tat - late
if behind > 0 and $tat - now > $span then back = back - behind end
back = math.min(back, $tat - now)
if back > 0 and $moved + back <= 2251799813685248 then
  local first = math.max(late - size, 0)
  if $moved > 0 then first = math.min(first, $from) end
  $moved, $from = $moved + back, first
  $tat, $rem, $den = $tat - back, 0, 0
elseif $rem > 0 then
  -- Nothing is refunded. The cell must then be the same as before, so the rounding is undone.
  $tat = $tat - 1
end
