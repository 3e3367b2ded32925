-- metadatawindow: a fixed window that keeps what its requests brought along.
--
-- The newest entry tells the window and its count, so a list needs no other key.
--
-- KEYS[1]  list of "m1 EDGE COUNT METADATA", one for each request: when the window
--          ends, in microseconds since the epoch, and the count with this request
-- ARGV[1]  room: the count may be at most this before; -1: never
-- ARGV[2]  length of a window, in microseconds
-- ARGV[3]  cost, which the count grows by
-- ARGV[4]  a window starts at a multiple of this many microseconds: 1, or its length
-- ARGV[5]  metadata, any bytes
-- state    edge, count: of the current window; count is 0 in one that nobody used
-- entries  the newest 1001 entries of the current window

-- check
local v = redis.pcall('LINDEX', KEYS[1], '-1')
local edge, count = 0, 0
if v then
  if v.err then
    if string.find(v.err, 'WRONGTYPE', 1, true) then return redis.error_reply('WEIRFOREIGN 1') end
    return v
  end
  local e, c = string.match(v, '^m1 (%d+) (%d+) ')
  if not e then return redis.error_reply('WEIRFOREIGN 1') end
  edge, count = e + 0, c + 0
end
if now >= edge then edge, count = now - now % ARGV[4] + ARGV[2], 0 end
local ok, cost = count <= ARGV[1] + 0, ARGV[3] + 0

-- commit
if v and count == 0 then redis.call('UNLINK', KEYS[1]) end
redis.call('RPUSH', KEYS[1], string.format('m1 %d %d ', edge, count + cost) .. ARGV[5])
redis.call('PEXPIRE', KEYS[1], string.format('%d', (edge - now + 999) / 1000 + slack))

-- entries
local entries = {}
if count > 0 then entries = redis.call('LRANGE', KEYS[1], '-1001', '-1') end

-- upto
local fit = ARGV[1] + 1 - count

-- take
cost = take
