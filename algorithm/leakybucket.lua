-- leakybucket: a queue. It is gcrafraction.lua with another room and, in the refund,
-- another line: whoever is in the queue was told a turn, so only the last can be
-- refunded.

-- room
if $tat > at or $tat == at and $rem > 0 then
  $room = 0
else
  local left = $total
  if $tat >= now then left = left - ($tat - now) * $parts - $rem end
  $room = (left - left % $num) / $num
end
