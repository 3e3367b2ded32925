-- tokenbucket: in each period of $num microseconds, $den tokens are refilled.
--
-- $anchor   when a period began, in microseconds since the Unix epoch. The first period begins when
--           the bucket was last full.
-- $missing  the tokens that were missing at $anchor, plus the tokens consumed since then
-- $step     $den if the tokens of a period are refilled one by one, 0 if all together at its end

-- advance
local past = math.max(now - $anchor, 0)
local part = past % $num
-- If `whole` is above 2^53, it is not exact. It is then above $missing, which is below 2^53.
local whole = (past - part) / $num * $den
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
-- Tokens are refilled in the order in which they were consumed. `left` is the number of tokens that
-- are still to be refilled until all tokens of the decision have been refilled. `lack` is the number of
-- tokens that are missing now. A refund lowers `left` of later decisions. The note keeps what that
-- changes:
--
-- $moved         the sum of all refunds, in tokens
-- $from, $since  `from` is $from minus the tokens refilled since $since: the tokens that are refilled
--                before the first token of any refunded decision
--
-- Refunds lower `left` by at most $moved. If they lowered it at all, the tokens of the decision come after
-- `from`.
--
-- At most `left` tokens can be refunded. If a caller still waits, more tokens than $capacity are missing.
-- Then the refund is lower by the tokens that later decisions consumed, so that later reservations keep
-- their time. `behind` is `left` just after the decision, which sets $from for the next refund.
local function back(since)
  local past = math.max(now - since, 0)
  local part = past % $num
  local some = part * $step
  return (past - part) / $num * $den + (some - some % $num) / $num
end
local from, lack = $from - back($since), $missing - back($anchor)
local past = back($was_anchor)
local left = $was_missing - past
left = math.min(math.max(left + $was_moved - $moved, from + $was_held), left)
local behind = left + past
local give = math.min(left, n)
if lack > $capacity then give = give - math.max(lack - left, 0) end
give = math.min(give, lack)
if give > 0 and $moved + give <= 2251799813685248 then
  local first, since = math.min(math.max(behind - $was_held, 0), 9007199254740991), $was_anchor
  if $moved > 0 and from < left - $was_held then first, since = $from, $since end
  $moved, $from, $since = $moved + give, first, since
  $missing = $missing - give
  if give == lack then $anchor, $missing = 0, 0 end
end
