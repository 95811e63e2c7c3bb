#!lua flags=no-writes
-- Reads the places of several members with their neighbours, and where the board stands, at one instant. Writes nothing.
-- KEYS[1] ranking — sorted set: name, score
-- KEYS[2] reached — hash: member, tag
-- KEYS[3] levels — sorted set: each score there is
-- KEYS[4] meta — hash: the board's state
-- KEYS[5] metadata — hash: member, JSON
-- ARGV[1] clock — "server" or "event"
-- ARGV[2] current — seconds: the board's newest period by the caller; '' for none yet, "any" when what is read does not
--         depend on the clock
-- ARGV[3] till — milliseconds: the end of that period; '' where time alone does not end it
-- ARGV[4] suffix — string: what the names of the table's sums end with
-- ARGV[5] ties — "key", or "rising" or "falling" where names have tags
-- ARGV[6] order — "forward", "backward" or "turned"
-- ARGV[7] ranks — "ordinal", "dense" or "competition"
-- ARGV[8] described — "1" to read metadata
-- ARGV[9...] members — strings: the keys that are looked for
-- ARGV[...] neighbours — integer, after each of them: how many on each side
-- Returns {epoch, offset, rank_count, total, {{start, rank, {name, score, ...}, {JSON, ...}}, ...}}; epoch is '' for no
--         board, total is as `read` gives it, start is '' for a member that is not on the board, rank is that of the first record
--         {'replan', newest, now, latest} — the caller is wrong about the board's clock
--@include clock
local ranking, reached, levels, meta, metadata = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local clock, current, till, suffix, ties = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local order, ranks, described = ARGV[6], ARGV[7], ARGV[8]

local state = redis.call('HMGET', meta, 'epoch', 'offset', 'total' .. suffix, 'newest', 'latest', 'high' .. suffix)
if state[1] and current ~= 'any' and not fits(clock, current, state[4] or '', nil, till) then
  return {'replan', state[4] or '', digits(now), state[5] or ''}
end
local count = redis.call('ZCARD', ranking)
--@include order
--@include page

local places = {}
for at = 9, #ARGV, 2 do
  local start, limit = around(ARGV[at], tonumber(ARGV[at + 1]))
  places[#places + 1] = start and {page_at(start, limit, count)} or {'', '', {}, {}}
end
return {state[1] or '', state[2] or '0', digits(count), (state[3] or '0') .. (state[6] and '+' .. state[6] or ''), places}
