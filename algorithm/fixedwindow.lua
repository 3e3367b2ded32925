-- fixedwindow: the end of a window, and the tokens consumed in it.
--
-- $edge   when the window ends, in microseconds since the Unix epoch
-- $count  tokens consumed in the window
-- $align  a window starts at a multiple of this many microseconds: 1, or the window's length

-- advance
-- If the window has ended, $edge is 0 until tokens are consumed: a denied request needs no $align.
if now >= $edge then $edge, $count = 0, 0 end

-- room
$room = $limit - $count

-- take
-- If a limit with other windows started this one, it can end between two multiples of $align. Now it lasts
-- until the next multiple. Otherwise the next window would be too short.
$count = $count + n
local align, rest = $align
if $edge == 0 then $edge = now - now % align + $window else rest = $edge % align end
if rest and rest > 0 then $edge = math.min($edge - rest + align, 9007199254740991) end

-- ends
$ends = $edge

-- refund
-- The generation of the value identifies the window of the decision, even if its end has moved.
-- If no consumed tokens are left, the key is deleted: the cell is then all 0.
$count = math.max($count - n, 0)
if $count == 0 then $edge = 0 end
