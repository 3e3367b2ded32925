-- metadatawindow: a fixed window that keeps the metadata of the requests that it allowed.
--
-- $key1   a list of "m2 EDGE COUNT METADATA", one for each allowed request, the newest last. EDGE is
--         when the window ends, in microseconds since the Unix epoch. COUNT is the number of tokens
--         consumed in the window up to and including this request. So a decision reads only the
--         newest entry.
-- $align  a window starts at a multiple of this many microseconds: 1, or the window's length
-- $edge   EDGE of the current window
-- $count  tokens consumed in the current window
-- $found  true if the list exists

-- read
local last = redis.pcall('LINDEX', $key1, '-1')
if last then
  if last.err then
    if string.find(last.err, 'WRONGTYPE', 1, true) then return $foreign1 end
    return last
  end
  local edge, count = string.match(last, '^m2 (%d+) (%d+) ')
  if not edge then return $foreign1 end
  $edge, $count, $found = edge + 0, count + 0, true
  if $edge > 9007199254740991 or $count > 9007199254740991 then return $foreign1 end
end
if now >= $edge then $edge, $count = now - now % $align + $window, 0 end
$room = $limit - $count

-- write
if $found and $count == 0 then redis.call('UNLINK', $key1) end
-- A window that a limit with other windows started lasts until the next multiple of $align: see
-- fixedwindow.lua.
local rest = $edge % $align
if rest > 0 then $edge = math.min($edge - rest + $align, 9007199254740991) end
redis.call('RPUSH', $key1, string.format('m2 %d %d ', $edge, $count + n) .. $text)
-- If the list is from the current window, and EDGE has not changed, it keeps its TTL. If the caller brings
-- the time (slack > 0), the TTL is set each time.
if $count == 0 or rest > 0 or slack > 0 then
  local life = ($edge - now + 999) / 1000
  redis.call('PEXPIRE', $key1, string.format('%d', life - life % 1 + slack))
end

-- entries
-- At most MaxEntries = 1000 entries are listed. One more is read, because the cost of an entry is the
-- difference between two counts.
$entries = {}
if $count > 0 then $entries = redis.call('LRANGE', $key1, '-1001', '-1') end
