-- slidingcounter: the counts of the current window and of the previous window.
--
-- $start   when the current window began, in microseconds since the Unix epoch
-- $count   tokens consumed in the current window
-- $before  tokens consumed in the previous window
-- $step    the length of a step, in microseconds
-- $steps   the number of steps in a window. The last step may be shorter.
--
-- The estimate is $count plus `weight`: a fraction of $before, rounded up to whole tokens. The fraction
-- is the part of the previous window that is at most one window old. It falls by 1/$steps with each step.

-- advance
if now - $start >= 2 * $window then
  $start, $count, $before = now - now % $window, 0, 0
elseif now - $start >= $window then
  $start, $before = $start + $window, $count
  $count = 0
end

-- room
local weight = 0
if $before > 0 then
  local left, past = $steps, now - $start
  if past > 0 then left = left - (past - past % $step) / $step end
  weight = math.min($before, 8589934591) * left
  local rest = weight % $steps
  weight = (weight - rest) / $steps
  if rest > 0 then weight = weight + 1 end
end
$room = $limit - $count - weight

-- take
$count = $count + n

-- ends
$ends = $start + $window
if $count > 0 then $ends = $ends + $window end

-- refund
if $start == $was_start then
  $count = math.max($count - n, 0)
elseif $start == $was_start + $window then
  $before = math.max($before - n, 0)
end
if $count + $before == 0 then $start = 0 end
