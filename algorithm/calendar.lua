-- calendar: the end of a period of the calendar, and the tokens consumed in it.
--
-- This file is a template. zone.go replaces @ZONE by the offsets of a time zone: for each offset, when it
-- starts, in 10 digits, and the offset plus one day, in 6 digits. All are seconds. The last 10 digits are 9.
-- The lines between @EDGE and @EDGE are also in calendarcarry.lua. They set a local edge to the end of the
-- period of now.
--
-- Local times are what a clock in the zone shows, as if that were UTC: now plus the offset. A period starts
-- at the first instant at which a clock shows its first local time or a later one.
--
-- $edge   when the period ends, in microseconds since the Unix epoch
-- $count  tokens consumed in the period
-- $every  the length of a period: 1, 3 or 12 months, or the microseconds of a day or a week
-- $shift  months: the microseconds from the start of a month to the start of a period, which is at the latest
--         on the last day of the month; days and weeks: local time + $shift is a multiple of $every at the
--         start of a period
-- $first  a period starts this many months after a March
--
-- The constant zone is the name of the zone. It shows which zone the script has, and limits in different
-- zones have different constants.

-- advance
if now >= $edge then
  -- @EDGE
  local zone, every, shift, first = '@ZONE', $every, $shift, $first
  -- Some servers read a text with a leading zero as an octal number, so a 1 stands before the digits.
  local function number(from, to) return (('1' .. string.sub(zone, from, to)) - 10 ^ (to - from + 1)) * 1000000.0 end
  -- The scan starts two days ago, because a clock can be set back by less than that.
  local low, high, past = 0, (#zone - 10) / 16, now - 172800000000
  while high - low > 1 do
    local middle = (low + high - (low + high) % 2) / 2
    if number(middle * 16 + 1, middle * 16 + 10) <= past then low = middle else high = middle end
  end
  -- latest is the latest local time so far, target is the local time at which the next period starts, and the
  -- offset applies from start until stop.
  local latest, start, target, edge, stop = now - 86400000000, 0
  repeat
    local offset = number(low * 16 + 11, low * 16 + 16) - 86400000000
    stop = number(low * 16 + 17, low * 16 + 26)
    if now >= stop then
      latest = math.max(latest, stop + offset - 1)
    else
      if not target then
        latest = math.max(latest, now + offset)
        if every > 12 then
          target = latest + every - (latest + shift) % every
        else
          -- Months are numbered from March 1968 on, so that a leap day is the last day of its year.
          local function days(month)
            local m = month % 12
            local year, sum = (month - m) / 12, 153 * m + 2
            return 365 * year + (year - year % 4) / 4 + (sum - sum % 5) / 5 - (year > 131 and 672 or 671) -- 2100 has no leap day
          end
          -- 2629800000000 is the twelfth of 365.25 days, so this is the current month or an earlier one.
          local month, time = (latest + 57974400000000) / 2629800000000 - 1, shift % 86400000000
          month = month - month % 1
          month = month - (month - first) % every
          repeat
            local begin = days(month)
            target = math.min(begin + (shift - time) / 86400000000, days(month + 1) - 1) * 86400000000 + time
            month = month + every
          until target > latest
        end
      end
      edge = math.max(target - offset, start)
    end
    start, low = stop, low + 1
  until target and edge < stop
  -- @EDGE
  $edge, $count = edge, 0
end

-- room
$room = $limit - $count

-- take
$count = $count + n

-- ends
$ends = $edge

-- refund
-- If no consumed tokens are left, the key is deleted: the cell is then all 0.
$count = math.max($count - n, 0)
if $count == 0 then $edge = 0 end
