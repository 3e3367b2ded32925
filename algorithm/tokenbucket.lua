-- tokenbucket: tokens come back from a time on at which the bucket was full, $den of them
-- in each period of $num microseconds: one by one ($step is $den), or all at its end
-- ($step is 0).
--
-- anchor is when a period began; missing is the tokens missing then and consumed since.

-- settle
local past = math.max(now - $anchor, 0)
local part = past % $num
local whole = (past - part) / $num * $den -- above 2^53 not exact, nor is so much missing
local some = part * $step
if whole + (some - some % $num) / $num >= $missing then
  $anchor, $missing = now, 0
else
  $anchor, $missing = $anchor + past - part, $missing - whole
end

-- room
local past = math.max(at - $anchor, 0)
local part = past % $num
local some = part * $step
local back = (some - some % $num) / $num + (past - part) / $num * $den
$room = $capacity - math.max($missing - back, 0)

-- take
$missing = $missing + n

-- ends
local rest = $missing % $den
$ends = $anchor + ($missing - rest) / $den * $num
if rest > 0 then
  if $step == 0 then $ends = $ends + $num else $ends = $ends + math.ceil(rest * $num / $den) end
end
$ends = math.min($ends, 9007199254740991)

-- refund
-- moved, from and since: of the charges behind which more than from tokens are missing
-- since that time, moved tokens fewer are missing, because of refunds. What is refunded is
-- what of the charge is still missing; less, while somebody waits, what was consumed behind
-- it.
local function back(since)
  local past = math.max(now - since, 0)
  local part = past % $num
  local some = part * $step
  return (past - part) / $num * $den + (some - some % $num) / $num
end
local from, lack = $from - back($since), $missing - back($anchor)
local shift, left = $was_moved, $was_missing - back($was_anchor)
if $moved > 0 and left > from - shift then shift = shift - $moved end
local behind = $was_missing + shift
left = left + shift
local give = math.min(left, n)
if lack > $capacity then give = give - math.max(lack - left, 0) end
give = math.min(give, lack)
if give > 0 and $moved + give <= 2251799813685248 then
  local first, since = math.min(math.max(behind - give, 0), 9007199254740991), $was_anchor
  if $moved > 0 and from < left - give then first, since = $from, $since end
  $moved, $from, $since = $moved + give, first, since
  $missing = $missing - give
  if give == lack then $anchor, $missing = 0, 0 end
end
