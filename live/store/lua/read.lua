-- Reads consecutive records, and where the board stands, at one instant. Writes nothing.
--
-- Records go by score descending, then by member ascending, byte by byte. The sorted set, read backwards, gives equal
-- scores by member descending; so a run of equal scores is turned round, and one that the page cuts is read forwards.
-- KEYS[1] ranking — sorted set: member, score
-- KEYS[2] meta — hash: the board's state
-- ARGV[1] mode — "rank", "after" or "around"
-- ARGV[2] a — rank: number of records to pass over; after: a score; around: how many neighbours on each side
-- ARGV[3] member — after: with `a` the position to go on from, which need not exist any more; around: the one sought
-- ARGV[4] limit — integer: most records to read; unused by "around"
-- Returns {epoch, offset, rank_count, total, start, member, score, member, score, ...}; epoch is '' for no board,
--         start is '' when the member sought is not on the board
local ranking, meta = KEYS[1], KEYS[2]
local mode, a, member, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local state = redis.call('HMGET', meta, 'epoch', 'offset', 'total')
local count = redis.call('ZCARD', ranking)
local reply = {state[1] or '', state[2] or '0', string.format('%.0f', count), state[3] or '0', ''}

local function before(x, y)  -- Lua compares strings by locale, the sorted set by bytes
  for i = 1, math.min(#x, #y) do
    local p, q = string.byte(x, i), string.byte(y, i)
    if p ~= q then return p < q end
  end
  return #x < #y
end

local function ahead_of(score)  -- how many records have a higher score, and how many a lower one
  return redis.call('ZCOUNT', ranking, '(' .. score, '+inf'), redis.call('ZCOUNT', ranking, '-inf', '(' .. score)
end

local function place(score, key)  -- how many records go before this position, and whether a record stands on it
  local above, below = ahead_of(score)
  local low, high = below, count - above
  while low < high do
    local middle = math.floor((low + high) / 2)
    if before(redis.call('ZRANGE', ranking, middle, middle)[1], key) then low = middle + 1 else high = middle end
  end
  return above + low - below, low < count - above and redis.call('ZRANGE', ranking, low, low)[1] == key
end

local start
if mode == 'rank' then
  start = tonumber(a)
elseif mode == 'after' then
  local position, exact = place(a, member)
  start = exact and position + 1 or position
else
  local score = redis.call('ZSCORE', ranking, member)
  if not score then return reply end
  local position = place(score, member)
  start = math.max(0, position - tonumber(a))
  limit = position + tonumber(a) - start + 1
end
reply[5] = string.format('%.0f', start)

local page = redis.call('ZREVRANGE', ranking, start, start + limit - 1, 'WITHSCORES')
local records = #page / 2
local first = 1
while first <= records do
  local score, last = page[2 * first], first
  while last < records and page[2 * last + 2] == score do last = last + 1 end
  local whole = (first > 1 or start == 0) and (last < records or start + records == count)
  local run
  if not whole then
    local above, below = ahead_of(score)
    local from = below + start + first - 1 - above
    run = redis.call('ZRANGE', ranking, from, from + last - first)
  end
  for i = first, last do
    reply[#reply + 1] = run and run[i - first + 1] or page[2 * (last - i + first) - 1]
    reply[#reply + 1] = score
  end
  first = last + 1
end
return reply
