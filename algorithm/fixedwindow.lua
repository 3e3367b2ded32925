-- fixedwindow: tokens consumed in a window, and when the window ends.
--
-- A window starts at a multiple of $align microseconds: 1, or the window's length.

-- settle
if now >= $edge then $edge, $count = now - now % $align + $window, 0 end

-- room
$room = $limit - $count

-- take
$count = $count + n

-- ends
$ends = $edge

-- refund
if $edge == $was_edge then
  $count = math.max($count - n, 0)
  if $count == 0 then $edge = 0 end
end
