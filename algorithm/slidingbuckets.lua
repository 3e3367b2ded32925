-- slidingbuckets: counts of several spans over one ring of buckets.
--
-- This is a template. $SIZE is the number of buckets, a literal like all that begins with $. A line
-- with $N is repeated for each bucket, $N counting from 1; one with $I for each span, in the order
-- declared: $I counts from 0, ARGV[$A] is its room, $B its length in buckets. W stands for the number
-- of spans.
--
-- Time is cut into buckets, and into turns of the ring, each from one multiple of the longest span to
-- the next. Bucket N of a turn is counted in key N. What a key holds from an earlier turn is stale.
--
-- KEYS[N]    string "b1 TURN COUNT": when the turn began, in microseconds since the epoch
-- ARGV[1-W]  room: a span may hold at most this before, in the order declared; negative: never
-- ARGV[W+1]  cost, which the count of the current bucket grows by
-- ARGV[W+2]  width of a bucket, in microseconds
-- state      span: the first that denies, or else the one with the least left; used: its sum before;
--            pass: when the request would pass, 0 if it does; reset: when the newest used bucket leaves the
--            longest span, 0 if none; top: when the current bucket began; count: its count

-- check
local ok, top, count
local cost = $COST + 0
local span, used, pass, reset = 0, 0, 0, 0
do
  local v = $MGET
  if v.err then return v end
  local match, sub, width = string.match, string.sub, $WIDTH + 0
  local turn, sum = $SIZE * width, {$ZEROS}
  local ahead, bad, seen = now - now % width, 0
  repeat
    -- From the newest bucket to the oldest: sum[i] is that of the newest i. If one is ahead of the
    -- clock, which was set back, then that one is the newest.
    top, seen = ahead, 0
    local slot, total = top % turn / width + 1, 0
    local head = string.format('b1 %d ', top - top % turn)
    local long = #head
    for i = 1, $SIZE do
      local x = v[slot]
      if x then
        seen = seen + 1
        if sub(x, 1, long) == head then
          total = total + sub(x, long + 1)
        else
          local s = match(x, '^b1 (%d+) %d+$')
          if not s or s + 0 >= 4503599627370496 then bad = slot break end
          if s % turn == 0 and s + (slot - 1) * width > ahead then ahead = s + (slot - 1) * width end
        end
      end
      sum[i] = total
      slot = slot - 1
      if slot == 0 then
        slot, head = $SIZE, string.format('b1 %d ', top - top % turn - turn)
        long = #head
      end
    end
  until ahead == top or bad > 0
  if bad > 0 or seen < $SIZE and $EXISTS > seen then
    if bad == $N or not v[$N] and redis.call('EXISTS', KEYS[$N]) == 1 then return redis.error_reply('WEIRFOREIGN $N') end
  end
  local least, left = 9007199254740992
  left = ARGV[$A] - sum[$B] if least >= 0 and left < least then span, least, used = $I, left, sum[$B] end
  ok, count = least >= 0, sum[1]
  if used > 9007199254740992 then used = 9007199254740992 end
  if not ok then
    for i = 1, $B do if sum[i] > ARGV[$A] + 0 then pass = math.max(pass, top + ($B + 1 - i) * width) break end end
  end
  for i = 1, $SIZE do if sum[i] > 0 then reset = top + ($SIZE + 1 - i) * width break end end
end

-- commit
do
  local turn = $SIZE * $WIDTH
  local slot = top % turn / $WIDTH + 1
  local value = string.format('b1 %d %d', top - top % turn, count + cost)
  local life = string.format('%d', (top + turn - now + 999) / 1000 + slack)
  $SET
end

-- upto
local fit = 0
if span == $I then fit = ARGV[$A] + 1 - used end

-- take
cost = take

-- charge
local charge, life = string.format('%d %d 0 0', top, cost), top + $SIZE * $WIDTH - now

-- refund
do
  local turn = $SIZE * $WIDTH
  local begin = was[1] - was[1] % turn
  local slot = was[1] % turn / $WIDTH + 1
  local v = slot % 1 == 0 and $MGET or {}
  local held = v[slot] and string.match(v[slot], string.format('^b1 %d (%%d+)$', begin))
  if held and held ~= '0' and was[1] + turn > top then
    gave = 1
    local value = string.format('b1 %d %d', begin, math.max(held - was[2], 0))
    $KEEP
  end
end
