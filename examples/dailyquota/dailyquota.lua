-- dailyquota: tokens consumed in a day, and when the day ends, at midnight in a time zone.
--
-- A clock in the zone shows now + OFFSET, and OFFSET changes at each CHANGE. One day is added
-- to all offsets, so none is negative. $offsets is "OFFSET CHANGE OFFSET CHANGE OFFSET ...", in
-- microseconds. Changes are at least three days apart.

-- advance
if now >= $edge then
  local offset, change, after = string.match($offsets, '^%d+') + 0, 0, 0
  for at, to in string.gmatch($offsets, ' (%d+) (%d+)') do
    if now < at + 0 then
      change, after = at + 0, to + 0
      break
    end
    offset = to + 0
  end
  local clock = now + offset
  clock = clock - clock % 86400000000 + 86400000000
  $edge, $count = clock - offset, 0
  if change > 0 and $edge >= change then
    -- The clocks change first, or skip midnight.
    $edge = math.max(change, clock - after)
  end
end

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
