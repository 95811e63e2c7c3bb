-- Reads consecutive records, and where the board stands, at one instant. Writes nothing.
-- KEYS[1] ranking — sorted set: name, score
-- KEYS[2] reached — hash: member, tag
-- KEYS[3] levels — sorted set: each score there is
-- KEYS[4] meta — hash: the board's state
-- KEYS[5] metadata — hash: member, JSON
-- ARGV[1] clock — "server" or "event"
-- ARGV[2] current — seconds: the board's newest period by the caller, when that is to be read; '' for none yet, "any"
--         when what is read does not depend on the clock
-- ARGV[3] till — milliseconds: the end of that period; '' where time alone does not end it
-- ARGV[4] suffix — string: what the names of the table's sums end with
-- ARGV[5] ties — "key", or "rising" or "falling" where names have tags
-- ARGV[6] order — "forward", "backward" or "turned"
-- ARGV[7] ranks — "ordinal", "dense" or "competition"
-- ARGV[8] mode — "rank", "after", "before", "around" or "score"
-- ARGV[9] a — rank: number of records to pass over; after, before, score: a score; around: how many neighbours
-- ARGV[10] name — after, before: with `a` the position to go on from, which need not exist any more; around: a member
-- ARGV[11] limit — integer: most records to read; unused by "around"
-- ARGV[12] described — "1" to read metadata
-- Returns {epoch, offset, rank_count, total, start, rank, {name, score, ...}, {JSON, ...}, described}; the last is the
--         number of keys with metadata; epoch is '' for no board, start is '' when the member sought is not on the board, rank is that of the first record
--         {'replan', newest, now, latest} — the caller is wrong about the board's clock
--@include clock
local ranking, reached, levels, meta, metadata = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local clock, current, till, suffix, ties = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local order, ranks, mode, a, name, limit, described = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10], tonumber(ARGV[11]), ARGV[12]

local state = redis.call('HMGET', meta, 'epoch', 'offset', 'total' .. suffix, 'newest', 'latest')
if state[1] and current ~= 'any' and not fits(clock, current, state[4] or '', nil, till) then
  return {'replan', state[4] or '', digits(now), state[5] or ''}
end
local count = redis.call('ZCARD', ranking)
local reply = {state[1] or '', state[2] or '0', digits(count), state[3] or '0', '', '', {}, {}, described == '1' and redis.call('HLEN', metadata) or 0}
--@include order

local start
if mode == 'rank' then
  start = tonumber(a)
elseif mode == 'after' then
  local position, exact = place(a, name)
  start = exact and position + 1 or position
elseif mode == 'before' then
  local position = place(a, name)
  start = math.max(0, position - limit)
  limit = position - start
elseif mode == 'score' then
  local position = better(ranking, a)
  start = math.max(0, position - math.floor(limit / 2))
else
  if ties ~= 'key' then name = (redis.call('HGET', reached, name) or '') .. name end
  local score, position = standing(name)
  if not score then return reply end
  start = math.max(0, position - tonumber(a))
  limit = position + tonumber(a) - start + 1
end
reply[5] = digits(start)
if limit == 0 then return reply end

local page = redis.call(order == 'forward' and 'ZRANGE' or 'ZREVRANGE', ranking, start, start + limit - 1, 'WITHSCORES')
local records = #page / 2
if order == 'turned' then  -- a run of equal scores comes by name descending: turn it round, or read it forwards if cut
  local first, turned = 1, {}
  while first <= records do
    local score, last = page[2 * first], first
    while last < records and page[2 * last + 2] == score do last = last + 1 end
    local whole = (first > 1 or start == 0) and (last < records or start + records == count)
    local run
    if not whole then
      local below = redis.call('ZCOUNT', ranking, '-inf', '(' .. score)
      local from = below + start + first - 1 - better(ranking, score)
      run = redis.call('ZRANGE', ranking, from, from + last - first)
    end
    for i = first, last do
      turned[#turned + 1] = run and run[i - first + 1] or page[2 * (last - i + first) - 1]
      turned[#turned + 1] = score
    end
    first = last + 1
  end
  page = turned
end
reply[7] = page
if records > 0 then
  reply[6] = digits(rank_of(page[2], start))
  if described == '1' then
    local members = {}
    for i = 1, records do
      members[i] = ties == 'key' and page[2 * i - 1] or string.sub(page[2 * i - 1], 9)
    end
    reply[8] = redis.call('HMGET', metadata, unpack(members))
  end
end
return reply
