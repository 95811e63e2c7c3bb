#!lua flags=no-writes
-- Reads the records of several members with their neighbours, and the board's position, at one instant.
-- KEYS ranking, reached, levels, meta, metadata
-- Request: LookupRequest
-- Returns {epoch, offset, rank_count, total, {{start, rank, {name, score, ...}, {JSON, ...}}, ...}} — epoch is '' for
--         no board; total is as in `read`; start is '' for a member that is not on the board; rank belongs to the
--         first record
--@include page
--@include position
local head, refusal = current_position()
if refusal then return refusal end

local places = {}
for i, member in ipairs(request.members) do
  local start, limit = around(member, request.neighbours[i])
  places[i] = start and {page_at(start, limit, head.count)} or {'', '', {}, {}}
end
return {head.epoch, head.offset, digits(head.count), head.total, places}
