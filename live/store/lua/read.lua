#!lua flags=no-writes
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
-- ARGV[8] described — "1" to read metadata
-- ARGV[9] mode — "rank", "after", "before", "around" or "score"
-- ARGV[10] a — rank: number of records to pass over; after, before, score: a score; around: how many neighbours
-- ARGV[11] name — after, before: with `a` the position to go on from, which need not exist any more; around: a member
-- ARGV[12] limit — integer: most records to read; unused by "around"
-- Returns {epoch, offset, rank_count, total, start, rank, {name, score, ...}, {JSON, ...}, described}; total is a
--         number, or one and '+' and another in units of 2^40; the last is the number of keys with metadata; epoch is '' for no board, start is '' when the member sought is not on the
--         board, rank is that of the first record
--         {'replan', newest, now, latest} — the caller is wrong about the board's clock
--@include clock
local ranking, reached, levels, meta, metadata = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local clock, current, till, suffix, ties = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local order, ranks, described, mode = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local a, name, limit = ARGV[10], ARGV[11], tonumber(ARGV[12])

local state = redis.call('HMGET', meta, 'epoch', 'offset', 'total' .. suffix, 'newest', 'latest', 'high' .. suffix)
if state[1] and current ~= 'any' and not fits(clock, current, state[4] or '', nil, till) then
  return {'replan', state[4] or '', digits(now), state[5] or ''}
end
local count, total = redis.call('ZCARD', ranking), (state[3] or '0') .. (state[6] and '+' .. state[6] or '')
local registered = described == '1' and redis.call('HLEN', metadata) or 0
local reply = {state[1] or '', state[2] or '0', digits(count), total, '', '', {}, {}, registered}
--@include order
--@include page

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
  start, limit = around(name, tonumber(a))
end
if start then reply[5], reply[6], reply[7], reply[8] = page_at(start, limit, count) end
return reply
