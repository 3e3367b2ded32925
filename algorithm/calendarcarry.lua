-- calendar: a period of the calendar, to which what is left of the previous one carries over. zone.go replaces
-- @EDGE by lines of calendar.lua, which also explains the other names.
--
-- $count  what the period lacks of $limit + $carry: the tokens consumed, and the part of $carry that was not left
-- $carry  the most tokens that carry over, at most $limit

-- advance
-- A cell that has not ended is of the previous period.
if now >= $edge then
  @EDGE
  $edge, $count = edge, math.max(math.min($count - $limit, $carry), 0)
end

-- room
$room = $limit + $carry - $count

-- take
$count = $count + n

-- ends
-- With more than $limit, the next period does not open with all of $carry, but the period after it does.
$ends = $edge
if $count > $limit then
  local now = $edge
  @EDGE
  $ends = edge
end

-- refund
if now < $edge and $edge == $was_edge then
  $count = math.max($count - n, 0)
  if $count == 0 then $edge = 0 end
end
