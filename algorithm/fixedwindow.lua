-- fixedwindow: the end of a window, and the tokens consumed in it.
--
-- $edge   when the window ends, in microseconds since the Unix epoch
-- $count  tokens consumed in the window
-- $align  a window starts at a multiple of this many microseconds: 1, or the window's length

-- advance
if now >= $edge then $edge, $count = now - now % $align + $window, 0 end

-- room
$room = $limit - $count

-- take
$count = $count + n

-- ends
$ends = $edge

-- refund
-- If no consumed tokens are left, the key is deleted: the cell is then all 0.
if $edge == $was_edge then
  $count = math.max($count - n, 0)
  if $count == 0 then $edge = 0 end
end
