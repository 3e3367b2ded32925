-- The script of a write-up on limiting a resource and its consumers, rebuilt from
-- its description for comparison. Its defects are kept: whole seconds; a member
-- that two calls in one microsecond share; == against the limit; sets that never
-- expire. Do not use it.
--
-- KEYS[1]  sorted set of the resource: TIME's text by whole seconds
-- KEYS[2]  sorted set of the consumer
-- ARGV[1]  window, in seconds
-- ARGV[2]  limit of the resource
-- ARGV[3]  limit of the consumer
-- reply    0: admitted, 1: the resource was over, 2: the consumer was

local time = redis.call('TIME')
local left = time[1] - ARGV[1]
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, left)
local resource = redis.call('ZCARD', KEYS[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], 0, left)
local consumer = redis.call('ZCARD', KEYS[2])
if resource == tonumber(ARGV[2]) then return 1 end
if consumer == tonumber(ARGV[3]) then return 2 end
local member = time[1] .. time[2]
redis.call('ZADD', KEYS[1], time[1], member)
redis.call('ZADD', KEYS[2], time[1], member)
return 0
