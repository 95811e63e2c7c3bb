#!lua flags=no-writes
-- Reads the records of several members with their neighbours, and the board's position, at one instant.
-- KEYS[1] ranking — sorted set: name, score
-- KEYS[2] reached — hash: member, tag
-- KEYS[3] levels — sorted set: each score in the ranking
-- KEYS[4] meta — hash: the board's state
-- KEYS[5] metadata — hash: member, JSON
-- Request: LookupRequest
-- Returns {epoch, offset, rank_count, total, {{start, rank, {name, score, ...}, {JSON, ...}}, ...}} — epoch is '' for
--         no board; total is as in `read`; start is '' for a member that is not on the board; rank belongs to the
--         first record
--         {'replan', newest, now, latest} — the caller is wrong about the board's clock
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local ranking, reached, levels, meta, metadata = unpack(KEYS)
--@include clock
--@include order
--@include page
--@include reign
--@include position
local head, refusal = current_position()
if refusal then return refusal end

local places = {}
for i, member in ipairs(request.members) do
  local start, limit = around(member, request.neighbours[i])
  places[i] = start and {page_at(start, limit, head.count)} or {'', '', {}, {}}
end
return {head.epoch, head.offset, digits(head.count), head.total, places}
