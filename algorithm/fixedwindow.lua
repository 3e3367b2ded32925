-- fixedwindow: a count that starts again with each window.
--
-- KEYS[1]  string "f1 START COUNT": the window's start in microseconds since the epoch
-- ARGV[1]  room: the count may be at most this before; negative: never
-- ARGV[2]  length of the window, in microseconds
-- ARGV[3]  cost, which the count grows by
-- ARGV[4]  a new window starts at a multiple of this many microseconds: 1, or its length
-- state    start, count: of the current window; count is 0 in a window that nobody used

-- check
local v = redis.pcall('GET', KEYS[1])
local start, count = -ARGV[2], 0
if v then
  if v.err then
    if string.find(v.err, 'WRONGTYPE', 1, true) then return redis.error_reply('WEIRFOREIGN 1') end
    return v
  end
  local s, c = string.match(v, '^f1 (%d+) (%d+)$')
  if not s then return redis.error_reply('WEIRFOREIGN 1') end
  start, count = s + 0, c + 0
end
if now >= start + ARGV[2] then start, count = now - now % ARGV[4], 0 end
local ok = count <= ARGV[1] + 0

-- commit
redis.call('SET', KEYS[1], string.format('f1 %d %d', start, count + ARGV[3]),
  'PX', string.format('%d', (start + ARGV[2] - now + 999) / 1000 + slack))
